"""Prepares a human A/B study: pairs of completions of two models for the same contexts, in one file.

  python evaluation/human/prepare.py --a results/samples:base --b results/samples:chosen --gold results/samples \\
      --items 333 --raters 30 --output study.db
  python evaluation/human/serve.py --study study.db --port 8000

A source is a folder that sample_joint.py made, and which of its texts: base, chosen, best, worst or real. --a is model
1 of the paper's table, the baseline; --b model 2. --gold are the real completions, of samples or of a windows store.
Every page of the study has three items and one attention check: a real continuation against one that belongs to another
context, its words shuffled. Raters first have to tell real continuations from those of --qualification.
Personal links of raters go to OUTPUT.links.csv, and more of them are made with invite.py.
"""

import argparse
import os
import secrets
import sys
import time
from collections.abc import Sequence
from dataclasses import astuple
from typing import Any

from evaluation.human.site.links import Link, digest, invite, new_token, write_links
from evaluation.human.study.design import ITEM, Comparison, Sizes, make_comparisons
from evaluation.human.study.file import Study, create
from evaluation.human.study.sources import Source, context_lengths, read_gold, read_source
from pipeline.runtime import files
from pipeline.runtime.command_line import Parser
from pipeline.runtime.errors import UserError, exit_with


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    options = parse(arguments)
    first, second = read_source("--a", options.a), read_source("--b", options.b)
    sizes = Sizes(options.items, options.qualification_items, options.checks)
    gold = read_gold(options.gold, lambda: context_lengths("--a", options.a), sizes.of_checks + sizes.qualification)
    base = read_source("--qualification", options.qualification) if options.qualification else first
    comparisons = make_comparisons(first, second, gold, base, sizes, options.decoys == "shuffled", options.seed)
    organiser = new_token()
    links = write(options, comparisons, settings_of(options, arguments, first, second, organiser))
    write_links(f"{options.output}.links.csv", links)
    describe(Study(options.output), options, comparisons, f"{options.url.rstrip('/')}/o/{organiser}")
    return 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser(__doc__)
    parser.add_argument("--a", required=True, metavar="SAMPLES:TEXT", help="model 1, the baseline")
    parser.add_argument("--b", required=True, metavar="SAMPLES:TEXT", help="model 2, which is compared with it")
    parser.add_argument("--gold", required=True, metavar="WINDOWS_OR_SAMPLES", help="real completions")
    parser.add_argument("--qualification", metavar="SAMPLES:TEXT", help="told from real ones (default: --a)")
    parser.add_argument("--name_a", metavar="NAME", help="of model 1 in tables (default: by its text)")
    parser.add_argument("--name_b", metavar="NAME", help="of model 2")
    parser.add_argument("--title", default="Human comparison", help="of the table")
    parser.add_argument("--items", type=int, default=333, metavar="N", help="comparisons of the models (default: 333)")
    parser.add_argument("--votes", type=int, default=3, metavar="N", help="raters of each item (default: 3)")
    parser.add_argument("--qualification_items", type=int, default=12, metavar="N", help="(default: 12; 0 for none)")
    parser.add_argument(
        "--pass_above", type=float, default=2 / 3, metavar="SHARE", help="of them right (default: two thirds)"
    )
    parser.add_argument("--checks", type=int, metavar="N", help="different ones (default: a third of the items)")
    parser.add_argument(
        "--decoys", choices=("shuffled", "other"), default="shuffled", help="wrong answers of checks, words in disorder"
    )
    parser.add_argument("--raters", type=int, default=0, metavar="N", help="personal links to make (default: 0)")
    parser.add_argument("--days", type=float, default=14, metavar="N", help="until links expire (default: 14)")
    parser.add_argument("--most_pages", type=int, metavar="N", help="that one rater may rate (default: all)")
    parser.add_argument(
        "--lease_minutes", type=float, default=30, metavar="N", help="a page is kept for its rater (default: 30)"
    )
    parser.add_argument("--url", default="http://localhost:8000", help="where the site will be, for the links")
    parser.add_argument("--seed", type=int, default=0, help="of sides and order (default: 0)")
    parser.add_argument("--output", required=True, metavar="FILE", help="the study, an SQLite file that is not there")
    options = parser.parse_args(arguments)
    least = {"items": 1, "votes": 1, "checks": 1, "most_pages": 1, "raters": 0, "qualification_items": 0}
    for flag, number in least.items():
        if getattr(options, flag) is not None and getattr(options, flag) < number:
            raise UserError(f"--{flag} {getattr(options, flag)}: at least {number}")
    for flag in ("days", "lease_minutes"):
        if not 0 < getattr(options, flag) < 1e5:
            raise UserError(f"--{flag} {getattr(options, flag)}: above 0 and below 100,000")
    if not 0 <= options.pass_above < 1:
        raise UserError(f"--pass_above {options.pass_above}: a share, at least 0 and below 1")
    if os.path.exists(options.output):
        raise UserError(f"--output {options.output}: there is something already: votes are not overwritten")
    return options


def settings_of(
    options: argparse.Namespace, arguments: list[str], first: Source, second: Source, organiser: str
) -> dict[str, Any]:
    return {
        "title": options.title,
        "model1": options.name_a or first.label,
        "model2": options.name_b or second.label,
        "seed": options.seed,
        "votes": options.votes,
        "pass_above": options.pass_above,
        "lease_seconds": options.lease_minutes * 60,
        "most_pages": options.most_pages,
        "command": ["evaluation/human/prepare.py", *arguments],
        "organiser_digest": digest(organiser),
        "form_key": secrets.token_hex(32),
    }


def write(options: argparse.Namespace, comparisons: list[Comparison], settings: dict[str, Any]) -> list[Link]:
    """The whole study under another name first: what is killed half-way leaves no half of a study."""
    temporary = f"{options.output}.tmp"
    for name in (temporary, f"{temporary}-wal", f"{temporary}-shm"):
        files.remove(name)
    study = create(temporary, settings)
    with study.writing() as connection:
        connection.executemany(
            "INSERT INTO comparison (kind, window_id, context, left_text, right_text, left_source, right_source, free) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [(*astuple(one), options.votes if one.kind == ITEM else 0) for one in comparisons],
        )
    links = invite(study, options.raters, options.days, options.url, time.time())
    study.close()
    os.replace(temporary, options.output)
    return links


def describe(study: Study, options: argparse.Namespace, comparisons: list[Comparison], organiser: str) -> None:
    kinds = {kind: sum(one.kind == kind for one in comparisons) for kind in ("item", "check", "qualification")}
    print(f"study {options.output}: {study.settings['model1']} against {study.settings['model2']}")
    print(f"  items      {kinds['item']:,}, {options.votes} raters each")
    print(f"  checks     {kinds['check']:,}, qualification {kinds['qualification']:,}")
    print(f"  raters     {options.raters:,} links in {options.output}.links.csv, {options.days:g} days long")
    print(f"  overview   {organiser}")
    print("  keep both to yourself: the study does not hold them, and who has a link can use it")


if __name__ == "__main__":
    exit_with(main)
