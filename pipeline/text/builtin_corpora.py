"""Corpora that need no download: two languages whose whole distribution is known, and the Python reference.

`builtin:sorting[:digits=6][:lines=N]` is lines like `350931=013359`: digits, and the same digits in order. A small
left-to-right model forgets or repeats some; a model that reads the whole line can count.
`builtin:sums[:digits=3][:lines=N]` is lines like `042+979=1021`, numbers padded with zeros, most significant digit
first: a left-to-right model must guess the carry before it has seen the digits that decide it.
`builtin:python-docs` is the reference that every CPython carries in `pydoc_data.topics`.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pipeline.runtime.errors import UserError
from pipeline.runtime.randomness import mix

SPLITS = {"train": range(8), "valid": range(8, 9), "test": range(9, 10)}  # tenths of the population
ALPHABET = "0123456789+=\n"
LINES = {"train": 100_000, "valid": 10_000, "test": 10_000}
LINES_AT_ONCE = 1 << 14


class Language(NamedTuple):
    """What a line is made of, and how it is written."""

    numbers: int
    digits: int  # of each number, unless the input says otherwise
    write: Callable[[np.ndarray, int], np.ndarray]  # addresses and digits to characters, one line a row


@dataclass(frozen=True)
class Lines:
    """Lines of one length, drawn evenly and independently from those of a split.

    Every line is the work of one number, its address. Addresses are divided among the splits by a hash, so no line of
    `valid` or `test` is ever seen in `train`.
    """

    language: str
    digits: int
    lines: int | None = None

    def texts(self, split: str) -> Iterator[str]:
        language = LANGUAGES[self.language]
        population = 10 ** (language.numbers * self.digits)
        left = self.lines if self.lines is not None else LINES[split]
        counter = np.uint64(0)
        while left > 0:
            draws = np.arange(LINES_AT_ONCE, dtype=np.uint64) + counter
            counter += np.uint64(LINES_AT_ONCE)
            addresses = mix(draws, seed=self.digits) % np.uint64(population)
            addresses = addresses[np.isin(mix(addresses, seed=1 << 32) % np.uint64(10), SPLITS[split])][:left]
            left -= len(addresses)
            yield language.write(addresses, self.digits).tobytes().decode("ascii")

    @property
    def line_length(self) -> int:
        return int(LANGUAGES[self.language].write(np.zeros(1, np.uint64), self.digits).shape[1])


def write_sorting(addresses: np.ndarray, digits: int) -> np.ndarray:
    """Digits, and the same digits in order."""
    given = written(addresses, digits)
    return np.hstack([given, signs(addresses, "="), np.sort(given, axis=1), signs(addresses, "\n")])


def write_sums(addresses: np.ndarray, digits: int) -> np.ndarray:
    """Additions of two numbers."""
    a, b = np.divmod(addresses, np.uint64(10**digits))
    left, right, total = written(a, digits), written(b, digits), written(a + b, digits + 1)
    return np.hstack([left, signs(a, "+"), right, signs(a, "="), total, signs(a, "\n")])


def written(numbers: np.ndarray, digits: int) -> np.ndarray:
    """Numbers as characters, most significant digit first, padded with zeros."""
    powers = np.uint64(10) ** np.arange(digits - 1, -1, -1, dtype=np.uint64)
    return (ord("0") + numbers[:, None] // powers % np.uint64(10)).astype(np.uint8)


def signs(numbers: np.ndarray, sign: str) -> np.ndarray:
    """One sign for each of the numbers."""
    return np.full((len(numbers), 1), ord(sign), np.uint8)


LANGUAGES = {"sorting": Language(1, 6, write_sorting), "sums": Language(2, 3, write_sums)}


def python_docs(split: str) -> Iterator[str]:
    """The topics of Python's reference; a topic's split is a hash of its name."""
    from pydoc_data.topics import topics

    for name in sorted(topics):
        if hashlib.sha256(name.encode()).digest()[0] % 10 in SPLITS[split]:
            yield topics[name]


def parse_lines(url: str) -> Lines | None:
    """The language of lines that a `builtin:…` input describes; None if it is not one."""
    kind, *rest = url.split(":")
    name, *options = rest or [""]
    if kind != "builtin" or name not in LANGUAGES:
        return None
    values = {"digits": LANGUAGES[name].digits}
    for option in options:
        key, _, value = option.partition("=")
        if key not in ("digits", "lines") or not value.isdecimal() or int(value) < 1:
            raise UserError(f"--input {url}: {option!r} is not digits=N or lines=N with N of at least 1")
        values[key] = int(value)
    if values["digits"] > 9:
        raise UserError(f"--input {url}: at most 9 digits")
    return Lines(name, **values)


def builtin_documents(url: str, split: str) -> Iterator[Iterator[str]]:
    """The documents of a built-in corpus, each as pieces of text."""
    if split not in SPLITS:
        raise UserError(f"--split {split}: {url} has the splits {', '.join(SPLITS)}")
    if lines := parse_lines(url):
        yield lines.texts(split)
    elif url == "builtin:python-docs":
        yield from (iter([text]) for text in python_docs(split))
    else:
        there = ", ".join(f"builtin:{name}" for name in (*LANGUAGES, "python-docs"))
        raise UserError(f"--input {url}: the built-in corpora are {there}")
