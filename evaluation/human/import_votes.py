"""Adds votes that were given elsewhere to a study: results of Mechanical Turk, or any CSV of choices.

  python evaluation/human/import_votes.py --study study.db --votes batch_results.csv

Either a row is a page, with WorkerId, Input.page, Input.comparison_1 to 4 and Answer.choice_1 to 4 (as Mechanical Turk
writes it for pages of export.py; the prefixes may be missing, and WorkerId may be called rater), or a row is a choice,
with rater, page, comparison and choice. A choice is left or right. Names of workers are not kept: a rater's code is
computed from them with the study's key. All of a file is added or nothing; pages that were added before are passed
over, and so are those with an item that has all its votes, or that the same rater has rated before.
"""

import csv
import io
import sqlite3
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from evaluation.human.site.assignment import SIDES, take
from evaluation.human.site.ballots import check_passed
from evaluation.human.site.links import form_token
from evaluation.human.study.file import StudyFile
from pipeline.runtime import files
from pipeline.runtime.errors import UserError, exit_with
from pipeline.runtime.settings import Settings, read_settings, setting

PREFIXES = ("Input.", "Answer.")
LONG = ("rater", "page", "comparison", "choice")
PLACES = range(1, 21)
ADDED = "added"


class ImportedVote(NamedTuple):
    """What a rater chose in one comparison, and the line of the file that says so."""

    line: int
    rater: str
    page: str
    comparison: str
    choice: str


@dataclass(frozen=True, kw_only=True)
class ImportVotesSettings(Settings):
    """A study, and the votes that are added to it."""

    study: str = setting(help="that prepare.py made", metavar="FILE")
    votes: str = setting(help="what raters chose", metavar="CSV")


def main(arguments: Sequence[str] | None = None) -> int:
    settings = read_settings(ImportVotesSettings, sys.argv[1:] if arguments is None else arguments, __doc__)
    outcomes = import_votes(settings)
    print(f"{outcomes[ADDED]:,} pages added to {settings.study}")
    for outcome, count in outcomes.items():
        if outcome != ADDED:
            print(f"  {count:,} passed over: {outcome}")
    return 0


def import_votes(settings: ImportVotesSettings) -> Counter[str]:
    """Adds the votes, all of them or none; what became of the pages, and of how many."""
    study = StudyFile(settings.study)
    pages = read_pages(settings.votes)
    with study.writing() as connection:
        return Counter(add_page(connection, study, settings.votes, page) for page in pages)


def read_pages(path: str) -> list[list[ImportedVote]]:
    """The votes on each rater's pages, in the file's order."""
    if not files.is_file(path):
        raise UserError(f"--votes {path}: no such file")
    try:
        text = files.read(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"--votes {path}: not UTF-8 at byte {error.start}: save it as UTF-8") from None
    reader = csv.DictReader(io.StringIO(text, newline=""))
    pages: dict[tuple[str, str], list[ImportedVote]] = defaultdict(list)
    try:
        for row in reader:
            for vote in votes_in(path, reader.line_num, row):
                pages[vote.rater, vote.page].append(vote)
    except csv.Error as error:
        raise UserError(f"--votes {path}: line {reader.line_num}: not CSV ({error})") from None
    return list(pages.values())


def votes_in(path: str, line: int, row: dict[str, str | None]) -> Iterator[ImportedVote]:
    known = {plain(name): (value or "").strip() for name, value in row.items() if isinstance(name, str)}
    known.setdefault("rater", known.get("WorkerId", ""))
    if known.get("AssignmentStatus") == "Rejected":
        return
    wide = any(f"comparison_{place}" in known for place in PLACES)
    if lacking := [name for name in (LONG[:2] if wide else LONG) if not known.get(name)]:
        raise UserError(f"--votes {path}: line {line}: no {lacking[0]}: see --help for the columns")
    if not wide:
        yield ImportedVote(line, *(known[name] for name in LONG))
        return
    for place in PLACES:
        if known.get(f"comparison_{place}"):
            choice = known.get(f"choice_{place}", "")
            yield ImportedVote(line, known["rater"], known["page"], known[f"comparison_{place}"], choice)


def plain(name: str) -> str:
    for prefix in PREFIXES:
        name = name.removeprefix(prefix)
    return name


def add_page(connection: sqlite3.Connection, study: StudyFile, path: str, page: list[ImportedVote]) -> str:
    """Adds a page as if it had been sent here; says what became of it."""
    kinds = {number: (kind, free) for number, kind, free in connection.execute("SELECT id, kind, free FROM comparison")}
    numbers = []
    for one in page:
        # Python makes no numbers of thousands of digits.
        if not one.comparison.isdecimal() or len(one.comparison) > 18 or int(one.comparison) not in kinds:
            raise UserError(f"--votes {path}: line {one.line}: comparison {one.comparison!r} is not of {study.path}")
        if one.choice not in SIDES:
            raise UserError(f"--votes {path}: line {one.line}: choice {one.choice!r}: left or right")
        numbers.append(int(one.comparison))
    of_kind = [kinds[number][0] for number in numbers]
    if of_kind.count("check") != 1 or "qualification" in of_kind or len(set(numbers)) < len(numbers):
        raise UserError(
            f"--votes {path}: line {page[0].line}: page {page[0].page} has not one check and items, once each"
        )
    rater = rater_named(connection, study, page[0].rater)
    source = f"{rater} {page[0].page}"
    items = [number for number in numbers if kinds[number][0] == "item"]
    if connection.execute("SELECT 1 FROM page WHERE source = ?", (source,)).fetchone():
        return "added before"
    if any(kinds[item][1] < 1 for item in items):
        return "an item has all its votes"
    seen = {number for (number,) in connection.execute("SELECT comparison FROM slot WHERE rater = ?", (rater,))}
    if seen.intersection(items):
        return "the rater has rated an item before"
    number = connection.execute(
        "INSERT INTO page (rater, kind, state, sent, source) VALUES (?, 'rating', 'sent', ?, ?)",
        (rater, time.time(), source),
    ).lastrowid
    assert number is not None
    take(connection, items)
    connection.executemany(
        "INSERT INTO slot (page, place, rater, comparison, kind, choice) VALUES (?, ?, ?, ?, ?, ?)",
        [
            (number, place, rater, comparison, kinds[comparison][0], one.choice)
            for place, (comparison, one) in enumerate(zip(numbers, page, strict=True), 1)
        ],
    )
    connection.execute("UPDATE page SET passed = ? WHERE id = ?", (check_passed(connection, number), number))
    return ADDED


def rater_named(connection: sqlite3.Connection, study: StudyFile, name: str) -> int:
    """The rater of this name, who has no link; the name itself is not kept."""
    code = f"X{form_token(study.settings['form_key'], name)[:10]}"
    connection.execute("INSERT OR IGNORE INTO rater (code, state) VALUES (?, 'rating')", (code,))
    return int(connection.execute("SELECT id FROM rater WHERE code = ?", (code,)).fetchone()[0])


if __name__ == "__main__":
    exit_with(main)
