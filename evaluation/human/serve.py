"""Serves a study to its raters.

  python evaluation/human/serve.py --study study.db --port 8000

Raters open their personal links, the organiser the overview; both were made by prepare.py. The study is written to the
disk before a vote is acknowledged: the server can be stopped or killed and started again at any time. It listens on
this machine alone unless --host says otherwise; for the open internet, put a proxy with HTTPS before it, and name it:
--proxy 127.0.0.1. Headers of anyone else are not believed.
"""

import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from evaluation.human.study.file import StudyFile
from pipeline.runtime.errors import UserError, exit_with
from pipeline.runtime.settings import Settings, read_settings, setting


@dataclass(frozen=True, kw_only=True)
class ServeSettings(Settings):
    """A study, where it is served, and how often visitors may ask."""

    study: str = setting(help="that prepare.py made", metavar="FILE")
    host: str = setting("127.0.0.1", help="address to listen on (default: this machine alone)")
    port: int = setting(8000, help="(default: 8000)", metavar="N", least=1, most=65535)
    proxy: str | None = setting(
        None,
        help="of a proxy before it: visitors' addresses are those in its headers (default: none)",
        metavar="ADDRESS",
    )
    requests_per_minute: int = setting(120, help="of one rater (default: 120)", metavar="N", least=1)
    strangers_per_minute: int = setting(60, help="requests without a valid link (default: 60)", metavar="N", least=1)


def main(arguments: Sequence[str] | None = None) -> int:
    serve(read_settings(ServeSettings, sys.argv[1:] if arguments is None else arguments, __doc__))
    return 0


def serve(settings: ServeSettings) -> None:
    """Serves the study until it is stopped; says so when it listens."""
    from uvicorn import Server

    from evaluation.human.site.app import create_app
    from evaluation.human.site.connections import configuration
    from evaluation.human.site.guards import Pace

    pace = Pace(settings.requests_per_minute, settings.strangers_per_minute)
    app = create_app(StudyFile(settings.study), pace)
    listener = listen(settings.host, settings.port)
    print(f"study {settings.study} on http://{settings.host}:{settings.port}", flush=True)
    Server(configuration(app, settings.proxy)).run(sockets=[listener])


def listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise UserError(f"--host {host} --port {port}: {error.strerror}: choose another") from None


if __name__ == "__main__":
    exit_with(main)
