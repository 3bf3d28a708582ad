"""Values from somebody's data in a page of Markdown: words there, never markup."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

# What could begin markup within a line, or end a table's cell; an underscore within a word cannot.
MARKS = re.compile(r"[!\"#$&'*;<=>?@\[\\\]^`{|}~]|(?<![^\W_])_|_(?![^\W_])|:(?=//)|(?<=www)\.", re.ASCII)


def inline(value: Any) -> str:
    """A value in a line or a cell. Marks become character references, which Markdown reads as text alone."""
    text = " ".join(str(value).split())
    text = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
    return MARKS.sub(lambda mark: f"&#{ord(mark[0])};", text)


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    """The lines of a table; what a cell does not know is said to be unknown."""
    cells = ([("unknown" if cell is None else inline(cell)) for cell in row] for row in rows)
    return [f"| {' | '.join(line)} |" for line in (columns, ["---"] * len(columns), *cells)]
