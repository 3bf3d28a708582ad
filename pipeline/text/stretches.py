"""Stretches: a large file as the work of many, divided so that nothing shows in what is made of it.

Lines of JSON, rows of Parquet and articles of WikiText are divided at documents: each belongs to the stretch that it
begins in. A .txt file is one document, whose digest is that of the whole text: one worker surveys it, and many
tokenise it, from one place where a tokenizer may cut text to another. What is compressed cannot be divided.
"""

import codecs
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from pipeline.runtime import files
from pipeline.runtime.errors import UserError
from pipeline.text.documents import BYTE_ORDER_MARK, READ_BYTES, Source, lines_from, with_titles
from pipeline.text.tokenizer import CUT

BY_DOCUMENTS = ("jsonl", "parquet", "wikitext")
SELF_EVIDENT = ("utf-8", "ascii", "iso8859-1", "cp1252")  # encodings in which any byte shows where characters begin
MOST_UNDIVIDED = 1 << 30  # bytes of a file that are one worker's work before a word is said about it
CONTINUATION = bytes(range(0x80, 0xC0))
CUT_BYTES = 1 << 16  # in which there is nearly always a place to cut text


def divide(source: Source, most: int) -> list[Source]:
    """The stretches of a file of `most` bytes or a little less, each with whole documents; or the file itself."""
    stretches = _stretches(source, most) if source.format in BY_DOCUMENTS else [source]
    if len(stretches) > 1 and source.format == "wikitext":
        lines = with_titles(lines_from(stretches[0]), from_start=True)
        # All that comes before the file's second title is one article: where is the first?
        first = next((gap for position, _, gap in lines if gap is not None or not stretches[0].has(position)), None)
        return [source] if first is None or not stretches[0].has(first) else stretches
    return stretches


def divide_text(source: Source, most: int) -> list[Source]:
    """The stretches of a .txt file, for `read_stretch`; or the file itself."""
    divisible = source.format == "text" and source.encoding in SELF_EVIDENT
    return _stretches(source, most) if divisible else [source]


def _stretches(source: Source, most: int) -> list[Source]:
    size = source.bytes or 0
    if size <= most or (source.format != "parquet" and files.is_compressed(source.url)):
        return [source]
    count = -(-size // most)
    edges = [size * number // count for number in range(count)]
    return [replace(source, start=start, end=end) for start, end in pairwise([*edges, size])]


def undivided(sources: list[Source], cut: bool) -> list[str]:
    """A line about each file that is much work for one worker, and why it is; `cut` if the tokenizer can cut text."""
    lines = []
    for source in sources:
        if (source.bytes or 0) <= MOST_UNDIVIDED or source.format == "parquet":
            continue
        if files.is_compressed(source.url):
            why = "compressed: one worker reads it all; unpacked it would be many's"
        elif source.format == "text" and not cut:
            why = "one document, which this tokenizer needs whole: one worker tokenises it all"
        elif source.format == "text" and source.encoding not in SELF_EVIDENT:
            why = f"one document in {source.encoding}: one worker tokenises it all; in UTF-8 it would be many's"
        else:
            continue
        lines.append(f"{source.url}: {(source.bytes or 0) / 1e9:,.1f} GB, {why}")
    return lines


def read_stretch(stretches: list[Source], number: int) -> Iterator[str]:
    """The text of one stretch of a .txt file, in pieces.

    It goes from the first place within the stretch where text may be cut to the first one in a later stretch. Together
    the stretches are the whole text; one without such a place is empty.
    """
    source = stretches[number]
    try:
        start = _first_cut(source) if number else 0
        if start is None:
            return
        cuts = (_first_cut(later) for later in stretches[number + 1 :])
        end = next((cut for cut in cuts if cut is not None), source.bytes or 0)
        decoder = codecs.getincrementaldecoder(source.encoding)()
        with files.open_stream(source.url, start) as stream:
            position = start
            while position < end:
                block = stream.read(min(READ_BYTES, end - position))
                if not block:
                    break
                text = decoder.decode(block)
                yield text.removeprefix(BYTE_ORDER_MARK) if position == 0 else text
                position += len(block)
            decoder.decode(b"", final=True)
    except UnicodeError:
        raise _changed(source) from None
    info = files.info(source.url)
    if (info.size, info.mtime_ns) != (source.bytes, source.modified):
        raise _changed(source)


def _first_cut(source: Source) -> int | None:
    """The first byte of a stretch that a tokenizer may begin with; the character before it is in the stretch too."""
    decoder = codecs.getincrementaldecoder(source.encoding)()
    read, place, text = source.start, source.start, ""  # bytes until here are read; those of `text` begin at `place`
    with files.open_stream(source.url, source.start) as stream:
        while block := stream.read(min(CUT_BYTES, (source.end or 0) - read)):
            if read == source.start and source.encoding == "utf-8":
                whole = block.lstrip(CONTINUATION)  # of a character that began before
                place += len(block) - len(whole)
                text = decoder.decode(whole)
            else:
                text += decoder.decode(block)
            if found := CUT.search(text, 1):
                return place + len(text[: found.start()].encode(source.encoding))
            read += len(block)
            place += len(text[:-1].encode(source.encoding))
            text = text[-1:]
    return None


def _changed(source: Source) -> UserError:
    return UserError(f"{source.url}: it changed while it was being read: run the same command again")
