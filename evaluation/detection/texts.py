"""Texts of input files, each with the id by which its file knows it."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pipeline.runtime import files
from pipeline.runtime.errors import UserError
from pipeline.text.blocks import one_spaced
from pipeline.text.documents import FORMATS, Rejected, Source, find_sources, read_documents


@dataclass(frozen=True)
class Text:
    """A text's id and the pieces that it comes in; iterating over them raises Rejected if it cannot be read."""

    id: str
    pieces: Iterable[str]


@dataclass(frozen=True)
class Input:
    """A file of texts, and what they are, if that is known."""

    source: Source
    label: str | None


def find_texts(flag: str, patterns: Iterable[str], text_field: str, encoding: str) -> list[Source]:
    """The files that a flag names, as paths, URLs or patterns; a UserError names one that is not there."""
    patterns = list(patterns)
    for pattern in patterns:
        if ":" not in pattern.partition("://")[0] and not files.glob(pattern):
            raise UserError(f"--{flag} {pattern}: no file matches: check the path, and quote the pattern")
    return find_sources(patterns, "test", FORMATS[0], text_field, encoding)


def read_texts(source: Source) -> Iterator[Text]:
    """The texts of one file. A line of JSON has its own `id`, or its line's number; any other text its number."""
    if source.format == "jsonl":
        yield from _json_texts(source)
    elif source.format == "text":
        yield from (Text(source.url.rsplit("/", 1)[-1], pieces) for pieces in read_documents(source))
    else:
        yield from (Text(str(number), pieces) for number, pieces in enumerate(read_documents(source)))


def whole_texts(source: Source) -> Iterator[str]:
    """The texts of a file with their white space normalised; one that cannot be read is empty."""
    for text in read_texts(source):
        try:
            yield "".join(one_spaced(text.pieces))
        except Rejected:
            yield ""


def _json_texts(source: Source) -> Iterator[Text]:
    position = 0
    try:
        with files.open_stream(source.url) as stream:
            for number, line in enumerate(stream, 1):
                if not line.isspace():
                    yield _json_text(line, number, source, position)
                position += len(line)
    except (OSError, pa.ArrowException) as error:
        raise UserError(f"{source.url}: cannot be read ({error}): mend the file or leave it out") from None


def _json_text(line: bytes, number: int, source: Source, position: int) -> Text:
    id = str(number)
    try:
        row = _row(line, source, position)
        if row.get("id") is not None:
            id = str(row["id"]).encode("utf-8", "backslashreplace").decode()
        text = row.get(source.text_field, 0)
        if not isinstance(text, str | None):
            raise Rejected(f"no text in field {source.text_field!r} (see --text_field)", position)
    except Rejected as error:
        return Text(id, map(_raise, [error]))
    return Text(id, [text or ""])


def _row(line: bytes, source: Source, position: int) -> dict[str, Any]:
    try:
        row = json.loads(line.decode(source.encoding).removeprefix("\ufeff"))
    except UnicodeError as error:
        offset = position + getattr(error, "start", 0)
        raise Rejected(f"invalid {source.encoding.upper()} (see --encoding)", offset) from None
    except (ValueError, RecursionError):
        raise Rejected("not JSON", position) from None
    if not isinstance(row, dict):
        raise Rejected("not a JSON object", position)
    return row


def _raise(error: Rejected) -> str:
    raise error
