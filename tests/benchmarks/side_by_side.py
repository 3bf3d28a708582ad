"""What the benchmarks share: one text for every contender, turns taken in one run, and a table of ratios.

The machines that this runs on are shared and noisy, so a number alone says little. Contenders take turns, several
rounds long, and a ratio is taken within a round: what slows a whole round down falls out of it.
Every turn is a process of its own, forked from this one, which has imported everything and done nothing. Tokenising
leaves a heap behind in pieces, and after a few turns in one process everyone would be at half speed.
"""

import contextlib
import gc
import importlib
import itertools
import multiprocessing
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import TypeVar

from pipeline.text.builtin_corpora import python_docs
from pipeline.text.tokenizer import train_tokenizer

DATA = Path("../shared/data")  # real books, where they are to be had; never part of the repository
DOCUMENT_CHARACTERS = 8_000
TRAINED_PIECES = 8_192
T = TypeVar("T")

Seconds = dict[str, list[float]]  # of each contender, one number a round


def print_header(title: str) -> None:
    """Says what was measured, on what, and when: without it a ratio cannot be compared with another day's."""
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("pyarrow", "tokenizers"))
    machine = f"{_processor()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    print(f"\n{title}")
    print(f"{machine}; Python {platform.python_version()}, {versions}; {date.today().isoformat()}", flush=True)


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def books() -> list[str]:
    """The real books where the data folder is there, the Python reference otherwise."""
    paths = sorted(DATA.glob("books/train/*.txt"))
    return [path.read_text(encoding="utf-8") for path in paths] or list(python_docs("train"))


def tokenizer_folder(scratch: Path) -> str:
    """GPT-2's tokenizer where the data folder is there, otherwise one trained on the text that stands in for it."""
    folder = DATA / "gpt2-bpe"
    if folder.is_dir():
        return str(folder)
    trained = scratch / "tokenizer"
    if not trained.exists():
        apart(lambda: train_tokenizer(books(), TRAINED_PIECES).save(str(trained)))  # threads do not survive a fork
    return str(trained)


def documents(megabytes: float) -> Iterator[str]:
    """Documents of a few pages until there are so many megabytes; a numbered first line keeps them all different."""
    text = "\n\n".join(books())
    size = 0
    for number, start in enumerate(itertools.cycle(range(0, len(text), DOCUMENT_CHARACTERS))):
        if size >= megabytes * 1e6:
            return
        document = f"Document {number}.\n" + text[start : start + DOCUMENT_CHARACTERS]
        size += len(document.encode())
        yield document


def apart(work: Callable[[], T]) -> T:
    """Does the work in a forked process and returns what it returns."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=lambda: sender.send(work()))
    process.start()
    sender.close()  # so that the end of a process that fails ends the wait for it
    try:
        return receiver.recv()
    except EOFError:
        raise SystemExit("a contender failed: see above") from None
    finally:
        process.join()


def import_what_is_used(work: Callable[[], object]) -> None:
    """Imports what `work` imports while it runs, so that no turn is charged for it."""

    def modules() -> list[str]:
        work()
        return list(sys.modules)

    for name in apart(modules):
        with contextlib.suppress(ImportError):  # some are only to be had under the name of the module they are in
            importlib.import_module(name)


def seconds_of(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def take_turns(
    contenders: dict[str, Callable[[], object]], rounds: int, between: Callable[[], object] = lambda: None
) -> Seconds:
    """Times every contender once a round; the first one changes, so that no one always follows the same one.

    `between` runs after each and is not timed: what one leaves on disk must not slow the next one down.
    """
    seconds: Seconds = {name: [] for name in contenders}
    names = list(contenders)
    gc.freeze()  # a collection in a forked process would copy all that is shared with this one
    for number in range(rounds):
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            seconds[name].append(apart(lambda name=name: seconds_of(contenders[name])))
            between()
            show(f"round {number + 1} of {rounds}: {name}, {seconds[name][-1]:.2f} s")
    show("")
    gc.unfreeze()
    return seconds


def show(line: str) -> None:
    """Where a long benchmark is, for whoever waits at a terminal."""
    if sys.stderr.isatty():
        print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Duel:
    """Two contenders, and how many times as fast the first should be."""

    ours: str
    theirs: str
    target: str = ""


def print_duels(seconds: Seconds, duels: Sequence[Duel], amount: float, unit: str) -> None:
    """A line a duel: both speeds in their median rounds, and the median and range of the rounds' own ratios."""
    rows = [("ours", "against", f"ours, {unit}", f"theirs, {unit}", "ratio", "least to most", "target")]
    for duel in duels:
        speeds = [amount / statistics.median(seconds[name]) for name in (duel.ours, duel.theirs)]
        pairs = zip(seconds[duel.ours], seconds[duel.theirs], strict=True)
        ratios = [theirs / ours for ours, theirs in pairs]
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        numbers = (*(f"{speed:,.2f}" for speed in speeds), f"{statistics.median(ratios):.2f}", spread)
        rows.append((duel.ours, duel.theirs, *numbers, duel.target or "-"))
    print_table(rows, words=2)


def print_table(rows: Sequence[Sequence[str]], words: int = 1) -> None:
    """Rows of equal length in columns: the first `words` of them to the left, the others, numbers, to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.ljust(width) if place < words else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  " + "  ".join(cells).rstrip(), flush=True)
