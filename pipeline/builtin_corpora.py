"""Corpora that need no download: sums, whose whole distribution is known, and the Python reference.

`builtin:sums[:digits=3][:lines=N]` is lines like `042+979=1021`, numbers padded with zeros, most significant digit
first: a left-to-right model must guess the carry before it has seen the digits that decide it.
`builtin:python-docs` is the reference that every CPython carries in `pydoc_data.topics`.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pipeline.errors import UserError
from pipeline.hashing import mix

SPLITS = {"train": range(8), "valid": range(8, 9), "test": range(9, 10)}  # tenths of the population
ALPHABET = "0123456789+=\n"
LINES = {"train": 100_000, "valid": 10_000, "test": 10_000}
LINES_AT_ONCE = 1 << 14


@dataclass(frozen=True)
class Sums:
    """Additions of two numbers of `digits` digits, drawn evenly and independently from the pairs of a split.

    The pairs are divided among the splits by a hash, so no sum of `valid` or `test` is ever seen in `train`.
    """

    digits: int = 3
    lines: int | None = None

    @property
    def line_length(self) -> int:
        return 3 * self.digits + 4

    @property
    def context_length(self) -> int:
        """Up to and with the equals sign: what comes after it has one right answer."""
        return 2 * self.digits + 2

    def texts(self, split: str) -> Iterator[str]:
        left = self.lines if self.lines is not None else LINES[split]
        counter = np.uint64(0)
        while left > 0:
            address = np.arange(LINES_AT_ONCE, dtype=np.uint64) + counter
            counter += np.uint64(LINES_AT_ONCE)
            pairs = mix(address, seed=self.digits) % np.uint64(100**self.digits)
            pairs = pairs[np.isin(mix(pairs, seed=1 << 32) % np.uint64(10), SPLITS[split])][:left]
            left -= len(pairs)
            yield self._write(pairs)

    def _write(self, pairs: np.ndarray) -> str:
        a, b = np.divmod(pairs, np.uint64(10**self.digits))
        line = np.full((len(pairs), self.line_length), ord("\n"), np.uint8)
        d = self.digits
        for number, first, last in ((a, 0, d), (b, d + 1, 2 * d + 1), (a + b, 2 * d + 2, 3 * d + 3)):
            for column in range(last - 1, first - 1, -1):
                number, digit = np.divmod(number, np.uint64(10))
                line[:, column] = ord("0") + digit
        line[:, d], line[:, 2 * d + 1] = ord("+"), ord("=")
        return line.tobytes().decode("ascii")


def is_correct(line: str) -> bool:
    """Whether a line of `builtin:sums` is a true sum in the corpus's own form."""
    left, equals, right = line.removesuffix("\n").partition("=")
    a, plus, b = left.partition("+")
    if not (equals and plus and (a + b + right).isdecimal()) or len(a) != len(b) or len(right) != len(a) + 1:
        return False
    return int(a) + int(b) == int(right)


def python_docs(split: str) -> Iterator[str]:
    """The topics of Python's reference; a topic's split is a hash of its name."""
    from pydoc_data.topics import topics

    for name in sorted(topics):
        if hashlib.sha256(name.encode()).digest()[0] % 10 in SPLITS[split]:
            yield topics[name]


def parse_sums(url: str) -> Sums:
    """The sums that a `builtin:sums:…` input describes."""
    values = {}
    for option in url.split(":")[2:]:
        name, _, value = option.partition("=")
        if name not in ("digits", "lines") or not value.isdecimal() or int(value) < 1:
            raise UserError(f"--input {url}: {option!r} is not digits=N or lines=N with N of at least 1")
        values[name] = int(value)
    if values.get("digits", 1) > 9:
        raise UserError(f"--input {url}: at most 9 digits")
    return Sums(**values)


def builtin_documents(url: str, split: str) -> Iterator[Iterator[str]]:
    """The documents of a built-in corpus, each as pieces of text."""
    if split not in SPLITS:
        raise UserError(f"--split {split}: {url} has the splits {', '.join(SPLITS)}")
    name = url.split(":")[1]
    if name == "sums":
        yield parse_sums(url).texts(split)
    elif url == "builtin:python-docs":
        yield from (iter([text]) for text in python_docs(split))
    else:
        raise UserError(f"--input {url}: the built-in corpora are builtin:sums and builtin:python-docs")
