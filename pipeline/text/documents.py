"""Documents: what an input file holds, in order, one format a function.

A document is a line of JSON, a row of Parquet or of a data set, a whole .txt file, or an article of a WikiText file.
Its text comes in pieces, so that a .txt file of any size passes through a memory of one piece.
"""

import codecs
import json
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.runtime import files
from pipeline.runtime.errors import UserError, first_line
from pipeline.text.builtin_corpora import builtin_documents

FORMATS = ("auto", "text", "jsonl", "parquet", "wikitext")
EXTENSIONS = {
    ".txt": "text",
    ".text": "text",
    ".jsonl": "jsonl",
    ".json": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
}
READERS = 32  # files that are looked at together: on an object store each look is a wait
READ_BYTES = 1 << 20  # of a file at once
BYTE_ORDER_MARK = "\ufeff"
T = TypeVar("T")
# A title stands alone between blank lines; ` = = Section = = ` is not one.
TITLE = re.compile(r"^ = (?!=).*(?<!=) = $")


class UnusableDocument(Exception):
    """A document that cannot be used, and the byte (in Parquet and data sets: the row) where that shows."""

    def __init__(self, reason: str, offset: int):
        super().__init__(reason)
        self.reason, self.offset = reason, offset


@dataclass(frozen=True)
class Source:
    """One input file, and how to read it: a path or URL, `builtin:…`, or a data set's file, `hf:NAME:CONFIG#2/5`.

    Of a large file it can be a stretch: the documents that begin in its bytes from `start` to `end`, which together
    with those of its other stretches are the documents of the file.
    """

    url: str
    format: str
    split: str
    text_field: str = "text"
    encoding: str = "utf-8"
    bytes: int | None = None
    modified: int | None = None
    start: int = 0
    end: int | None = None

    def has(self, place: int) -> bool:
        """Whether what begins there is of this stretch."""
        return self.start <= place and (self.end is None or place < self.end)


def read_documents(source: Source) -> Iterator[Iterable[str]]:
    """The documents of one input file. Iterating over one may raise UnusableDocument; the next ones are not harmed."""
    for document in _guarded(_READERS[source.format](source), source.url):
        yield _guarded(document, source.url)


def _guarded(items: Iterable[T], url: str) -> Iterator[T]:
    try:
        yield from items
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(url, error) from None


def _unreadable(url: str, error: Exception) -> UserError:
    return UserError(f"{url}: cannot be read ({error}): mend the file or leave it out")


def _read_text(source: Source) -> Iterator[Iterable[str]]:
    yield _decode_stream(source)


def _decode_stream(source: Source) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder(source.encoding)()
    position = 0
    with files.open_stream(source.url) as stream:
        while True:
            block = stream.read(READ_BYTES)
            held = len(decoder.getstate()[0])
            try:
                text = decoder.decode(block, final=not block)
            except UnicodeError as error:
                raise _badly_encoded(source, position - held + getattr(error, "start", 0)) from None
            if source.encoding != "utf-8":
                text = _usable(text, position - held)
            elif "\0" in text:
                raise UnusableDocument("NUL byte", position - held + len(text[: text.index("\0")].encode()))
            yield _without_mark(text) if position == 0 else text
            position += len(block)
            if not block:
                return


def _badly_encoded(source: Source, offset: int) -> UnusableDocument:
    return UnusableDocument(f"invalid {source.encoding.upper()} (see --encoding)", offset)


def _read_jsonl(source: Source) -> Iterator[Iterable[str]]:
    for position, line in lines_from(source):
        if not source.has(position):
            return
        if not line.isspace():
            yield _json_text(line, source, position)


def lines_from(source: Source) -> Iterator[tuple[int, bytes]]:
    """Lines and their positions, from the first that begins in a stretch to the end of the file."""
    position = max(0, source.start - 1)
    with files.open_stream(source.url, position) as stream:
        ended = position == source.start
        while not ended:  # a line that began before: without holding it, nor going on where nothing else can begin
            rest = stream.readline(READ_BYTES)
            position += len(rest)
            ended = rest.endswith(b"\n")
            if not rest or not (ended or source.has(position)):
                return
        for line in stream:
            yield position, line
            position += len(line)


def _json_text(line: bytes, source: Source, position: int) -> Iterator[str]:
    if 0 in line:
        raise UnusableDocument("NUL byte", position + line.index(0))
    try:
        row = json.loads(_decode(line, source, position))
    except (ValueError, RecursionError):
        raise UnusableDocument("not JSON", position) from None
    text = row.get(source.text_field, 0) if isinstance(row, dict) else 0
    if not isinstance(text, str | None):
        fields = ", ".join(list(row)[:20]) if isinstance(row, dict) else type(row).__name__
        raise UnusableDocument(
            f"no text in field {source.text_field!r} (it has: {fields[:200]}; see --text_field)", position
        )
    yield _usable(text or "", position)


def _decode(data: bytes, source: Source, position: int) -> str:
    try:
        text = data.decode(source.encoding)
    except UnicodeError as error:
        raise _badly_encoded(source, position + getattr(error, "start", 0)) from None
    return _without_mark(text) if position == 0 else text


def _usable(text: str, position: int) -> str:
    """A text from inside a row; JSON escapes can spell what UTF-8 cannot."""
    if "\0" in text:
        raise UnusableDocument("NUL byte", position)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UnusableDocument("invalid UTF-8 (a lone surrogate)", position) from None
    return text


def _read_parquet(source: Source) -> Iterator[Iterable[str]]:
    with files.open_random(source.url) as opened:
        file = pq.ParquetFile(opened)
        if source.text_field not in file.schema_arrow.names:
            there = ", ".join(file.schema_arrow.names)
            raise UserError(f"{source.url}: no column {source.text_field!r}, there are {there}: see --text_field")
        for group, row in _row_groups(file, source):
            for batch in file.iter_batches(batch_size=256, columns=[source.text_field], row_groups=[group]):
                for value in batch.column(0).cast(pa.large_binary()):
                    yield _row_text(value.as_py() or b"", row)
                    row += 1


def _row_groups(file: pq.ParquetFile, source: Source) -> Iterator[tuple[int, int]]:
    """The row groups of a stretch, each with the number of its first row, as if all rows had the same bytes."""
    row, rows = 0, max(1, file.metadata.num_rows)
    for group in range(file.num_row_groups):
        if source.has(row * (source.bytes or 0) // rows):
            yield group, row
        row += file.metadata.row_group(group).num_rows


def _row_text(data: bytes, row: int) -> Iterator[str]:
    try:
        yield _usable(data.decode(), row)
    except UnicodeDecodeError:
        raise UnusableDocument("invalid UTF-8", row) from None


def _read_wikitext(source: Source) -> Iterator[Iterable[str]]:
    yield from (_joined(article, source) for article in _articles(lines_from(source), source))


def _articles(lines: Iterable[tuple[int, bytes]], source: Source) -> Iterator[list[tuple[int, bytes]]]:
    """Lines grouped into articles, which begin with a title, the first one with what comes before it.

    An article belongs to the stretch in which the blank line before its title begins. Before the title that a later
    stretch begins with, there is one in the first.
    """
    article: list[tuple[int, bytes]] = []
    titles = source.start > 0
    taken = not titles
    for position, line, gap in with_titles(lines, taken):
        if gap is not None:
            if titles:
                if article:
                    yield article
                article, taken = [], source.has(gap)
            titles = True
        if taken:
            article.append((position, line))
        elif not source.has(position):
            return
    if article:
        yield article


def with_titles(lines: Iterable[tuple[int, bytes]], from_start: bool) -> Iterator[tuple[int, bytes, int | None]]:
    """Each line, and if it is an article's title, where the blank line before it begins.

    A title has a blank line, or the file's start, before it, and a blank line after it.
    """
    gap: int | None = 0 if from_start else None
    pending: tuple[int, bytes, int] | None = None  # a title, if the next line is blank
    for position, line in lines:
        blank = not line.strip()
        if pending is not None:
            yield *pending[:2], pending[2] if blank else None
            pending = None
        if gap is not None and TITLE.match(_without_mark(line.decode(errors="replace")).rstrip("\r\n")):
            pending = position, line, gap
        else:
            yield position, line, None
        gap = position if blank else None
    if pending is not None:
        yield *pending[:2], None


def _without_mark(text: str) -> str:
    return text.removeprefix(BYTE_ORDER_MARK)


def _joined(article: list[tuple[int, bytes]], source: Source) -> Iterator[str]:
    position = article[0][0]
    data = b"".join(line for _, line in article)
    if 0 in data:
        raise UnusableDocument("NUL byte", position + data.index(0))
    yield _decode(data, source, position)


def _read_builtin(source: Source) -> Iterator[Iterable[str]]:
    return builtin_documents(source.url, source.split)


def _read_dataset(source: Source) -> Iterator[Iterable[str]]:
    for number, row in enumerate(_dataset_file(source)):
        yield _dataset_text(row.get(source.text_field, 0), number, source.text_field)


def _dataset_text(text: Any, row: int, text_field: str) -> Iterator[str]:
    if not isinstance(text, str | None):
        raise UnusableDocument(f"no text in column {text_field!r} (see --text_field)", row)
    yield _usable(text or "", row)


def _read_dataset_wikitext(source: Source) -> Iterator[Iterable[str]]:
    """A data set whose rows are the lines of a WikiText file: the same articles as from the file."""
    lines = (str(row.get(source.text_field) or "").encode() for row in _dataset_file(source))
    whole = (line if line.endswith(b"\n") else line + b"\n" for line in lines)
    yield from (_joined(article, source) for article in _articles(enumerate(whole), source))


def _dataset(url: str, split: str) -> Any:
    """A data set of the hub, or in a local folder, as a stream of rows."""
    import datasets

    name, _, config = url.removeprefix("hf:").partition("#")[0].partition(":")
    try:
        found = datasets.load_dataset(name, config or None, streaming=True)
    except Exception as error:
        raise UserError(f"--input {url}: the data set cannot be opened ({first_line(error)})") from None
    for candidate in (split, {"valid": "validation", "validation": "valid"}.get(split)):
        if candidate in found:
            return found[candidate]
    raise UserError(f"--split {split}: {url} has the splits {', '.join(found)}")


def _dataset_file(source: Source) -> Any:
    index, count = source.url.rpartition("#")[2].split("/")
    return _dataset(source.url, source.split).shard(num_shards=int(count), index=int(index))


_READERS = {
    "text": _read_text,
    "jsonl": _read_jsonl,
    "parquet": _read_parquet,
    "wikitext": _read_wikitext,
    "builtin": _read_builtin,
    "dataset": _read_dataset,
    "dataset-wikitext": _read_dataset_wikitext,
}


def find_sources(
    patterns: Iterable[str], split: str, format: str = "auto", text_field: str = "text", encoding: str = "utf-8"
) -> list[Source]:
    """The input files that `--input` names, sorted, each readable; a UserError names one that is not."""
    encoding = _text_encoding(encoding)
    found: dict[str, Source] = {}
    for pattern in patterns:
        if pattern.startswith("builtin:"):
            next(builtin_documents(pattern, split))
            sources = [Source(pattern, "builtin", split)]
        elif pattern.startswith("hf:"):
            sources = _dataset_sources(pattern, split, format, text_field)
        else:
            with ThreadPoolExecutor(READERS) as pool:
                kind = (split, format, text_field, encoding)
                sources = list(pool.map(lambda url, kind=kind: _file_source(url, *kind), files.glob(pattern)))
            if not sources:
                raise UserError(f"--input {pattern}: no file matches: check the path, and quote the pattern")
        found |= {files.identity(source.url): source for source in sources}
    return sorted(found.values(), key=lambda source: source.url)


def _text_encoding(name: str) -> str:
    """An encoding's proper name; a UserError where it is none that text is written in."""
    try:
        if "a".encode(name).decode(name) == "a":
            return codecs.lookup(name).name
    except (LookupError, UnicodeError, ValueError):
        pass
    raise UserError(f"--encoding {name}: Python knows no such encoding of text: utf-8, latin-1, cp1252, …")


def _file_source(url: str, split: str, format: str, text_field: str, encoding: str) -> Source:
    """One file, found to be readable."""
    try:
        url.encode()
        with files.open_stream(url) as stream:
            stream.read(1)
        info = files.info(url)
    except UnicodeEncodeError:
        raise UserError(f"--input {url}: a file's name must be UTF-8: rename it") from None
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(url, error) from None
    kind = _format(url, format)
    if kind in ("jsonl", "wikitext") and "a\n".encode(encoding) != b"a\n":
        raise UserError(f"--encoding {encoding}: {url} is read line by line, which needs an encoding like ASCII's")
    return Source(url, kind, split, text_field, encoding, info.size, info.mtime_ns)


def _dataset_sources(pattern: str, split: str, format: str, text_field: str) -> list[Source]:
    rows = _dataset(pattern, split)
    lines = (row.get(text_field) for row in rows.take(4))
    first = next((line for line in lines if isinstance(line, str) and line.strip()), "")
    wiki = format == "wikitext" or (format == "auto" and bool(TITLE.match(first.rstrip("\r\n"))))
    kind = "dataset-wikitext" if wiki else "dataset"
    return [Source(f"{pattern}#{k}/{rows.num_shards}", kind, split, text_field) for k in range(rows.num_shards)]


def _format(url: str, format: str) -> str:
    if format != "auto":
        return format
    name = url.rsplit("/", 1)[-1].removesuffix(".gz").removesuffix(".zst")
    extension = "." + name.rpartition(".")[2] if "." in name else ""
    if extension not in EXTENSIONS:
        raise UserError(f"{url}: unknown kind of file: name it with --format {'|'.join(FORMATS[1:])}")
    if EXTENSIONS[extension] == "text" and TITLE.match(_first_line(url)):
        return "wikitext"
    return EXTENSIONS[extension]


def _first_line(url: str) -> str:
    """The first line that is not blank, if there is one in the first bytes."""
    try:
        with files.open_stream(url) as stream:
            start = stream.read(4096).removeprefix(codecs.BOM_UTF8).decode(errors="replace")
    except (OSError, pa.ArrowException):
        return ""
    return next((line for line in start.splitlines() if line.strip()), "")
