"""Rows of pairs that somebody has: which columns hold them, and the texts in them."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.runtime import files
from pipeline.runtime.errors import UserError, first_line

# Columns by which known forms are recognised: what stands before, the better text, and the others.
KNOWN = (
    ("prompt", "chosen", ("rejected",)),
    (None, "chosen", ("rejected",)),
    ("anchor", "positive", ("negative",)),
    ("query", "positive", ("negative",)),
    ("question", "human_answers", ("chatgpt_answers",)),
)
LIST = ("query", "docs", "labels")


@dataclass(frozen=True)
class Columns:
    """Where the texts are. With `labels`, the better text is that of the highest label in the list of the others."""

    prompt: str | None
    better: str
    others: tuple[str, ...]
    labels: str | None = None


@dataclass(frozen=True)
class Pair:
    """A text that is better than others, after the same beginning, or after none."""

    prompt: str
    better: str
    others: tuple[str, ...]


def rows_in(url: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of a Parquet file or of JSON lines, with the place that an error names."""
    try:
        if url.endswith(".parquet"):
            number = 0
            for batch in pq.ParquetFile(files.open_random(url)).iter_batches():
                for row in batch.to_pylist():
                    number += 1
                    yield f"{url}: row {number}", row
            return
        with files.open_stream(url) as stream:
            for number, line in enumerate(stream, 1):
                if line.strip():
                    yield f"{url}: line {number}", json.loads(line)
    except (OSError, ValueError, RecursionError, pa.ArrowException) as error:
        raise UserError(f"{url}: it cannot be read as pairs ({first_line(error)}): .jsonl or .parquet") from None


def find_columns(row: Any, place: str, prompt: str | None, better: str | None, others: Sequence[str]) -> Columns:
    """From the flags, or by the names that known forms have."""
    if not isinstance(row, dict):
        raise UserError(f"{place}: not an object with columns, but {type(row).__name__}")
    if better or others:
        if not (better and others):
            raise UserError("--better and --others: name both, or neither")
        named = Columns(prompt, better, tuple(others))
        if missing := [name for name in (prompt, better, *others) if name and name not in row]:
            raise UserError(f"{place}: no column {missing[0]!r}, there are {', '.join(map(str, row))}")
        return named
    if all(name in row for name in LIST):
        return Columns(LIST[0], LIST[1], (), LIST[2])
    for before, one, rest in KNOWN:
        numbered = tuple(name for name in row if name in rest or str(name).startswith(f"{rest[0]}_"))
        if one in row and numbered and (before is None or before in row):
            return Columns(before, one, numbered)
    raise UserError(
        f"{place}: columns {', '.join(map(str, row))} are not of a known form: say which is which with --prompt, "
        f"--better and --others"
    )


def pairs_in(row: Any, columns: Columns, place: str) -> Iterator[Pair]:
    """The pairs of a row: one, or as many as it has better texts."""
    if not isinstance(row, dict):
        raise UserError(f"{place}: not an object with columns, but {type(row).__name__}")
    prompt = "" if columns.prompt is None else text_of(row.get(columns.prompt), f"{place}: {columns.prompt}")
    if columns.labels is not None:
        texts = texts_of(row.get(columns.better), f"{place}: {columns.better}")
        labels = row.get(columns.labels)
        if not isinstance(labels, list) or len(labels) != len(texts) or not all(map(is_number, labels)):
            raise UserError(f"{place}: {columns.labels}: as many numbers as there are texts are needed")
        best = max(labels, default=0)
        good = [text for text, label in zip(texts, labels, strict=True) if label == best]
        others = [text for text, label in zip(texts, labels, strict=True) if label < best]
    else:
        good = texts_of(row.get(columns.better), f"{place}: {columns.better}")
        others = [text for name in columns.others for text in texts_of(row.get(name), f"{place}: {name}")]
    for better in good:
        if others:
            yield Pair(prompt, better, tuple(others))


def is_number(value: Any) -> bool:
    return type(value) in (int, float)


def texts_of(value: Any, place: str) -> list[str]:
    """A text, or a list of them; a conversation is one text."""
    if isinstance(value, list) and not is_conversation(value):
        return [text_of(one, place) for one in value]
    return [text_of(value, place)]


def is_conversation(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, dict) and "content" in one for one in value)


def text_of(value: Any, place: str) -> str:
    """A text; of a conversation what is said in it, a paragraph each."""
    if is_conversation(value):
        return "\n\n".join(text_of(message["content"], place) for message in value)
    if not isinstance(value, str):
        raise UserError(f"{place}: not a text, but {type(value).__name__}")
    return value
