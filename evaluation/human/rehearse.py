"""Rates a copy of a study with scripted raters, and analyses it: what the table will be like, before anyone is invited.

  python evaluation/human/rehearse.py --study study.db --prefers 0.7 --output results/rehearsal

Raters of a program go through the study as people would, qualification and attention checks included. In the items they
prefer model 2 as often as --prefers says, and on a share of the pages they click without reading (--careless). So one
sees how many items and raters a preference of that size takes to be noticed. The study itself is left alone; human.json
says that its votes are a program's, and they decide no finding.
"""

import os
import random
import sqlite3
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evaluation.human import analyse
from evaluation.human.site.assignment import page_for
from evaluation.human.site.ballots import receive, start
from evaluation.human.site.links import Rater
from evaluation.human.study.design import GOLD, MODEL_1, MODEL_2
from evaluation.human.study.file import StudyFile, connect
from pipeline.runtime.errors import UserError, exit_with
from pipeline.runtime.settings import Settings, read_settings, setting

REHEARSED = "rehearsed.db"


@dataclass(frozen=True, kw_only=True)
class RehearsalSettings(Settings):
    """A study, how its scripted raters behave, and where the table goes."""

    study: str = setting(help="that prepare.py made; it is copied, not changed", metavar="FILE")
    output: str = setting(help="where the copy and human.json go", metavar="DIR")
    prefers: float = setting(0.5, help="the share of items in which a rater prefers model 2")
    careless: float = setting(0.1, help="the share of pages that a rater does not read")
    seed: int = setting(0, help="other votes for every seed")

    def check(self) -> None:
        for name, share in (("prefers", self.prefers), ("careless", self.careless)):
            if not 0 <= share <= 1:
                raise UserError(f"--{name} {share}: a share, from 0 to 1")


def main(arguments: Sequence[str] | None = None) -> int:
    settings = read_settings(RehearsalSettings, sys.argv[1:] if arguments is None else arguments, __doc__)
    analyse.describe(rehearse(settings), settings.output)
    return 0


def rehearse(settings: RehearsalSettings) -> dict[str, Any]:
    """What human.json says of the copy, rated by all raters that the study has invited, a page each in turn."""
    study = copied(StudyFile(settings.study), os.path.join(settings.output, REHEARSED))
    rng = random.Random(settings.seed)
    at_work = [number for (number,) in study.reader.execute("SELECT id FROM rater ORDER BY id")]
    for number in at_work:
        start(study, rater_of(study.reader, number))
    while at_work:
        at_work = [number for number in at_work if rates_a_page(study, rater_of(study.reader, number), settings, rng)]
    study.close()
    return analyse.analyse(analyse.AnalyseSettings(study=(study.path,), output=settings.output, scripted=True))


def copied(study: StudyFile, path: str) -> StudyFile:
    """A copy of a study that has no votes yet; one that an earlier rehearsal left is replaced."""
    if study.reader.execute("SELECT 1 FROM page WHERE state = 'sent'").fetchone():
        raise UserError(f"--study {study.path}: people have rated it already: rehearse before they are invited")
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    for name in (path, f"{path}-wal", f"{path}-shm"):
        if os.path.lexists(name):
            os.unlink(name)
    copy = connect(path)
    study.reader.backup(copy)
    copy.close()
    return StudyFile(path)


def rates_a_page(study: StudyFile, rater: Rater, settings: RehearsalSettings, rng: random.Random) -> bool:
    """A rater's next page; False if there is nothing left for them."""
    page = page_for(study, rater, 0.0)
    if page is None:
        return False
    careless = rng.random() < settings.careless
    choices = {}
    for place, *sides in sides_of(study.reader, page.id):
        better = GOLD if GOLD in sides else MODEL_2 if rng.random() < settings.prefers else MODEL_1
        wanted = rng.choice(sides) if careless else better
        choices[place] = "left" if sides[0] == wanted else "right"
    receive(study, rater, page.id, choices, 0.0)
    return True


def rater_of(connection: sqlite3.Connection, number: int) -> Rater:
    """As they are now: passing the qualification changes a rater's state."""
    row = connection.execute("SELECT id, code, expires, state FROM rater WHERE id = ?", (number,)).fetchone()
    return Rater(*row)


def sides_of(connection: sqlite3.Connection, page: int) -> list[tuple[int, str, str]]:
    """The places of a page, and where the left and the right text of each come from."""
    rows = connection.execute(
        "SELECT place, left_source, right_source FROM slot JOIN comparison ON comparison.id = comparison "
        "WHERE page = ? ORDER BY place",
        (page,),
    )
    return [tuple(row) for row in rows]


if __name__ == "__main__":
    exit_with(main)
