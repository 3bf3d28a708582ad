"""Pages of comparisons: who gets which, for how long, and how a page with its votes comes back."""

import random
import sqlite3
from collections import Counter
from dataclasses import dataclass
from typing import Any

from evaluation.human.site.links import Rater
from evaluation.human.study.design import CHECK, GOLD, ITEM, ITEMS_A_PAGE, QUALIFICATION
from evaluation.human.study.file import StudyFile

COMPARISONS_A_PAGE = ITEMS_A_PAGE + 1
SIDES = ("left", "right")


@dataclass(frozen=True)
class ComparisonView:
    """One comparison as a rater sees it: neither where the texts come from, nor whether it is a check."""

    place: int
    context: str
    left: str
    right: str
    choice: str | None


@dataclass(frozen=True)
class Page:
    id: int
    kind: str
    comparisons: list[ComparisonView]


@dataclass(frozen=True)
class Progress:
    """Of one rater: comparisons that were sent, and how many there can still be."""

    sent: int
    left: int

    @property
    def total(self) -> int:
        return self.sent + self.left


def page_for(study: StudyFile, rater: Rater, now: float) -> Page | None:
    """The page that a rater has begun, otherwise a new one; None if there is nothing to rate at present."""
    row = unfinished(study.reader, rater)
    lease = float(study.settings["lease_seconds"])
    if row is None or row["state"] != "open" or row["lease_until"] - now < lease / 2:
        with study.writing(votes=False) as connection:
            row = unfinished(connection, rater)  # another tab may have been faster
            if row is not None and not hold(connection, row, now + lease):
                row = None
            if row is None:
                release_expired(connection, now)
                if not begin(connection, study.settings, rater, now + lease):
                    return None
                row = unfinished(connection, rater)
    return None if row is None else Page(row["id"], row["kind"], views(study.reader, row["id"]))


def unfinished(connection: sqlite3.Connection, rater: Rater) -> sqlite3.Row | None:
    return connection.execute("SELECT * FROM page WHERE rater = ? AND state != 'sent'", (rater.id,)).fetchone()


def views(connection: sqlite3.Connection, page: int) -> list[ComparisonView]:
    rows = connection.execute(
        "SELECT place, context, left_text, right_text, choice FROM slot JOIN comparison ON comparison.id = comparison "
        "WHERE page = ? ORDER BY place",
        (page,),
    )
    return [ComparisonView(*row) for row in rows]


def begin(connection: sqlite3.Connection, settings: dict[str, Any], rater: Rater, until: float) -> bool:
    """A new page, whose items are this rater's until then; False if there is none to give."""
    kind = "rating" if rater.state == "rating" else "qualification"
    chosen = items_for(connection, settings, rater) if kind == "rating" else tests_for(connection, rater)
    if not chosen:
        return False
    page = connection.execute(
        "INSERT INTO page (rater, kind, state, lease_until) VALUES (?, ?, 'open', ?)", (rater.id, kind, until)
    ).lastrowid
    slots = [(name, ITEM if kind == "rating" else QUALIFICATION) for name in chosen]
    if kind == "rating":
        take(connection, chosen)
        slots.append((check_for(connection, rater), CHECK))
    random.Random(f"{settings['seed']} {rater.id} {page}").shuffle(slots)
    connection.executemany(
        "INSERT INTO slot (page, place, rater, comparison, kind) VALUES (?, ?, ?, ?, ?)",
        [(page, place, rater.id, comparison, kind) for place, (comparison, kind) in enumerate(slots, 1)],
    )
    return True


UNSEEN = "id NOT IN (SELECT comparison FROM slot WHERE rater = ? AND kind = ?)"


def items_for(connection: sqlite3.Connection, settings: dict[str, Any], rater: Rater) -> list[int]:
    """Items that wait for the most raters first, none that this one has had."""
    most = settings["most_pages"]
    if most is not None:
        (pages,) = connection.execute(
            "SELECT count(*) FROM page WHERE rater = ? AND kind = 'rating'", (rater.id,)
        ).fetchone()
        if pages >= most:
            return []
    rows = connection.execute(
        f"SELECT id FROM comparison WHERE kind = 'item' AND free > 0 AND {UNSEEN} ORDER BY free DESC, id LIMIT ?",
        (rater.id, ITEM, ITEMS_A_PAGE),
    )
    return [number for (number,) in rows]


def tests_for(connection: sqlite3.Connection, rater: Rater) -> list[int]:
    rows = connection.execute(
        f"SELECT id FROM comparison WHERE kind = 'qualification' AND {UNSEEN} ORDER BY id LIMIT ?",
        (rater.id, QUALIFICATION, COMPARISONS_A_PAGE),
    )
    return [number for (number,) in rows]


def check_for(connection: sqlite3.Connection, rater: Rater) -> int:
    """The check that this rater has seen least often; different raters begin at different ones."""
    checks = [number for (number,) in connection.execute("SELECT id FROM comparison WHERE kind = 'check' ORDER BY id")]
    seen = Counter(
        number
        for (number,) in connection.execute(
            "SELECT comparison FROM slot WHERE rater = ? AND kind = 'check'", (rater.id,)
        )
    )
    first = rater.id * 7 % len(checks)
    return min(checks[first:] + checks[:first], key=lambda number: seen[number])


def take(connection: sqlite3.Connection, items: list[int]) -> None:
    connection.executemany("UPDATE comparison SET free = free - 1 WHERE id = ?", [(item,) for item in items])


def release_expired(connection: sqlite3.Connection, now: float) -> None:
    """Gives the items of pages whose raters have vanished to others."""
    for page in connection.execute("SELECT * FROM page WHERE state = 'open' AND lease_until <= ?", (now,)).fetchall():
        connection.execute("UPDATE page SET state = 'released' WHERE id = ?", (page["id"],))
        connection.execute(
            "UPDATE comparison SET free = free + 1 WHERE id IN "
            "(SELECT comparison FROM slot WHERE page = ? AND kind = 'item')",
            (page["id"],),
        )


def hold(connection: sqlite3.Connection, page: sqlite3.Row, until: float) -> bool:
    """Keeps a page for its rater; one whose items others have meanwhile taken is given up, and False returned."""
    if page["state"] == "released":
        rows = connection.execute(
            "SELECT comparison, free FROM slot JOIN comparison ON comparison.id = comparison "
            "WHERE page = ? AND slot.kind = 'item'",
            (page["id"],),
        ).fetchall()
        if any(free < 1 for _, free in rows):
            connection.execute("DELETE FROM page WHERE id = ?", (page["id"],))
            return False
        take(connection, [item for item, _ in rows])
    connection.execute("UPDATE page SET state = 'open', lease_until = ? WHERE id = ?", (until, page["id"]))
    return True


def progress(study: StudyFile, rater: Rater) -> Progress:
    """Comparisons that this rater has sent in the present stage, and the most that can follow."""
    kind = "rating" if rater.state == "rating" else "qualification"
    (sent, pages) = study.reader.execute(
        "SELECT count(*), count(DISTINCT page) FROM slot JOIN page ON page.id = page "
        "WHERE slot.rater = ? AND page.state = 'sent' AND page.kind = ?",
        (rater.id, kind),
    ).fetchone()
    if kind == "qualification":
        (all_of_them,) = study.reader.execute("SELECT count(*) FROM comparison WHERE kind = ?", (kind,)).fetchone()
        return Progress(sent, all_of_them - sent)
    (free,) = study.reader.execute(
        "SELECT count(*) FROM comparison WHERE kind = 'item' AND free > 0 "
        "AND id NOT IN (SELECT comparison FROM slot WHERE rater = ? AND kind = 'item')",
        (rater.id,),
    ).fetchone()
    (begun,) = study.reader.execute(
        "SELECT count(*) FROM slot JOIN page ON page.id = page WHERE slot.rater = ? AND page.state != 'sent'",
        (rater.id,),
    ).fetchone()
    left = begun + free + -(-free // ITEMS_A_PAGE)
    most = study.settings["most_pages"]
    return Progress(sent, left if most is None else min(left, (most - pages) * COMPARISONS_A_PAGE))


def is_right(left_source: str, choice: str) -> bool:
    """Of a comparison with a real text: was it the one that was chosen?"""
    return (left_source == GOLD) == (choice == "left")
