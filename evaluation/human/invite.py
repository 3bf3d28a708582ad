"""Makes personal links for more raters of a study, which may be running.

  python evaluation/human/invite.py --study study.db --raters 10 --days 14 --url https://study.example.org

They are added to STUDY.links.csv. --organiser makes a new link to the overview in place of the old one, which a running
server keeps until it is started again.
"""

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from evaluation.human.site.links import Link, digest, make_links, new_token, write_links
from evaluation.human.study.file import StudyFile
from pipeline.runtime.errors import UserError, exit_with
from pipeline.runtime.settings import Settings, read_settings, setting


@dataclass(frozen=True, kw_only=True)
class InviteSettings(Settings):
    """A study, and the links that are wanted."""

    study: str = setting(help="that prepare.py made", metavar="FILE")
    raters: int = setting(0, help="links to make (default: 0)", metavar="N")
    days: float = setting(14.0, help="until they expire (default: 14)", metavar="N")
    url: str = setting("http://localhost:8000", help="where the site is, for the links")
    organiser: bool = setting(False, help="a new link to the overview")

    def check(self) -> None:
        if self.raters < 0 or (self.raters == 0 and not self.organiser):
            raise UserError(f"--raters {self.raters}: at least 1, unless --organiser alone is wanted")
        if not 0 < self.days < 1e5:
            raise UserError(f"--days {self.days}: above 0 and below 100,000")


@dataclass(frozen=True)
class Invitation:
    """The raters' new links, and the organiser's if one was wanted."""

    links: list[Link]
    overview: str | None


def main(arguments: Sequence[str] | None = None) -> int:
    settings = read_settings(InviteSettings, sys.argv[1:] if arguments is None else arguments, __doc__)
    made = invite(settings)
    print(f"{len(made.links):,} links more in {settings.study}.links.csv, {settings.days:g} days long")
    if made.overview:
        print(f"overview {made.overview}")
    return 0


def invite(settings: InviteSettings) -> Invitation:
    """Makes the links, and adds those of raters to the file beside the study."""
    study = StudyFile(settings.study)
    links = make_links(study, settings.raters, settings.days, settings.url, time.time())
    write_links(f"{settings.study}.links.csv", links)
    return Invitation(links, organiser_link(study, settings.url) if settings.organiser else None)


def organiser_link(study: StudyFile, url: str) -> str:
    """A new link to the overview; the one before it opens nothing any more."""
    token = new_token()
    with study.writing() as connection:
        connection.execute("UPDATE setting SET value = ? WHERE name = 'organiser_digest'", (json.dumps(digest(token)),))
    return f"{url.rstrip('/')}/o/{token}"


if __name__ == "__main__":
    exit_with(main)
