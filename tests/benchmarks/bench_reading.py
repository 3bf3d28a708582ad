"""How much of a large store each rank reads a step, counted: row groups and bytes, on 1 to 192 ranks.

Nothing is timed, so any machine will do. A shard is written as mining and make_windows write theirs, and measured; of a
store of so many of them, the loader's own arithmetic says which rows every rank reads together, and those say which row
groups. What a reader still has of the last reading is not counted for it: a real one reads less. Beside it stands a
shuffle of all rows, of whose batches every rank takes a slice.
"""

import io
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from side_by_side import print_header, print_table

import schemas
from pipeline.runtime import files
from pipeline.stores.shards import write_shard
from training.data.loader import Loader
from training.data.order import Numbers, spans_between
from training.energy.inputs import COLUMNS

SHARD_ROWS, SHARDS = 25_000, 400  # ten million rows
WINDOW, COMPLETION, VOCABULARY = 160, 40, 50_257
RANKS, BATCH = (1, 8, 64, 192), 2048
LOOKED_AT = 5  # ranks of each run


@dataclass(frozen=True)
class Layout:
    """Rows of many shards that are all as the one that was measured: where row groups end, and their bytes."""

    path: str
    ends: Numbers
    bytes: Numbers

    def __len__(self) -> int:
        return SHARD_ROWS * SHARDS

    def take(self, rows: Sequence[int] | Numbers, columns: Sequence[str]) -> pa.Table:
        raise NotImplementedError("rows are counted, not read")

    def read(self, rows: Numbers) -> Numbers:
        """The row groups that hold these rows, and their bytes."""
        groups = np.searchsorted(self.ends, rows % SHARD_ROWS, side="right")
        touched = np.unique(rows // SHARD_ROWS * len(self.ends) + groups)
        return np.array([len(touched), self.bytes[touched % len(self.ends)].sum()])

    @property
    def row_bytes(self) -> float:
        return float(self.bytes.sum() / SHARD_ROWS)


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        layouts = [
            measure(scratch, "windows", windows(), ["tokens"]),
            measure(scratch, "negatives", negatives(), COLUMNS),
        ]
    for layout in layouts:
        print_header(f"{layout.path}: {len(layout):,} rows, {SHARD_ROWS // len(layout.ends):,} in a row group")
        rows = [("ranks", "batch", "rows", "row groups", "MB", "times what it needs", "of a shuffle of all rows")]
        for ranks in RANKS:
            batch = -(-BATCH // ranks) * ranks
            groups, size, times = of_a_step(layout, batch, ranks)
            shuffled = of_a_shuffle(layout, batch // ranks)
            share = batch // ranks
            counts = (f"{groups:.2f}", f"{size / 1e6:.2f}", f"{times:.1f}", f"{shuffled:.0f}")
            rows.append((str(ranks), str(batch), str(share), *counts))
        print_table(rows, words=0)


def measure(scratch: str, kind: str, table: pa.Table, columns: Sequence[str]) -> Layout:
    """Writes a shard and looks at its footer: rows a group, and the bytes of the columns that training reads."""
    shard = write_shard(scratch, 0, table, "benchmark")
    footer = pq.ParquetFile(io.BytesIO(files.read(files.join(scratch, shard.file)))).metadata
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    sizes = [
        sum(
            column.total_compressed_size
            for column in map(group.column, range(group.num_columns))
            if column.path_in_schema.split(".")[0] in columns
        )
        for group in groups
    ]
    return Layout(kind, np.cumsum([group.num_rows for group in groups]), np.array(sizes))


def tokens(rows: int, length: int) -> pa.Array:
    """Lists of ids that are about as frequent as words are."""
    ids = np.minimum(np.random.default_rng(0).zipf(1.2, rows * length) - 1, VOCABULARY - 1).astype(np.int32)
    return pa.ListArray.from_arrays(np.arange(0, rows * length + 1, length, dtype=np.int32), ids)


def windows() -> pa.Table:
    return table_of(schemas.WINDOWS, {"tokens": tokens(SHARD_ROWS, WINDOW)})


def negatives() -> pa.Table:
    samples = pa.ListArray.from_arrays(np.arange(SHARD_ROWS + 1, dtype=np.int32), tokens(SHARD_ROWS, COMPLETION))
    numbers = pa.array(np.random.default_rng(1).normal(-100, 9, (SHARD_ROWS, 1)).tolist(), pa.list_(pa.float64()))
    return table_of(
        schemas.NEGATIVES,
        {"tokens": tokens(SHARD_ROWS, WINDOW), "negatives": samples, "log_p": numbers, "log_q": numbers},
    )


def table_of(schema: pa.Schema, given: dict[str, pa.Array]) -> pa.Table:
    """A table of a schema, with ids and numbers for the columns that are not given."""
    columns = []
    for field in schema:
        numbers = np.arange(SHARD_ROWS)
        plain = [f"{number:032x}" for number in numbers] if pa.types.is_string(field.type) else numbers
        columns.append(given[field.name].cast(field.type) if field.name in given else pa.array(plain).cast(field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def of_a_step(layout: Layout, batch: int, ranks: int) -> tuple[float, float, float]:
    """Row groups and bytes that a rank reads a step, and how many times its rows' own bytes those are."""
    read, steps = np.zeros(2), 0.0
    for rank in sorted({rank * ranks // LOOKED_AT for rank in range(LOOKED_AT)}):
        loader = Loader(layout, COLUMNS, batch, 0, rank, ranks)
        for start, stop in stretches(loader):
            places = loader.places_between(start, stop)
            read += layout.read(loader.rows_at(places))
            steps += (stop - start) / batch
    groups, size = read / steps
    return groups, size, size / (batch // ranks * layout.row_bytes)


def stretches(loader: Loader) -> Iterator[tuple[int, int]]:
    """Two whole spans somewhere in the second epoch, as they are read."""
    begin = len(loader.store) * 3 // 2
    (_, first), (_, _), (_, last) = spans_between(begin, begin + len(loader.store), len(loader.store))[:3]
    steps = loader.stretches(first // loader.batch_size, -(-last // loader.batch_size))
    return ((start, stop) for start, stop in steps if start >= first and stop <= last)


def of_a_shuffle(layout: Layout, share: int) -> float:
    """How many times what it needs a rank reads that takes any rows at all, a step at a time."""
    rows = np.random.default_rng(2).integers(0, len(layout), share)
    return float(layout.read(rows)[1] / (share * layout.row_bytes))


if __name__ == "__main__":
    main()
