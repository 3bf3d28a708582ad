"""Votes: a page comes back once, whole, and what is in it is then part of the study for good."""

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from evaluation.human.site.assignment import SIDES, hold, is_right
from evaluation.human.site.links import Rater
from evaluation.human.study.file import StudyFile


class Reply(Enum):
    SENT = "the votes are counted"
    REPEATED = "the same votes came before"
    CHANGED = "other votes came before, and those count"
    UNKNOWN = "not a page of this rater"
    INCOMPLETE = "some comparisons have no vote"
    LOST = "others have rated these items meanwhile"
    KEPT = "the choices are noted, nothing is counted yet"


@dataclass(frozen=True)
class Answer:
    reply: Reply
    missing: list[int] = field(default_factory=list)


def receive(
    study: StudyFile, rater: Rater, page: int, choices: Mapping[int, str], now: float, pause: bool = False
) -> Answer:
    """Counts a page's votes, by place, in one transaction; how often and in how many tabs they are sent is the same."""
    with study.writing() as connection:
        row = connection.execute("SELECT * FROM page WHERE id = ? AND rater = ?", (page, rater.id)).fetchone()
        if row is None:
            return Answer(Reply.UNKNOWN)
        slots = connection.execute("SELECT place, choice FROM slot WHERE page = ? ORDER BY place", (page,)).fetchall()
        if row["state"] == "sent":
            same = all(choices.get(place, choice) == choice for place, choice in slots)
            return Answer(Reply.REPEATED if same else Reply.CHANGED)
        if not hold(connection, row, now + float(study.settings["lease_seconds"])):
            return Answer(Reply.LOST)
        known = {place: choices[place] for place, _ in slots if choices.get(place) in SIDES}
        connection.executemany(
            "UPDATE slot SET choice = ? WHERE page = ? AND place = ?",
            [(choice, page, place) for place, choice in known.items()],
        )
        if pause:
            return Answer(Reply.KEPT)
        missing = [place for place, _ in slots if place not in known]
        if missing:
            return Answer(Reply.INCOMPLETE, missing)
        passed = row["kind"] == "qualification" or check_passed(connection, page)
        connection.execute("UPDATE page SET state = 'sent', sent = ?, passed = ? WHERE id = ?", (now, passed, page))
        if row["kind"] == "qualification":
            judge(connection, rater, float(study.settings["pass_above"]))
        return Answer(Reply.SENT)


def check_passed(connection: sqlite3.Connection, page: int) -> bool:
    """Whether the real text was chosen in the page's attention check."""
    rows = connection.execute(
        "SELECT left_source, choice FROM slot JOIN comparison ON comparison.id = comparison "
        "WHERE page = ? AND slot.kind = 'check'",
        (page,),
    )
    return all(is_right(left_source, choice) for left_source, choice in rows)


def qualification_score(connection: sqlite3.Connection, rater: int) -> tuple[int, int]:
    """Right answers, and answers, of a rater's qualification."""
    rows = connection.execute(
        "SELECT left_source, choice FROM slot JOIN comparison ON comparison.id = comparison "
        "JOIN page ON page.id = page "
        "WHERE slot.rater = ? AND slot.kind = 'qualification' AND page.state = 'sent'",
        (rater,),
    ).fetchall()
    return sum(is_right(left_source, choice) for left_source, choice in rows), len(rows)


def judge(connection: sqlite3.Connection, rater: Rater, above: float) -> None:
    """Once all tests are answered: on to the study, if more than this share of them is right; otherwise thanks."""
    right, answered = qualification_score(connection, rater.id)
    (tests,) = connection.execute("SELECT count(*) FROM comparison WHERE kind = 'qualification'").fetchone()
    if answered == tests:
        state = "rating" if right > above * tests + 1e-9 else "declined"
        connection.execute("UPDATE rater SET state = ? WHERE id = ?", (state, rater.id))


def start(study: StudyFile, rater: Rater) -> None:
    """The instructions are read: on to the qualification, or to the study if it has none."""
    (tests,) = study.reader.execute("SELECT count(*) FROM comparison WHERE kind = 'qualification'").fetchone()
    with study.writing() as connection:
        connection.execute(
            "UPDATE rater SET state = ? WHERE id = ? AND state = 'invited'",
            ("qualifying" if tests else "rating", rater.id),
        )
