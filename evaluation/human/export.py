"""Writes a study as CSV: its pages for a crowd-sourcing site, and its votes.

  python evaluation/human/export.py --study study.db --items pages.csv
  python evaluation/human/export.py --study study.db --votes votes.csv

A row of --items is a page, as Mechanical Turk's templates want it: three items and a check in shuffled order, in the
columns page, and comparison_1, context_1, left_1, right_1, and so on to 4. Only items that nobody has rated here are in
it. Such templates put texts into a page as they are, so markup in them is made harmless; --plain leaves them alone.
A template returns choice_1 to choice_4, each left or right, and import_votes.py reads the results.
"""

import argparse
import csv
import html
import io
import random
import sys
from collections.abc import Sequence
from typing import Any

from evaluation.human.study.design import ITEMS_A_PAGE
from evaluation.human.study.file import Study
from pipeline.runtime import files
from pipeline.runtime.command_line import Parser
from pipeline.runtime.errors import UserError, exit_with

VOTE_COLUMNS = ["rater", "page", "comparison", "choice", "kind", "window_id", "preferred", "check_passed", "sent"]


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(sys.argv[1:] if arguments is None else arguments)
    study = Study(options.study)
    if options.items:
        write_csv(options.items, "pages", page_rows(study, options.plain))
    if options.votes:
        write_csv(options.votes, "votes", vote_rows(study))
    return 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser(__doc__)
    parser.add_argument("--study", required=True, metavar="FILE", help="that prepare.py made")
    parser.add_argument("--items", metavar="CSV", help="where pages go")
    parser.add_argument("--votes", metavar="CSV", help="where votes go")
    parser.add_argument("--plain", action="store_true", help="texts as they are, for sites that show them as text")
    options = parser.parse_args(arguments)
    if not options.items and not options.votes:
        raise UserError("nothing to write: give --items, --votes or both")
    return options


def page_rows(study: Study, plain: bool) -> list[list[Any]]:
    """A head, and a row for each page; which comparison is the check is not in it."""
    query = "SELECT * FROM comparison WHERE kind = ? AND free = ? ORDER BY id"
    items = study.reader.execute(query, ("item", study.settings["votes"])).fetchall()
    checks = study.reader.execute(query, ("check", 0)).fetchall()
    places = range(1, ITEMS_A_PAGE + 2)
    rows: list[list[Any]] = [
        ["page", *(f"{name}_{place}" for place in places for name in ("comparison", "context", "left", "right"))]
    ]
    for number, start in enumerate(range(0, len(items), ITEMS_A_PAGE), 1):
        of_page = [*items[start : start + ITEMS_A_PAGE], checks[(number - 1) % len(checks)]]
        random.Random(f"{study.settings['seed']} page {number}").shuffle(of_page)
        cells: list[Any] = [f"P{number:04d}"]
        for one in of_page:
            texts = [one["context"], one["left_text"], one["right_text"]]
            cells += [one["id"], *(texts if plain else map(harmless, texts))]
        rows.append(cells + [""] * (len(rows[0]) - len(cells)))
    return rows


def harmless(text: str) -> str:
    """Shown by a browser as the text that it is, line breaks too."""
    return html.escape(text).replace("\r\n", "\n").replace("\n", "<br>")


def vote_rows(study: Study) -> list[list[Any]]:
    """A head, and a row for every choice on a page that was sent, checks among them: import_votes.py can read it."""
    rows = study.reader.execute(
        "SELECT rater.code, page.id, comparison.id, choice, slot.kind, window_id, "
        "CASE choice WHEN 'left' THEN left_source ELSE right_source END, passed, sent "
        "FROM slot JOIN page ON page.id = page JOIN rater ON rater.id = page.rater "
        "JOIN comparison ON comparison.id = comparison "
        "WHERE page.kind = 'rating' AND page.state = 'sent' ORDER BY page.id, place"
    )
    return [VOTE_COLUMNS, *(list(row) for row in rows)]


def write_csv(path: str, what: str, rows: list[list[Any]]) -> None:
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    files.put(path, text.getvalue().encode("utf-8", "replace"))
    print(f"{len(rows) - 1:,} {what} in {path}")


if __name__ == "__main__":
    exit_with(main)
