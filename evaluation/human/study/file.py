"""A study is one SQLite file: its comparisons, raters, pages and votes, and how they are read and written."""

import json
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from pipeline.runtime.errors import ResumableError, UserError

APPLICATION_ID = 0x5245424D  # "REBM", in the header of the file
BUSY_SECONDS = 20.0

# `free` counts the raters that an item still waits for: the database itself refuses one too many, as the two unique
# indexes refuse a second vote of the same rater and a second unfinished page.
SCHEMA = """
CREATE TABLE setting (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE comparison (
    id INTEGER PRIMARY KEY,
    kind TEXT NOT NULL CHECK (kind IN ('item', 'check', 'qualification')),
    window_id TEXT NOT NULL,
    context TEXT NOT NULL,
    left_text TEXT NOT NULL,
    right_text TEXT NOT NULL,
    left_source TEXT NOT NULL,
    right_source TEXT NOT NULL,
    free INTEGER NOT NULL CHECK (free >= 0)
);
CREATE TABLE rater (
    id INTEGER PRIMARY KEY,
    code TEXT NOT NULL UNIQUE,
    link_digest TEXT UNIQUE,
    expires REAL,
    state TEXT NOT NULL CHECK (state IN ('invited', 'qualifying', 'rating', 'declined'))
);
CREATE TABLE page (
    id INTEGER PRIMARY KEY,
    rater INTEGER NOT NULL REFERENCES rater,
    kind TEXT NOT NULL CHECK (kind IN ('rating', 'qualification')),
    state TEXT NOT NULL CHECK (state IN ('open', 'released', 'sent')),
    lease_until REAL,
    sent REAL,
    passed INTEGER,
    source TEXT UNIQUE
);
CREATE TABLE slot (
    page INTEGER NOT NULL REFERENCES page ON DELETE CASCADE,
    place INTEGER NOT NULL,
    rater INTEGER NOT NULL REFERENCES rater,
    comparison INTEGER NOT NULL REFERENCES comparison,
    kind TEXT NOT NULL,
    choice TEXT CHECK (choice IN ('left', 'right')),
    PRIMARY KEY (page, place)
);
CREATE INDEX waiting ON comparison (kind, free);
CREATE INDEX leases ON page (state, lease_until);
CREATE UNIQUE INDEX one_unfinished_page ON page (rater) WHERE state != 'sent';
CREATE UNIQUE INDEX one_vote ON slot (rater, comparison) WHERE kind != 'check';
CREATE INDEX seen ON slot (rater, kind, comparison);
"""


class UnwritableStudy(ResumableError):
    """The disk is full or cannot be written: nothing of what was to be kept is, and nothing else is lost."""


@contextmanager
def named(path: str) -> Iterator[None]:
    """What SQLite finds wrong with the disk, as an error of ours."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise UnwritableStudy(f"{path}: {error}") from None


class StudyFile:
    """An open study. Threads read side by side; writers wait for each other, and a commit is on the disk."""

    def __init__(self, path: str):
        if not os.path.isfile(path):
            raise UserError(f"--study {path}: no such file: evaluation/human/prepare.py makes one")
        self.path = path
        self._local = threading.local()
        self._writer = threading.Lock()
        try:
            (found,) = self.reader.execute("PRAGMA application_id").fetchone()
        except sqlite3.DatabaseError:
            found = None
        if found != APPLICATION_ID:
            raise UserError(f"--study {path}: not a study: evaluation/human/prepare.py makes one")
        rows = self.reader.execute("SELECT name, value FROM setting")
        self.settings: dict[str, Any] = {name: json.loads(value) for name, value in rows}

    @property
    def reader(self) -> sqlite3.Connection:
        """This thread's connection."""
        if not hasattr(self._local, "connection"):
            self._local.connection = connect(self.path)
        return self._local.connection

    def close(self) -> None:
        """Closes this thread's connection, which moves all that was written into the one file."""
        self.reader.close()
        del self._local.connection

    @contextmanager
    def writing(self, votes: bool = True) -> Iterator[sqlite3.Connection]:
        """One transaction: all of it is kept when the block ends, nothing if it fails.

        With FULL, what was acknowledged survives a power cut. NORMAL, for what is not a vote and can be done again,
        spares the wait for the disk: it survives the death of this process, and never leaves half a transaction.
        """
        connection = self.reader
        with self._writer, named(self.path):  # SQLite's own waiting is by polling, which is slow under load
            connection.execute(f"PRAGMA synchronous = {'FULL' if votes else 'NORMAL'}")
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:  # SQLite has ended it by itself if the disk is full
                    connection.execute("ROLLBACK")
                raise


def connect(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
    connection.row_factory = sqlite3.Row
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def create(path: str, settings: dict[str, Any]) -> StudyFile:
    """An empty study."""
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with named(path), closing(connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.executescript(f"BEGIN; {SCHEMA} COMMIT;")
        connection.executemany(
            "INSERT INTO setting VALUES (?, ?)", [(name, json.dumps(value)) for name, value in settings.items()]
        )
    return StudyFile(path)
