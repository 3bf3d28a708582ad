"""Reading a store: its rows in order, or any row by its number, without reading what comes before it."""

import bisect
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import schemas
from pipeline.runtime import files
from pipeline.runtime.errors import UserError
from pipeline.runtime.html import html_table
from pipeline.runtime.hub import is_hub
from pipeline.stores.manifest import Manifest, read_manifest
from pipeline.stores.shards import Shard, footer_of

MANY = 10**8  # rows
TOKEN_COLUMNS = {"tokens", "negatives"}


class Store:
    """A finished store, opened for reading. Rows are numbered from 0 through all shards.

    Opening reads the manifest alone. A reader holds a few row groups, about a megabyte each, whatever the
    store's size; it can be pickled and sent to another process.
    """

    CACHED_GROUPS = 16
    OPEN_SHARDS = 64
    GROUPS_AHEAD = 4
    READERS = 2

    def __init__(self, path: str, kind: str | None = None):
        self.path = path
        self.manifest: Manifest = read_manifest(path)
        if kind and self.manifest.kind != kind:
            raise UserError(f"{path}: a store of {self.manifest.kind}, but one of {kind} is needed here")
        if self.manifest.rows > MANY and files.is_local(path):
            self._check_sizes()
        self.schema: pa.Schema = schemas.SCHEMAS[self.manifest.kind]
        self._vocabulary = int(self.manifest.tokenizer["vocabulary_size"])
        self._ends = list(accumulate(shard.rows for shard in self.manifest.shards))
        self._open: OrderedDict[int, _OpenShard] = OrderedDict()
        self._groups: OrderedDict[tuple[int, int, tuple[str, ...]], pa.Table] = OrderedDict()
        self._lock = threading.Lock()

    def _check_sizes(self) -> None:
        """Holds a claim of very many rows against the files, before memory is asked for by it."""
        for shard in self.manifest.shards:
            url = files.join(self.path, shard.file)
            if (size := files.info(url).size or 0) != shard.bytes:
                raise UserError(f"{url}: {size} bytes, the manifest says {shard.bytes}: {mending(self.path)}")

    def __reduce__(self) -> tuple[Any, ...]:
        return Store, (self.path, self.manifest.kind)

    def __len__(self) -> int:
        return self.manifest.rows

    def _repr_html_(self) -> str:
        """In a notebook: what the manifest says of the store."""
        manifest = self.manifest
        settings = {name: manifest.settings.get(name) for name in ("corpus", "split", "window", "context_lengths")}
        generator, sampling = manifest.generator or {}, manifest.sampling or {}
        facts = {
            "rows": f"{len(self):,}",
            "shards": f"{len(manifest.shards):,}, {manifest.bytes / 1e6:,.1f} MB",
            **settings,
            "vocabulary": manifest.tokenizer.get("vocabulary_size"),
            "generator": generator.get("path"),
            "sampling": ", ".join(f"{name} {value}" for name, value in sampling.items()),
            "columns": ", ".join(self.schema.names),
            "digest": manifest.digest,
            "made": f"{manifest.created}, by version {manifest.code_version}",
        }
        shown = [(name, value) for name, value in facts.items() if value not in (None, "")]
        return html_table(f"Store of {manifest.kind}: {self.path}", shown)

    def batches(self, columns: Sequence[str] | None = None, shards: Sequence[int] | None = None) -> Iterator[pa.Table]:
        """The rows of all shards, or of some, in order, as Arrow tables of one row group each."""
        names = self._names(columns)
        wanted = self.manifest.shards if shards is None else [self.manifest.shards[number] for number in shards]
        # Two threads, each with a handle of its own, decode ahead of whoever uses the rows.
        with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other:
            ahead: deque[Future[pa.Table]] = deque()
            for shard in wanted:
                opening = [
                    pool.submit(_OpenShard, self.path, shard, self.schema, self._vocabulary) for pool in (one, other)
                ]
                readers = list(zip((one, other), (future.result() for future in opening), strict=True))
                for group in range(readers[0][1].groups):
                    pool, reader = readers[group % 2]
                    ahead.append(pool.submit(reader.read, group, names))
                    if len(ahead) > self.GROUPS_AHEAD:
                        yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()

    def rows(self, columns: Sequence[str] | None = None) -> Iterator[dict[str, Any]]:
        """The rows one by one, in order; lists of numbers are NumPy arrays."""
        names = self._names(columns)
        for table in self.batches(names):
            for values in zip(*(_values(table[name]) for name in names), strict=True):
                yield dict(zip(names, values, strict=True))

    def __getitem__(self, row: int) -> dict[str, Any]:
        table = self.take([row])
        return {name: _values(table[name])[0] for name in table.column_names}

    def take(self, rows: Sequence[int] | np.ndarray, columns: Sequence[str] | None = None) -> pa.Table:
        """The given rows, in the given order. Only the row groups that hold them are read."""
        names = self._names(columns)
        wanted = np.asarray(rows, np.int64)
        if len(wanted) and not 0 <= wanted.min() <= wanted.max() < len(self):
            raise IndexError(
                f"{self.path}: rows 0 to {len(self) - 1} exist, asked for {wanted.min()} to {wanted.max()}"
            )
        if not len(wanted):
            return self.schema.empty_table().select(list(names))
        order = np.argsort(wanted, kind="stable")
        ascending = wanted[order]
        owners = np.searchsorted(self._ends, ascending, side="right")
        numbers, firsts = np.unique(owners, return_index=True)
        parts = [
            (number, rows - self._ends[number] + self.manifest.shards[number].rows)
            for number, rows in zip(numbers.tolist(), np.split(ascending, firsts[1:]), strict=True)
        ]
        if len(parts) == 1:
            found = [self._take_of_shard(parts[0], names)]
        else:  # shards beside each other: a thread waits for a file, or decodes, while another does
            with ThreadPoolExecutor(self.READERS) as pool:
                found = list(pool.map(lambda part: self._take_of_shard(part, names), parts))
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return pa.concat_tables([piece for pieces in found for piece in pieces]).take(back)

    def _take_of_shard(self, part: tuple[int, np.ndarray], names: tuple[str, ...]) -> list[pa.Table]:
        """Of a shard and its rows, numbered within it and ascending: tables of one row group each."""
        number, rows = part
        pieces, ends, position = [], self._shard(number).ends, 0
        while position < len(rows):
            group = bisect.bisect_right(ends, int(rows[position]))
            after = int(np.searchsorted(rows, ends[group]))
            start = ends[group - 1] if group else 0
            pieces.append(self._group(number, group, names).take(rows[position:after] - start))
            position = after
        return pieces

    def _names(self, columns: Sequence[str] | None) -> tuple[str, ...]:
        names = tuple(self.schema.names if columns is None else columns)
        for name in names:
            if name not in self.schema.names:
                raise UserError(f"{self.path}: no column {name!r}, there are {', '.join(self.schema.names)}")
        return names

    def _shard(self, number: int) -> "_OpenShard":
        def open_shard() -> _OpenShard:
            return _OpenShard(self.path, self.manifest.shards[number], self.schema, self._vocabulary)

        return _kept(self._open, number, open_shard, self.OPEN_SHARDS, self._lock)

    def _group(self, number: int, group: int, names: tuple[str, ...]) -> pa.Table:
        def read() -> pa.Table:
            return self._shard(number).read(group, names)

        return _kept(self._groups, (number, group, names), read, self.CACHED_GROUPS, self._lock)


class _OpenShard:
    """One shard's Parquet file, its size checked against the manifest, its pages against their checksums."""

    def __init__(self, store: str, shard: Shard, schema: pa.Schema, vocabulary: int):
        self.url, self.vocabulary = files.join(store, shard.file), vocabulary
        self.mend = mending(store)
        try:
            source = files.open_random(self.url)
            if source.size() != shard.bytes:
                raise UserError(f"{self.url}: {source.size()} bytes, the manifest says {shard.bytes}: {self.mend}")
            self.file = pq.ParquetFile(source, page_checksum_verification=True, pre_buffer=False)
        except (OSError, pa.ArrowException) as error:
            raise UserError(f"{self.url}: cannot be read ({error}): {self.mend}") from None
        if not self.file.schema_arrow.equals(schema) or self.file.metadata.num_rows != shard.rows:
            raise UserError(f"{self.url}: not the shard that the manifest describes: {self.mend}")
        # Another whole shard, of as many rows and bytes, says so itself.
        if footer_of(self.file.schema_arrow).get("content") != shard.rows_digest:
            raise UserError(f"{self.url}: its rows are not those of the manifest: {self.mend}")
        self.groups = self.file.num_row_groups
        self.ends = list(accumulate(self.file.metadata.row_group(group).num_rows for group in range(self.groups)))
        self.lock = threading.Lock()

    def read(self, group: int, names: tuple[str, ...]) -> pa.Table:
        try:
            with self.lock:  # a handle of Parquet's reads one thing at a time
                table = self.file.read_row_group(group, columns=list(names)).select(list(names))
        except (OSError, pa.ArrowException) as error:
            raise UserError(f"{self.url}: row group {group} cannot be read ({error}): {self.mend}") from None
        for name in TOKEN_COLUMNS.intersection(names):
            self.check_ids(table[name], name)
        return table

    def check_ids(self, column: pa.ChunkedArray, name: str) -> None:
        """Every token is one of the tokenizer's: no network would know another."""
        for chunk in column.chunks:
            while pa.types.is_list(chunk.type):
                chunk = chunk.flatten()
            ends = pc.min_max(chunk).as_py()
            if len(chunk) and not 0 <= ends["min"] <= ends["max"] < self.vocabulary:
                raise UserError(
                    f"{self.url}: {name} has the id {ends['max'] if ends['min'] >= 0 else ends['min']}, and the "
                    f"tokenizer {self.vocabulary} pieces: {self.mend}"
                )


def mending(store: str) -> str:
    if is_hub(store):
        return "it changed while it was read, or was damaged there: run the same command again, or have it sent again"
    return f"run pipeline/verify_store.py {store} --repair"


def _kept(cache: OrderedDict[Any, Any], key: Any, make: Callable[[], Any], size: int, lock: threading.Lock) -> Any:
    """What a cache of the last `size` things has of a key, or what is made, outside of the lock."""
    with lock:
        if key in cache:
            cache.move_to_end(key)
            return cache[key]
    made = make()
    with lock:
        cache[key] = made
        while len(cache) > size:
            cache.popitem(last=False)
    return made


def _values(column: pa.ChunkedArray) -> list[Any]:
    """A column's values; lists of numbers as views into one NumPy array, which costs no copy a row."""
    array = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    type = array.type
    if not (pa.types.is_list(type) and pa.types.is_primitive(type.value_type)) or array.null_count:
        return list(array.to_pylist())
    flat, offsets = array.values.to_numpy(), array.offsets.to_numpy().tolist()
    return [flat[start:end] for start, end in pairwise(offsets)]
