"""Personal links: unguessable, expiring, kept as digests; and the sessions and form tokens that they open."""

import csv
import hashlib
import hmac
import os
import secrets
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from evaluation.human.study.file import StudyFile

DAY = 86_400.0


@dataclass(frozen=True)
class Link:
    code: str
    url: str
    expires: float


@dataclass(frozen=True)
class Rater:
    """Who a session belongs to: a code and a state, nothing else is known of a person."""

    id: int
    code: str
    expires: float
    state: str


def new_token() -> str:
    return secrets.token_urlsafe(24)


def digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def make_links(study: StudyFile, count: int, days: float, base: str, now: float) -> list[Link]:
    """Links for so many new raters. The study keeps their digests only: this is the one time that they are known."""
    made = []
    with study.writing() as connection:
        (known,) = connection.execute("SELECT count(*) FROM rater").fetchone()
        for number in range(known + 1, known + count + 1):
            token, code, expires = new_token(), f"R{number:03d}", now + days * DAY
            connection.execute(
                "INSERT INTO rater (code, link_digest, expires, state) VALUES (?, ?, ?, 'invited')",
                (code, digest(token), expires),
            )
            made.append(Link(code, f"{base.rstrip('/')}/r/{token}", expires))
    return made


def write_links(path: str, links: Sequence[Link]) -> None:
    """As CSV, added to those that are there, for the owner's eyes only."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(descriptor, "a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        if file.tell() == 0:
            writer.writerow(["rater", "link", "expires"])
        writer.writerows([link.code, link.url, day(link.expires)] for link in links)


def day(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M UTC")


def find_rater(connection: sqlite3.Connection, token: str) -> Rater | None:
    row = connection.execute(
        "SELECT id, code, expires, state FROM rater WHERE link_digest = ?", (digest(token),)
    ).fetchone()
    return None if row is None else Rater(**dict(row))


def new_session(token: str) -> str:
    """What the cookie holds: the link's token, and a part of its own for each time that it is opened."""
    return f"{token}.{secrets.token_urlsafe(12)}"


def token_of(session: str) -> str:
    return session.partition(".")[0]


def form_token(key: str, session: str) -> str:
    """What a form must carry to be believed: nobody can compute it who does not know the study's key."""
    return hmac.new(key.encode(), session.encode("utf-8", "replace"), hashlib.sha256).hexdigest()


def same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode())
