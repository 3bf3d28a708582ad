"""Writes a study as CSV: its pages for a crowd-sourcing site, and its votes.

  python evaluation/human/export.py --study study.db --items pages.csv
  python evaluation/human/export.py --study study.db --votes votes.csv

A row of --items is a page, as Mechanical Turk's templates want it: three items and a check in shuffled order, in the
columns page, and comparison_1, context_1, left_1, right_1, and so on to 4. Only items that nobody has rated here are in
it. Such templates put texts into a page as they are, so markup in them is made harmless; --plain leaves them alone.
A template returns choice_1 to choice_4, each left or right, and import_votes.py reads the results.
"""

import csv
import html
import io
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evaluation.human.study.design import ITEMS_A_PAGE
from evaluation.human.study.file import StudyFile
from pipeline.runtime import files
from pipeline.runtime.errors import UserError, exit_with
from pipeline.runtime.settings import Settings, read_settings, setting

FORMULA = ("=", "+", "-", "@", "\t", "\r")
VOTE_COLUMNS = ["rater", "page", "comparison", "choice", "kind", "window_id", "preferred", "check_passed", "sent"]


@dataclass(frozen=True, kw_only=True)
class ExportSettings(Settings):
    """A study, and the files that are wanted of it."""

    study: str = setting(help="that prepare.py made", metavar="FILE")
    items: str | None = setting(None, help="where pages go", metavar="CSV")
    votes: str | None = setting(None, help="where votes go", metavar="CSV")
    plain: bool = setting(False, help="texts as they are, for sites that show them as text")

    def check(self) -> None:
        if not self.items and not self.votes:
            raise UserError("nothing to write: give --items, --votes or both")


def main(arguments: Sequence[str] | None = None) -> int:
    settings = read_settings(ExportSettings, sys.argv[1:] if arguments is None else arguments, __doc__)
    for what, (path, count) in export(settings).items():
        print(f"{count:,} {what} in {path}")
    return 0


def export(settings: ExportSettings) -> dict[str, tuple[str, int]]:
    """Writes pages, votes or both; of each the file, and how many are in it."""
    study = StudyFile(settings.study)
    written = {}
    if settings.items:
        written["pages"] = (settings.items, write_csv(settings.items, page_rows(study, settings.plain)))
    if settings.votes:
        written["votes"] = (settings.votes, write_csv(settings.votes, vote_rows(study)))
    return written


def page_rows(study: StudyFile, plain: bool) -> list[list[Any]]:
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


def vote_rows(study: StudyFile) -> list[list[Any]]:
    """A head, and a row for every choice on a page that was sent, checks among them: import_votes.py can read it."""
    rows = study.reader.execute(
        "SELECT rater.code, page.id, comparison.id, choice, slot.kind, window_id, "
        "CASE choice WHEN 'left' THEN left_source ELSE right_source END, passed, sent "
        "FROM slot JOIN page ON page.id = page JOIN rater ON rater.id = page.rater "
        "JOIN comparison ON comparison.id = comparison "
        "WHERE page.kind = 'rating' AND page.state = 'sent' ORDER BY page.id, place"
    )
    return [VOTE_COLUMNS, *(list(row) for row in rows)]


def write_csv(path: str, rows: list[list[Any]]) -> int:
    """Writes a head and rows; how many rows there are."""
    text = io.StringIO(newline="")
    csv.writer(text).writerows([[inert(cell) for cell in row] for row in rows])
    files.put(path, text.getvalue().encode("utf-8", "replace"))
    return len(rows) - 1


def inert(cell: Any) -> Any:
    """A text that a spreadsheet would compute as a formula, with a space before it, which no page shows."""
    return f" {cell}" if isinstance(cell, str) and cell.startswith(FORMULA) else cell


if __name__ == "__main__":
    exit_with(main)
