"""Prepares a human A/B study: pairs of completions of two models for the same contexts, in one file.

  python evaluation/human/prepare.py --a results/samples:base --b results/samples:chosen --gold results/samples \\
      --items 333 --raters 30 --output study.db
  python evaluation/human/serve.py --study study.db --port 8000

A source is a folder that sample_joint.py made, and which of its texts: base, chosen, best, worst or real; of a language
model alone (sample_joint.py without --energy), base. --a is model 1 of the paper's table, the baseline; --b model 2.
--gold are the real completions, of samples or of a windows store. Every page of the study has three items and one
attention check: a real continuation against one that belongs to another context, its words shuffled. Raters first have
to distinguish real continuations from those of --qualification. Personal links of raters go to OUTPUT.links.csv, and
more of them are made with invite.py.
"""

import os
import secrets
import sys
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import astuple, dataclass
from typing import Any

from evaluation.human.site.links import digest, make_links, new_token, write_links
from evaluation.human.study.completions import context_lengths, read_completions, read_gold
from evaluation.human.study.design import ITEM, Comparison, Sizes, make_comparisons
from evaluation.human.study.file import StudyFile, create
from pipeline.runtime import files
from pipeline.runtime.errors import UserError, exit_with
from pipeline.runtime.settings import Settings, read_settings, setting


@dataclass(frozen=True, kw_only=True)
class PrepareSettings(Settings):
    """Two models' completions, real ones, and how a study of them is made."""

    a: str = setting(help="model 1, the baseline", metavar="SAMPLES:TEXT")
    b: str = setting(help="model 2, which is compared with it", metavar="SAMPLES:TEXT")
    gold: str = setting(help="real completions", metavar="WINDOWS_OR_SAMPLES")
    qualification: str | None = setting(
        None, help="to be distinguished from real ones (default: --a)", metavar="SAMPLES:TEXT"
    )
    name_a: str | None = setting(None, help="of model 1 in tables (default: by its text)", metavar="NAME")
    name_b: str | None = setting(None, help="of model 2", metavar="NAME")
    title: str = setting("Human comparison", help="of the table")
    items: int = setting(333, help="comparisons of the models (default: 333)", metavar="N", least=1)
    votes: int = setting(3, help="raters of each item (default: 3)", metavar="N", least=1)
    qualification_items: int = setting(12, help="(default: 12; 0 for none)", metavar="N", least=0)
    pass_above: float = setting(2 / 3, help="of them right (default: two thirds)", metavar="SHARE")
    checks: int | None = setting(None, help="different ones (default: a third of the items)", metavar="N", least=1)
    decoys: str = setting("shuffled", help="wrong answers of checks, words in disorder", choices=("shuffled", "other"))
    raters: int = setting(0, help="personal links to make (default: 0)", metavar="N", least=0)
    days: float = setting(14.0, help="until links expire (default: 14)", metavar="N")
    most_pages: int | None = setting(None, help="that one rater may rate (default: all)", metavar="N", least=1)
    lease_minutes: float = setting(30.0, help="a page is kept for its rater (default: 30)", metavar="N")
    url: str = setting("http://localhost:8000", help="where the site will be, for the links")
    seed: int = setting(0, help="of sides and order (default: 0)")
    output: str = setting(help="the study, an SQLite file that is not there", metavar="FILE")

    def check(self) -> None:
        for flag, number in (("days", self.days), ("lease_minutes", self.lease_minutes)):
            if not 0 < number < 1e5:
                raise UserError(f"--{flag} {number}: above 0 and below 100,000")
        if not 0 <= self.pass_above < 1:
            raise UserError(f"--pass_above {self.pass_above}: a share, at least 0 and below 1")
        if os.path.exists(self.output):
            raise UserError(f"--output {self.output}: there is something already: votes are not overwritten")


@dataclass(frozen=True)
class Preparation:
    """A study that was made: its file, what is in it, and the organiser's link, which the file does not hold."""

    study: StudyFile
    comparisons: list[Comparison]
    overview: str


def main(arguments: Sequence[str] | None = None) -> int:
    settings = read_settings(PrepareSettings, sys.argv[1:] if arguments is None else arguments, __doc__)
    describe(prepare(settings), settings)
    return 0


def prepare(settings: PrepareSettings) -> Preparation:
    """Makes the study, and the links of its raters beside it."""
    first, second = read_completions("--a", settings.a), read_completions("--b", settings.b)
    sizes = Sizes(settings.items, settings.qualification_items, settings.checks)
    gold = read_gold(settings.gold, lambda: context_lengths("--a", settings.a), sizes.of_checks + sizes.qualification)
    base = read_completions("--qualification", settings.qualification) if settings.qualification else first
    comparisons = make_comparisons(first, second, gold, base, sizes, settings.decoys == "shuffled", settings.seed)
    organiser = new_token()
    write(settings, comparisons, facts_of(settings, first.label, second.label, organiser))
    return Preparation(StudyFile(settings.output), comparisons, f"{settings.url.rstrip('/')}/o/{organiser}")


def facts_of(settings: PrepareSettings, label_a: str, label_b: str, organiser: str) -> dict[str, Any]:
    """What the study's file has to know of itself."""
    return {
        "title": settings.title,
        "model1": settings.name_a or label_a,
        "model2": settings.name_b or label_b,
        "seed": settings.seed,
        "votes": settings.votes,
        "pass_above": settings.pass_above,
        "lease_seconds": settings.lease_minutes * 60,
        "most_pages": settings.most_pages,
        "command": ["evaluation/human/prepare.py", *settings.to_words()],
        "organiser_digest": digest(organiser),
        "form_key": secrets.token_hex(32),
    }


def write(settings: PrepareSettings, comparisons: list[Comparison], facts: dict[str, Any]) -> None:
    """The study, which comes last, and its links: what fails or is killed half-way leaves no half of a study."""
    temporary, file_of_links = f"{settings.output}.tmp", f"{settings.output}.links.csv"
    unfinished = (temporary, f"{temporary}-wal", f"{temporary}-shm")
    for name in unfinished:
        files.remove(name)
    try:
        with closing(create(temporary, facts)) as study:
            fill(study, comparisons, settings.votes)
            links = make_links(study, settings.raters, settings.days, settings.url, time.time())
        write_links(file_of_links, links)
        os.replace(temporary, settings.output)
    except BaseException:
        for name in (*unfinished, file_of_links):
            with suppress(OSError):
                files.remove(name)
        raise


def fill(study: StudyFile, comparisons: list[Comparison], votes: int) -> None:
    with study.writing() as connection:
        connection.executemany(
            "INSERT INTO comparison (kind, window_id, context, left_text, right_text, left_source, right_source, free) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [(*astuple(one), votes if one.kind == ITEM else 0) for one in comparisons],
        )


def describe(made: Preparation, settings: PrepareSettings) -> None:
    kinds = {kind: sum(one.kind == kind for one in made.comparisons) for kind in ("item", "check", "qualification")}
    facts = made.study.settings
    print(f"study {settings.output}: {facts['model1']} against {facts['model2']}")
    print(f"  items      {kinds['item']:,}, {settings.votes} raters each")
    print(f"  checks     {kinds['check']:,}, qualification {kinds['qualification']:,}")
    print(f"  raters     {settings.raters:,} links in {settings.output}.links.csv, {settings.days:g} days long")
    print(f"  overview   {made.overview}")
    print("  keep both to yourself: the study does not hold them, and who has a link can use it")


if __name__ == "__main__":
    exit_with(main)
