"""The pieces that a report's page is put together from, and how numbers are written in them."""

import math
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

NOTHING = "–"


@dataclass(frozen=True)
class Cell:
    """What stands in a cell: a text, the number behind it, small print below; a share colours it."""

    text: str
    value: float | int | None = None
    small: tuple[str, ...] = ()
    share: float | None = None
    tag: str = ""
    code: bool = False


@dataclass(frozen=True)
class Table:
    kind: ClassVar[str] = "table"
    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = ()

    @property
    def numeric(self) -> list[bool]:
        """For every column, whether numbers stand in it."""
        return [any(row[place].value is not None for row in self.rows) for place in range(len(self.columns))]

    @property
    def shaded(self) -> bool:
        return any(cell.share is not None for row in self.rows for cell in row)


@dataclass(frozen=True)
class Picture:
    kind: ClassVar[str] = "picture"
    source: str
    alt: str
    caption: str
    wide: bool = False


@dataclass(frozen=True)
class Paragraph:
    kind: ClassVar[str] = "words"
    text: str


@dataclass(frozen=True)
class Gap:
    """A part that is not there, and the commands that make it."""

    kind: ClassVar[str] = "missing"
    what: str
    commands: Sequence[str] = ()


@dataclass(frozen=True)
class Heading:
    kind: ClassVar[str] = "heading"
    text: str


@dataclass(frozen=True)
class Fold:
    """Shown when it is asked for."""

    kind: ClassVar[str] = "folded"
    summary: str
    blocks: Sequence["PageBlock"]


@dataclass(frozen=True)
class Completion:
    """One continuation of a context: whose it is, its text and its energy."""

    who: str
    style: str
    text: str
    energy: Cell | None


@dataclass(frozen=True)
class Sample:
    kind: ClassVar[str] = "sample"
    number: int
    context: str
    completions: Sequence[Completion]


PageBlock = Table | Picture | Paragraph | Gap | Heading | Fold | Sample


@dataclass(frozen=True)
class PageSection:
    id: str
    title: str
    blocks: Sequence[PageBlock] = field(default_factory=list)


def words(text: object) -> Cell:
    return Cell(NOTHING if text is None or text == "" else str(text))


def digest(text: str | None) -> Cell:
    """The beginning of a digest: enough to distinguish two of them."""
    return Cell(text[:12], code=True) if text else words(None)


def count(number: int | float | None) -> Cell:
    return words(None) if number is None else Cell(f"{number:,.0f}", number)


def perplexity(number: float | None) -> Cell:
    return words(None) if number is None else Cell(in_perplexity(number), number)


def percent(share: float | None, digits: int = 1) -> Cell:
    return words(None) if share is None else Cell(in_percent(share, digits), share)


def decimal(number: float | None, digits: int = 1) -> Cell:
    return words(None) if number is None else Cell(signed(f"{round(number, digits) + 0.0:,.{digits}f}"), number)


def anything(value: Any) -> Cell:
    """A value of which nothing is known but that it is in a table."""
    if isinstance(value, bool):
        return words("yes" if value else "no")
    if isinstance(value, int):
        return Cell(signed(f"{value:,}"), value)
    if isinstance(value, float):
        if not math.isfinite(value):
            return Cell(str(value), value)
        return Cell(signed(f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"), value)
    if isinstance(value, dict):
        return words(", ".join(f"{name} {anything(own).text}" for name, own in value.items()))
    if isinstance(value, list):
        return words("; ".join(anything(own).text for own in value))
    return words(value)


def in_perplexity(number: float, more: int = 0) -> str:
    """About five figures, and as many more as are wanted."""
    digits = 4 if abs(number) < 10 else 3 if abs(number) < 100 else 1
    return signed(f"{number:,.{digits + more}f}")


def in_percent(share: float, digits: int = 1) -> str:
    return signed(f"{share * 100:.{digits}f}\u00a0%")


def in_interval(low: float, high: float, digits: int = 1) -> str:
    """`90.1 to 92.4 %`, or one number where both ends look the same."""
    ends = in_percent(low, digits).removesuffix("\u00a0%"), in_percent(high, digits)
    return ends[1] if ends[1].startswith(ends[0]) else " to ".join(ends)


def signed(text: str) -> str:
    """With a minus sign, not a hyphen."""
    return text.replace("-", "−", 1) if text.startswith("-") else text


def times(number: int, thing: str) -> str:
    """`1 context`, `2 contexts`."""
    return f"{number:,} {thing}" + ("" if number == 1 else "s")


def listed(parts: Iterable[str], most: int = 4) -> str:
    """`a, b and 3 more`."""
    all_parts = list(dict.fromkeys(parts))
    more = len(all_parts) - most
    return ", ".join(all_parts[:most]) + (f" and {more} more" if more > 0 else "")


def visible(text: str) -> str:
    """Control characters as pictures of themselves: a page cannot show them, and some it may not hold."""
    return "".join(_shown(character) for character in text.encode("utf-8", "replace").decode())


def _shown(character: str) -> str:
    if character in "\n\t" or unicodedata.category(character) != "Cc":
        return character
    code = ord(character)
    return chr(0x2400 + code) if code < 0x20 else "␡" if code == 0x7F else f"\\x{code:02x}"
