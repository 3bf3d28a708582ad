"""Texts of input files, each with the id by which its file knows it."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pipeline.runtime import files
from pipeline.runtime.errors import UserError
from pipeline.text.blocks import one_spaced
from pipeline.text.documents import BYTE_ORDER_MARK, FORMATS, Source, UnusableDocument, find_sources, read_documents


@dataclass(frozen=True)
class Text:
    """A text's id and the pieces that it comes in; iterating over them raises UnusableDocument if it cannot be read."""

    id: str
    pieces: Iterable[str]


@dataclass(frozen=True)
class LabelledFile:
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
    """The texts of one file, as every stage reads them.

    A line of JSON has its own `id`, or its line's number; any other text its number.
    """
    if source.format == "jsonl":
        pairs = zip(read_documents(source), _ids_of_lines(source), strict=True)
        yield from (Text(id, pieces) for pieces, id in pairs)
    elif source.format == "text":
        yield from (Text(source.url.rsplit("/", 1)[-1], pieces) for pieces in read_documents(source))
    else:
        yield from (Text(str(number), pieces) for number, pieces in enumerate(read_documents(source)))


def whole_texts(source: Source) -> Iterator[str]:
    """The texts of a file with their white space normalised; one that cannot be read is empty."""
    for text in read_texts(source):
        try:
            yield "".join(one_spaced(text.pieces))
        except UnusableDocument:
            yield ""


def _ids_of_lines(source: Source) -> Iterator[str]:
    """Of every line of JSON that is a document: what it calls itself, or the line's number."""
    with files.open_stream(source.url) as stream:
        for number, line in enumerate(stream, 1):
            if not line.isspace():
                yield _own_id(line, source.encoding) or str(number)


def _own_id(line: bytes, encoding: str) -> str | None:
    """Whether the line can be used is not for its id to decide: one that cannot be read has none."""
    try:
        row = json.loads(line.decode(encoding).removeprefix(BYTE_ORDER_MARK))
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict) or row.get("id") is None:
        return None
    return str(row["id"]).encode("utf-8", "backslashreplace").decode()
