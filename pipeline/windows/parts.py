"""Parts: windows on their way from the file that they come from to the shard that they belong to.

Beam's own shuffle keeps everything in memory on one machine and forgets it when a run is killed. Here each worker
writes what it cut, sorted by the shuffled order, and each shard picks its range out of every part: flat memory, and
a part that was written is never computed again.
"""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import schemas
from pipeline.runtime import files
from pipeline.runtime.errors import ResumableError
from pipeline.runtime.randomness import U64
from pipeline.windows.cutting import Windows, shuffled_order, window_ids
from pipeline.windows.job import WindowsJob

DONE = "done.json"
PART_ROWS = 1 << 16
GROUP_ROWS = 1 << 9  # what is read for a shard's first and last few rows
TOKEN_TYPES: dict[int, np.dtype] = {2: np.dtype("<u2"), 4: np.dtype("<i4")}  # half the bytes where every id fits


@dataclass(frozen=True)
class Part:
    url: str
    rows: int
    bytes: int

    def is_there(self) -> bool:
        return bool(files.info(self.url).size == self.bytes)


def save_parts(folder: str, parts: list[Part], facts: dict[str, Any]) -> None:
    """Says that a folder's parts are all there, and what else came of the work; nothing after it is lost."""
    names = [(part.url.rsplit("/", 1)[1], part.rows, part.bytes) for part in parts]
    files.put(files.join(folder, DONE), json.dumps(facts | {"parts": names}).encode())


def saved_parts(folder: str) -> tuple[list[Part], dict[str, Any]] | None:
    """What `save_parts` was given, if an earlier run got as far, and every part is still there."""
    if not files.is_file(files.join(folder, DONE)):
        return None
    facts = json.loads(files.read(files.join(folder, DONE)))
    parts = [Part(files.join(folder, name), rows, size) for name, rows, size in facts.pop("parts")]
    return (parts, facts) if all(part.is_there() for part in parts) else None


class PartBuffer:
    """Windows collected until they are worth a part."""

    def __init__(self, corpus: str, split: str, seed: int, token_bytes: int, most: int | None = None):
        self.corpus, self.split, self.seed, self.most = corpus, split, seed, most
        self.dtype = TOKEN_TYPES[token_bytes]
        self.tables: list[pa.Table] = []
        self.rows = 0
        self.smallest = np.empty(0, np.uint64)

    @classmethod
    def of(cls, job: WindowsJob) -> "PartBuffer":
        return cls(job.corpus, job.settings.split, job.settings.seed, job.token_bytes, job.settings.limit)

    def add(self, windows: Windows) -> None:
        ids = window_ids(self.corpus, self.split, windows)
        order = shuffled_order(ids, self.seed)
        columns = {
            "order": order,
            "window_id": _fixed(ids.view(np.uint8), 16),
            "document": pa.array(windows.documents),
            "offset": windows.offsets,
            "tokens": _fixed(windows.tokens.astype(self.dtype), windows.tokens.shape[1] * self.dtype.itemsize),
        }
        table = pa.table(columns)
        if self.most is not None:
            table = table.filter(self._within_limit(order))
        self.tables.append(table)
        self.rows += len(table)

    def _within_limit(self, order: U64) -> np.ndarray:
        """Which windows are still among the `most` first of all that were added."""
        self.smallest = np.sort(np.concatenate([self.smallest, order]))[: self.most]
        return order <= self.smallest[-1]

    def write(self, url: str) -> Part:
        """Writes the collected windows, sorted, and forgets them."""
        table = pa.concat_tables(self.tables)
        table = table.take(pc.sort_indices(table["order"]))
        self.tables, self.rows = [], 0
        sink = pa.BufferOutputStream()
        pq.write_table(
            table,
            sink,
            compression="none",
            use_dictionary=["document"],
            row_group_size=GROUP_ROWS,
            write_page_checksum=True,
        )
        data = sink.getvalue()
        files.put(url, data)
        return Part(url, len(table), len(data))


def write_parts(windows: Iterable[Windows], folder: str, buffer: PartBuffer) -> tuple[list[Part], int]:
    """Writes windows as parts in a folder: the parts, and how many windows there were."""
    parts, count = list[Part](), 0
    for some in windows:
        count += len(some.documents)
        buffer.add(some)
        if buffer.rows >= PART_ROWS:
            parts.append(buffer.write(files.join(folder, f"{len(parts):05d}.parquet")))
    if buffer.rows:
        parts.append(buffer.write(files.join(folder, f"{len(parts):05d}.parquet")))
    return parts, count


def _fixed(values: np.ndarray, width: int) -> pa.Array:
    data = np.ascontiguousarray(values)
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), data.nbytes // width, [None, pa.py_buffer(data)])


@contextmanager
def removing_damaged(part: Part) -> Iterator[None]:
    """A part that turns out to be damaged while it is read is removed, so that the next run makes it again."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        files.remove(part.url)
        raise ResumableError(f"{part.url}: damaged and removed ({error})", "run the same command again") from None


def _read(part: Part, **options: Any) -> pa.Table:
    """What is asked for of a part."""
    system, path = files.resolve(part.url)
    with removing_damaged(part):
        return pq.read_table(
            path, filesystem=system, use_threads=False, page_checksum_verification=True, pre_buffer=False, **options
        )


def orders_in(part: Part) -> U64:
    return np.asarray(_read(part, columns=["order"])["order"].to_numpy(), np.uint64)


def gather(parts: list[Part], first: int, end: int, corpus: str, split: str, token_bytes: int) -> tuple[U64, pa.Table]:
    """The windows of all parts whose order is in [first, end), in that order: their orders, their WINDOWS rows."""
    within = (pc.field("order") >= pa.scalar(first, pa.uint64())) & (
        pc.field("order") <= pa.scalar(end - 1, pa.uint64())
    )
    table = pa.concat_tables([_read(part, filters=within) for part in parts])
    # Two windows can share an order (64 bits of hash), never an id.
    table = table.take(pc.sort_indices(table, [("order", "ascending"), ("window_id", "ascending")])).combine_chunks()
    rows = len(table)
    ids = _bytes_of(table["window_id"]).tobytes().hex().encode()
    tokens = _bytes_of(table["tokens"]).view(TOKEN_TYPES[token_bytes]).astype(np.int32)
    columns = [
        pa.StringArray.from_buffers(rows, pa.py_buffer(_even_offsets(rows, 32)), pa.py_buffer(ids)),
        pa.repeat(pa.scalar(corpus), rows),
        pa.repeat(pa.scalar(split), rows),
        table["document"],
        table["offset"],
        pa.ListArray.from_arrays(_even_offsets(rows, len(tokens) // rows if rows else 0), tokens, type=schemas.TOKENS),
    ]
    return table["order"].to_numpy(), pa.Table.from_arrays(columns, schema=schemas.WINDOWS)


def _bytes_of(column: pa.ChunkedArray) -> np.ndarray:
    if not len(column):
        return np.empty(0, np.uint8)
    array = column.chunk(0)
    width = array.type.byte_width
    return np.frombuffer(array.buffers()[1], np.uint8)[array.offset * width : (array.offset + len(array)) * width]


def _even_offsets(rows: int, width: int) -> np.ndarray:
    return np.arange(rows + 1, dtype=np.int32) * np.int32(width)
