"""What a store's folder holds: its tokenizer, and shards, each written whole or not at all, each its own proof.

A shard's footer names the settings that its rows depend on and carries a digest of the rows. So a shard that a
killed run left behind is known to be finished and intact without the manifest, which is written last. Its name has its
number and the beginning of that digest: two workers who make the same shard write the same file if their rows agree,
and different files if they do not (an engine on GPUs does not repeat itself). The manifest says which one counts.
"""

import hashlib
import io
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import schemas
from pipeline.runtime import files

SHARDS = "shards"
TOKENIZER_FOLDER = "tokenizer"
TOKENIZER_FILES = ("tokenizer_config.json", "tokenizer.json")
ROW_GROUP_BYTES = 1 << 20  # a reader's unit: small enough that its memory stays flat, whatever the shard's size
ROW_GROUP_ROWS = 4096
FOOTER_KEY = b"residual_ebm"


@dataclass(frozen=True)
class Shard:
    """What a manifest says of one shard: its digests are those of the file's bytes and of the rows themselves."""

    file: str
    rows: int
    bytes: int
    file_digest: str
    rows_digest: str

    def to_json(self) -> dict[str, Any]:
        """As a manifest lists it, where the two digests are called `digest` and `content`."""
        facts = {"file": self.file, "rows": self.rows, "bytes": self.bytes}
        return facts | {"digest": self.file_digest, "content": self.rows_digest}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "Shard":
        return cls(content["file"], content["rows"], content["bytes"], content["digest"], content["content"])


def shard_file(number: int, rows_digest: str) -> str:
    return f"{SHARDS}/{number:05d}-{rows_digest[:8]}.parquet"


def shard_files(store: str) -> dict[int, list[str]]:
    """The files in a store that may be its shards, by their numbers; of equals the first by name comes first."""
    found: dict[int, list[str]] = {}
    for name in files.names_in(files.join(store, SHARDS)):
        if (number := number_of(name)) is not None:
            found.setdefault(number, []).append(f"{SHARDS}/{name}")
    return found


def number_of(name: str) -> int | None:
    """The number of the shard that a file is by its name."""
    match = re.fullmatch(r"(\d{5,})(-[0-9a-f]{8})?\.parquet", name.removeprefix(f"{SHARDS}/"))
    return int(match[1]) if match else None


def digest_of_rows(table: pa.Table) -> str:
    """SHA-256 of the rows, whatever file format, chunking or library version carried them."""
    digest = hashlib.sha256()
    for field, column in zip(table.schema, table.columns, strict=True):
        digest.update(f"{field.name}\0{field.type}\0{len(column)}\0".encode())
        _feed(digest, pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], field.type))
    return digest.hexdigest()


def _feed(digest: Any, array: pa.Array) -> None:
    if array.null_count:
        digest.update(np.packbits(array.is_valid().to_numpy(zero_copy_only=False)).tobytes())
    if pa.types.is_list(array.type):
        digest.update(array.value_lengths().fill_null(0).to_numpy().astype("<i4").tobytes())
        _feed(digest, array.flatten())
    elif pa.types.is_string(array.type):
        lengths = pc.binary_length(array).fill_null(0).to_numpy()
        digest.update(lengths.astype("<i4").tobytes())
        digest.update("".join(array.drop_null().to_pylist()).encode())
    else:
        values = array.fill_null(0) if array.null_count else array
        digest.update(np.ascontiguousarray(values.to_numpy(zero_copy_only=False)).tobytes())


def write_shard(store: str, number: int, table: pa.Table, settings_digest: str) -> Shard:
    """Writes shard `number` of a store atomically. The same rows give the same bytes.

    `settings_digest` is of the settings and of everything else that the rows depend on.
    """
    rows_digest = digest_of_rows(table)
    data = to_parquet(table, {"settings": settings_digest, "shard": number, "content": rows_digest})
    file = shard_file(number, rows_digest)
    files.put(files.join(store, file), data)
    return _describe(file, data, len(table), rows_digest)


def to_parquet(table: pa.Table, footer: dict[str, Any]) -> pa.Buffer:
    """A file of these rows, with something to know of them in its footer."""
    with_footer = table.replace_schema_metadata({FOOTER_KEY: json.dumps(footer, sort_keys=True).encode()})
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        with_footer.schema,
        compression="zstd",
        use_dictionary=[field.name for field in table.schema if _repeats(field)],
        column_encoding=_number_encodings(table.schema),
        write_page_checksum=True,
    ) as writer:
        if len(table):  # a row group of no rows is more than some readers can take
            rows = max(1, min(ROW_GROUP_ROWS, ROW_GROUP_BYTES * len(table) // table.nbytes))
            writer.write_table(with_footer, row_group_size=rows)
    return sink.getvalue()


def from_parquet(data: bytes, wanted: dict[str, Any]) -> tuple[pa.Table, dict[str, Any]] | None:
    """The rows of such a file and its footer, if that says what is wanted and every row is as it was written."""
    try:
        table = pq.read_table(io.BytesIO(data), page_checksum_verification=True)
        footer = json.loads((table.schema.metadata or {})[FOOTER_KEY])
    except (pa.ArrowException, OSError, KeyError, ValueError):
        return None
    same = all(footer.get(name) == value for name, value in wanted.items())
    return (table, footer) if same and digest_of_rows(table) == footer.get("content") else None


def _repeats(field: pa.Field) -> bool:
    return pa.types.is_string(field.type) and field.name != "window_id"


def _number_encodings(schema: pa.Schema) -> dict[str, str]:
    """Splitting numbers by byte before zstd: a sixth smaller and half the time of plain values, for token ids."""
    encodings = {}
    for field in schema:
        path, type = field.name, field.type
        while pa.types.is_list(type):
            path, type = f"{path}.list.element", type.value_type
        if pa.types.is_primitive(type):
            encodings[path] = "BYTE_STREAM_SPLIT"
    return encodings


def _describe(file: str, data: bytes | pa.Buffer, rows: int, rows_digest: str) -> Shard:
    return Shard(file, rows, len(data), hashlib.sha256(data).hexdigest(), rows_digest)


def finished_shard(store: str, names: Iterable[str], kind: str, settings_digest: str) -> Shard | None:
    """The first of these files that was written with these settings and whose every row is still as it was written."""
    for name in names:
        try:
            data = files.read(files.join(store, name))
        except FileNotFoundError:
            continue
        found = from_parquet(data, {"settings": settings_digest, "shard": number_of(name)})
        if found is not None and found[0].schema.equals(schemas.SCHEMAS[kind]):
            return _describe(name, data, len(found[0]), found[1]["content"])
    return None


def is_copy(store: str, name: str, shard: Shard) -> bool:
    """Whether a file is another worker's making of this shard, with the same settings."""
    mine, other = (_footer(files.join(store, file)) for file in (shard.file, name))
    return bool(mine) and (mine.get("settings"), mine.get("shard")) == (other.get("settings"), other.get("shard"))


def _footer(url: str) -> dict[str, Any]:
    try:
        with files.open_random(url) as source:
            return footer_of(pq.read_schema(source))
    except (pa.ArrowException, OSError):
        return {}


def footer_of(schema: pa.Schema) -> dict[str, Any]:
    """What a shard's footer says of it; nothing where there is none that can be read."""
    try:
        return dict(json.loads((schema.metadata or {})[FOOTER_KEY]))
    except (KeyError, ValueError, TypeError, RecursionError):
        return {}


def remove_others(store: str, shards: list[Shard]) -> None:
    """Removes the files beside a store's shards: those of an earlier run that had more of them, and second makings.

    What another worker is writing just now is left to it.
    """
    written = {shard.file for shard in shards}
    for name in files.names_in(files.join(store, SHARDS)):
        if f"{SHARDS}/{name}" not in written and not files.is_temporary(name):
            files.remove(store, SHARDS, name)
