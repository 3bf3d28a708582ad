"""Streams of large files: each stretch leaves its tokens, and windows are cut when all are there.

Windows stand at multiples of the stride from a file's first token and reach over the ends of stretches. So where a
stretch's first window stands is known when all tokens before it are counted, and its last windows end with tokens of
the stretches after it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.runtime import files
from pipeline.windows.cutting import Batch
from pipeline.windows.parts import TOKEN_TYPES, Part, removing_damaged

PART_TOKENS = 1 << 24
GROUP_RUNS = 1 << 9  # runs of tokens that are read at once: all that a neighbour needs are the first few


@dataclass(frozen=True)
class TokenisedStretch:
    """The tokens of a stretch: its first and last document (None if it has none), and how long its stream is."""

    file: str
    start: int
    parts: list[Part]
    first: str | None
    last: str | None
    length: int  # its tokens, and an EOS between two documents
    tokens: int
    repeated: int


@dataclass(frozen=True)
class PlacedStretch:
    """A stretch, its place in the stream, where its first document began, and what its last windows end with."""

    stretch: TokenisedStretch
    position: int
    begun: int
    later: list[TokenisedStretch]

    def batches(self, window: int) -> Iterator[Batch]:
        """Its tokens, and of those after it as many as the windows that start in it reach."""
        after = chain.from_iterable(read_tokens(stretch.parts) for stretch in self.later)
        return chain(read_tokens(self.stretch.parts), first_tokens(after, window - 1))


def place_stretches(stretches: Iterable[TokenisedStretch], window: int) -> Iterator[PlacedStretch]:
    """The stretches of one file, each with its place in the file's stream, which EOS joins between two documents."""
    ordered = sorted(stretches, key=lambda stretch: stretch.start)
    position, begun, last = 0, 0, None
    for number, stretch in enumerate(ordered):
        if None not in (last, stretch.first) and stretch.first != last:
            position += 1
            begun = position
        later = (ordered[place] for place in range(number + 1, len(ordered)))
        yield PlacedStretch(stretch, position, begun, list(reached(later, window)))
        position, last = position + stretch.length, stretch.last or last


def reached(later: Iterable[TokenisedStretch], window: int) -> Iterator[TokenisedStretch]:
    """Those stretches that a window of the one before them can reach."""
    left = window - 1
    for stretch in later:
        if left <= 0:
            return
        if stretch.first is not None:
            yield stretch
            left -= stretch.length


def first_tokens(batches: Iterable[Batch], most: int) -> Iterator[Batch]:
    """The first tokens of a stream, `most` or fewer with the EOS between documents."""
    last = None
    for batch in batches:
        kept = []
        for name, ids in batch:
            most -= last not in (None, name)
            if most < 0 or (most == 0 and name == last):
                break
            kept.append((name, ids[:most]))
            most, last = max(0, most - len(ids)), name
        yield kept
        if len(kept) < len(batch):
            return


def write_tokens(batches: Iterable[Batch], folder: str, token_bytes: int) -> tuple[list[Part], dict[str, Any]]:
    """Writes a stretch's tokens as parts in a folder: the parts, and what a TokenisedStretch says of them."""
    parts, held, size = list[Part](), list[pa.Table](), 0
    first, last, length = None, None, 0

    def flush() -> None:
        sink = pa.BufferOutputStream()
        options = {"compression": "none", "use_dictionary": ["document"], "write_page_checksum": True}
        pq.write_table(pa.concat_tables(held), sink, row_group_size=GROUP_RUNS, **options)
        data, url = sink.getvalue(), files.join(folder, f"{len(parts):05d}.parquet")
        files.put(url, data)
        parts.append(Part(url, sum(map(len, held)), len(data)))

    for batch in batches:
        for name, ids in batch:
            length += len(ids) + (last not in (None, name))
            first, last = first or name, name
        ends = np.cumsum([0, *(len(ids) for _, ids in batch)], dtype=np.int32)
        tokens = np.concatenate([np.array(ids, TOKEN_TYPES[token_bytes]) for _, ids in batch])
        runs = pa.ListArray.from_arrays(ends, pa.array(tokens))
        held.append(pa.table({"document": [name for name, _ in batch], "tokens": runs}))
        size += len(tokens)
        if size >= PART_TOKENS:
            flush()
            held, size = [], 0
    if held:
        flush()
    return parts, {"first": first, "last": last, "length": length}


def read_tokens(parts: Iterable[Part]) -> Iterator[Batch]:
    """What was given to `write_tokens`, in batches of other sizes."""
    for part in parts:
        with removing_damaged(part), files.open_random(part.url) as opened:
            for rows in pq.ParquetFile(opened, page_checksum_verification=True).iter_batches(GROUP_RUNS):
                tokens, edges = rows["tokens"].values.to_numpy(), rows["tokens"].offsets.to_pylist()
                runs = (tokens[start:end] for start, end in pairwise(edges))
                yield list(zip(rows["document"].to_pylist(), runs, strict=True))
