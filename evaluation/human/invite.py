"""Makes personal links for more raters of a study, which may be running.

  python evaluation/human/invite.py --study study.db --raters 10 --days 14 --url https://study.example.org

They are added to STUDY.links.csv. --organiser makes a new link to the overview in place of the old one, which a running
server keeps until it is started again.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence

from evaluation.human.site.links import digest, invite, new_token, write_links
from evaluation.human.study.file import Study
from pipeline.runtime.command_line import Parser
from pipeline.runtime.errors import UserError, exit_with


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(sys.argv[1:] if arguments is None else arguments)
    study = Study(options.study)
    links = invite(study, options.raters, options.days, options.url, time.time())
    write_links(f"{options.study}.links.csv", links)
    print(f"{len(links):,} links more in {options.study}.links.csv, {options.days:g} days long")
    if options.organiser:
        token = new_token()
        with study.writing() as connection:
            connection.execute(
                "UPDATE setting SET value = ? WHERE name = 'organiser_digest'", (json.dumps(digest(token)),)
            )
        print(f"overview {options.url.rstrip('/')}/o/{token}")
    return 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser(__doc__)
    parser.add_argument("--study", required=True, metavar="FILE", help="that prepare.py made")
    parser.add_argument("--raters", type=int, default=0, metavar="N", help="links to make (default: 0)")
    parser.add_argument("--days", type=float, default=14, metavar="N", help="until they expire (default: 14)")
    parser.add_argument("--url", default="http://localhost:8000", help="where the site is, for the links")
    parser.add_argument("--organiser", action="store_true", help="a new link to the overview")
    options = parser.parse_args(arguments)
    if options.raters < 0 or (options.raters == 0 and not options.organiser):
        raise UserError(f"--raters {options.raters}: at least 1, unless --organiser alone is wanted")
    if not 0 < options.days < 1e5:
        raise UserError(f"--days {options.days}: above 0 and below 100,000")
    return options


if __name__ == "__main__":
    exit_with(main)
