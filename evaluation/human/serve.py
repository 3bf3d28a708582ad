"""Serves a study to its raters.

  python evaluation/human/serve.py --study study.db --port 8000

Raters open their personal links, the organiser the overview; both were made by prepare.py. The study is written to the
disk before a vote is acknowledged: the server can be stopped or killed and started again at any time. It listens on
this machine alone unless --host says otherwise; for the open internet, put a proxy with HTTPS before it.
"""

import argparse
import socket
import sys
from collections.abc import Sequence

import uvicorn

from evaluation.human.site.app import create_app
from evaluation.human.site.guards import Pace
from evaluation.human.study.file import Study
from pipeline.runtime.command_line import Parser
from pipeline.runtime.errors import UserError, exit_with


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(sys.argv[1:] if arguments is None else arguments)
    app = create_app(Study(options.study), Pace(options.requests_per_minute, options.strangers_per_minute))
    listener = listen(options.host, options.port)
    print(f"study {options.study} on http://{options.host}:{options.port}", flush=True)
    config = uvicorn.Config(
        app,
        access_log=False,  # personal links would be in it
        log_level="warning",
        server_header=False,
        limit_concurrency=1000,
        timeout_keep_alive=30,
        forwarded_allow_ips=options.proxy,
    )
    uvicorn.Server(config).run(sockets=[listener])
    return 0


def listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise UserError(f"--host {host} --port {port}: {error.strerror}: choose another") from None


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser(__doc__)
    parser.add_argument("--study", required=True, metavar="FILE", help="that prepare.py made")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: this machine alone)")
    parser.add_argument("--port", type=int, default=8000, metavar="N", help="(default: 8000)")
    parser.add_argument("--proxy", default="127.0.0.1", metavar="ADDRESS", help="of a proxy whose headers are believed")
    parser.add_argument("--requests_per_minute", type=int, default=120, metavar="N", help="of one rater (default: 120)")
    parser.add_argument(
        "--strangers_per_minute", type=int, default=60, metavar="N", help="requests without a valid link (default: 60)"
    )
    options = parser.parse_args(arguments)
    for flag in ("requests_per_minute", "strangers_per_minute"):
        if getattr(options, flag) < 1:
            raise UserError(f"--{flag} {getattr(options, flag)}: at least 1")
    if not 0 < options.port < 65536:
        raise UserError(f"--port {options.port}: between 1 and 65535")
    return options


if __name__ == "__main__":
    exit_with(main)
