"""A page of the hub: a head for machines, and what people read, with nothing in it that could be taken for more."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from evaluation.hub.metrics import Measured
from pipeline.runtime.markdown import inline, table
from pipeline.runtime.provenance import code_version

Fact = tuple[str, Any]


def page(head: str, title: str, parts: Iterable[Sequence[str]]) -> str:
    """README.md: the head between its rules, the title, and the parts, each of some lines."""
    body = "\n\n".join("\n".join(lines) for lines in parts if lines)
    return f"---\n{head}\n---\n\n# {inline(title)}\n\n{body}\n"


def made(facts: Sequence[Fact]) -> list[str]:
    return ["## How it was made", "", *table(("", ""), facts)] if facts else []


def measured(found: Measured) -> list[str]:
    """Each number with its interval, and what the measuring warned of."""
    if not found.metrics:
        return []
    rows = [(one.data, one.remark, one.shown, one.interval or "none in the file") for one in found.metrics]
    lines = ["## What was measured", "", *table(("on", "what", "value", "95% interval"), rows)]
    return [*lines, *(["", *(f"- Careful: {inline(one)}" for one in found.warnings)] if found.warnings else [])]


def used(code: str, before: str = "") -> list[str]:
    return ["## Using it", "", *([before, ""] if before else []), "```python", *code.strip().splitlines(), "```"]


def footer(licence: str | None) -> list[str]:
    said = f"Licence: {inline(licence)}." if licence else "Its licence is not stated."
    return [f"{said} This page was written by residual-ebm {inline(released())} from the files beside it."]


def released() -> str:
    """The version without the commit: the same files give the same page."""
    return code_version().partition("+")[0]


def flat(value: Any) -> Any:
    """A value of a record as one can read it: nothing nested, and digests as far as one compares them."""
    if isinstance(value, dict):
        plain = {name: flat(each) for name, each in value.items() if not isinstance(each, dict | list)}
        return ", ".join(f"{name} {each}" for name, each in plain.items() if name != "samples_per_row")
    if isinstance(value, list):
        words = [str(each) for each in value if not isinstance(each, dict | list)]
        return ", ".join(words) if len(words) < 9 else f"{words[0]} … {words[-1]}, {len(words)} in all"
    if isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value):
        return value[:16]
    if isinstance(value, float):
        return f"{value:.6g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else value
