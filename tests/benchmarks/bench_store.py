"""How fast a store's rows are read, in order and at random, against pyarrow on the same Parquet files.

pyarrow neither checks the pages' checksums nor the shards against a manifest; the store's reader does both.
"""

import contextlib
import io
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
from side_by_side import Duel, apart, documents, print_duels, print_header, take_turns, tokenizer_folder

from pipeline import make_windows
from pipeline.stores.reader import Store
from pipeline.stores.shards import SHARDS

MEGABYTES = 30  # some 200,000 windows at stride 40
ROUNDS = 5
ROWS_AT_ONCE = 256
DRAWS = 4


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        path = make_store(Path(scratch))
        measure_scan(path, None)
        measure_scan(path, ["tokens"])
        measure_take(path)


def make_store(scratch: Path) -> Path:
    text, store = scratch / "text.txt", scratch / "store"
    with text.open("w", encoding="utf-8") as file:
        file.writelines(document + "\n" for document in documents(MEGABYTES))
    names = ["--corpus", "benchmark", "--split", "train", "--tokenizer", tokenizer_folder(scratch)]
    command = ["--input", str(text), *names, "--stride", "40", "--output", str(store)]
    with contextlib.redirect_stdout(io.StringIO()):
        apart(lambda: make_windows.main(command))
    return store


def measure_scan(path: Path, columns: list[str] | None) -> None:
    """Every row once. Each contender opens the store anew, as a reader does that has just been started."""
    rows, named = len(Store(str(path))), ", ".join(columns) if columns else "all columns"
    contenders: dict[str, Callable[[], object]] = {
        "Store.batches": lambda: count(Store(str(path)).batches(columns), rows),
        "Store.rows": lambda: count_rows(Store(str(path)).rows(columns), rows),
        "pyarrow, threads": lambda: count(scan(path, columns, True), rows),
        "pyarrow, one thread": lambda: count(scan(path, columns, False), rows),
        "pyarrow, to_pylist": lambda: count_rows(python_rows(scan(path, columns, True)), rows),
    }
    duels = [
        Duel("Store.batches", "pyarrow, threads", ">= 0.5"),
        Duel("Store.batches", "pyarrow, one thread", ">= 0.5"),
        Duel("Store.rows", "pyarrow, threads"),
        Duel("Store.rows", "pyarrow, to_pylist"),
    ]
    print_header(f"Reading a store in order: {rows:,} windows, {named}, {ROUNDS} rounds")
    print_duels(take_turns(contenders, ROUNDS), duels, rows / 1e3, "thousand rows/s")


def scan(path: Path, columns: list[str] | None, threads: bool) -> Iterator[pa.RecordBatch]:
    return ds.dataset(path / SHARDS, format="parquet").scanner(columns=columns, use_threads=threads).to_batches()


def python_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[dict]:
    for batch in batches:
        yield from batch.to_pylist()


def count(batches: Iterable[pa.RecordBatch | pa.Table], expected: int) -> None:
    """Reads to the end; a contender that skipped rows would look fast."""
    check_rows(sum(batch.num_rows for batch in batches), expected)


def count_rows(rows: Iterable[dict], expected: int) -> None:
    check_rows(sum(1 for _ in rows), expected)


def check_rows(found: int, expected: int) -> None:
    if found != expected:
        raise SystemExit(f"{found} rows were read, the store has {expected}")


def measure_take(path: Path) -> None:
    """Rows at random, as a trainer that shuffles across the whole store would ask for them."""
    rows = len(Store(str(path)))
    generator = np.random.default_rng(0)
    draws = [generator.integers(rows, size=ROWS_AT_ONCE) for _ in range(DRAWS)]
    contenders: dict[str, Callable[[], object]] = {
        "Store.take": lambda: take(Store(str(path)), draws),
        "pyarrow, whole table": lambda: take_from_table(path, draws),
    }
    print_header(f"Reading rows at random: {DRAWS} times {ROWS_AT_ONCE} of {rows:,}, all columns, {ROUNDS} rounds")
    seconds = take_turns(contenders, ROUNDS)
    print_duels(seconds, [Duel("Store.take", "pyarrow, whole table")], DRAWS * ROWS_AT_ONCE / 1e3, "thousand rows/s")


def take(store: Store, draws: Sequence[np.ndarray]) -> None:
    for rows in draws:
        check_rows(len(store.take(rows)), len(rows))


def take_from_table(path: Path, draws: Sequence[np.ndarray]) -> None:
    """The whole store into memory, once for all draws: what a store's size soon forbids."""
    table = ds.dataset(path / SHARDS, format="parquet").to_table()
    for rows in draws:
        check_rows(len(table.take(rows)), len(rows))


if __name__ == "__main__":
    main()
