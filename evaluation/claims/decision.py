"""How a finding is decided: by intervals on differences, never by hand. Pure functions.

A claim has parts, each a difference with a 95 % interval and a line that it must be above. A part is seen if the
interval is above the line, not seen if it is below, and otherwise cannot be told. A claim is seen if all of its parts
are, and not seen if one of them is not. Of many parts one lies on the wrong side by accident more often than a single
one would: look at how many there are.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evaluation.detection.accuracy import interval

SEEN, NOT_SEEN, CANNOT_TELL = "seen", "not seen", "cannot tell"
PAIRED, INDEPENDENT = "paired windows", "independent intervals"
POINTS, PERCENT, NATS, SHARE = "points", "percent", "nats", "share"  # units of differences
Z = 1.959963984540054  # below it lie 97.5 % of a normal distribution


@dataclass(frozen=True)
class Measured:
    """A number with its interval; where it is a mean over windows, these too."""

    value: float
    low: float
    high: float
    windows: tuple[NDArray[Any], NDArray[np.float64]] | None = None


@dataclass(frozen=True)
class Part:
    """One difference: what it is of, its interval, the line that it must be above, and what the interval rests on."""

    what: str
    value: float
    low: float
    high: float
    line: float = 0.0
    unit: str = POINTS
    over: str = INDEPENDENT

    @property
    def verdict(self) -> str:
        return SEEN if self.low > self.line else NOT_SEEN if self.high < self.line else CANNOT_TELL


@dataclass(frozen=True)
class Claim:
    """A finding of the paper: what it says, where, and with which numbers."""

    name: str
    claim: str
    where: str
    paper: str


@dataclass(frozen=True)
class Finding:
    """A claim, what was measured, and why it cannot be told, where that has other reasons than the intervals."""

    claim: Claim
    parts: list[Part] = field(default_factory=list)
    lacking: str | None = None

    @property
    def verdict(self) -> str:
        verdicts = {part.verdict for part in self.parts}
        if NOT_SEEN in verdicts:
            return NOT_SEEN
        return SEEN if verdicts == {SEEN} and not self.lacking else CANNOT_TELL

    @property
    def reason(self) -> str | None:
        """Why it cannot be told."""
        if self.verdict != CANNOT_TELL:
            return None
        if self.lacking:
            return self.lacking
        unclear = [part.what for part in self.parts if part.verdict == CANNOT_TELL]
        more = f" and {len(unclear) - 2} more" if len(unclear) > 2 else ""
        return f"the interval includes both: {'; '.join(unclear[:2])}{more}"

    def described(self) -> dict[str, Any]:
        """As findings.json has it."""
        parts = [asdict(part) | {"verdict": part.verdict} for part in self.parts]
        return asdict(self.claim) | {"verdict": self.verdict, "reason": self.reason, "parts": parts}


def contrast(terms: Sequence[tuple[float, Measured]]) -> tuple[Measured, str]:
    """The sum of weights times measurements, with its interval; and whether that is paired.

    Over the same windows the sum is taken window by window, and two windows of each extreme are added as in
    `interval`. Otherwise the measurements count as independent, and their intervals are put together without more
    than their ends (Zou and Donner 2008, for two proportions Newcombe's): each end of the sum is as far from it as
    the root of the summed squares of the terms' distances on that side.
    """
    value = sum(weight * term.value for weight, term in terms)
    windows = [term.windows for _, term in terms if term.windows is not None]
    if len(windows) == len(terms) and all(np.array_equal(names, windows[0][0]) for names, _ in windows):
        sums = sum((weight * own for (weight, _), (_, own) in zip(terms, windows, strict=True)), np.zeros(1))
        middle = sum(weight for weight, _ in terms) / 2  # the sum of shares lies within half on both sides of it
        half = sum(abs(weight) for weight, _ in terms) / 2
        low, high = (half * (2 * end - 1) + middle for end in interval(((sums - middle) / half + 1) / 2))
        return Measured(value, min(low, value), max(high, value)), PAIRED
    below, above = 0.0, 0.0
    for weight, term in terms:
        ends = sorted((weight * (term.value - term.low), weight * (term.value - term.high)))
        above += ends[0] ** 2
        below += ends[1] ** 2
    return Measured(value, value - below**0.5, value + above**0.5), INDEPENDENT


def part_of(what: str, terms: Sequence[tuple[float, Measured]], line: float = 0.0, unit: str = POINTS) -> Part:
    """A contrast as a part of a claim."""
    found, over = contrast(terms)
    return Part(what, found.value, found.low, found.high, line, unit, over)


def above(what: str, higher: Measured, lower: Measured, line: float = 0.0) -> Part:
    """That one measurement is above another, or at most `-line` below it."""
    return part_of(what, [(1, higher), (-1, lower)], line)


def from_error(what: str, mean: float, error: float, line: float = 0.0, unit: str = NATS, over: str = PAIRED) -> Part:
    """A mean and its standard error."""
    return Part(what, mean, mean - Z * error, mean + Z * error, line, unit, over)


def flipped(part: Part) -> Part:
    """Of a difference that must be below its line: its negative, which must be above."""
    return Part(part.what, -part.value, -part.high, -part.low, -part.line, part.unit, part.over)
