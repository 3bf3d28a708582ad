import json
import pickle
import random
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import schemas
from pipeline.runtime.errors import UserError
from pipeline.stores import shards as shards_module
from pipeline.stores.manifest import Manifest, read_manifest, write_manifest
from pipeline.stores.reader import Store
from pipeline.stores.shards import Shard, digest_of_rows, finished_shard, shard_files, to_parquet, write_shard
from tests.helpers.stores import shard_path

ROWS = (500, 0, 1300, 1)


def window_table(rows: int, seed: int, length: int = 16) -> pa.Table:
    rng = np.random.default_rng(seed)
    columns = {
        "window_id": [rng.bytes(16).hex() for _ in range(rows)],
        "corpus": ["c"] * rows,
        "split": ["train"] * rows,
        "document": [rng.choice(["d1", "d2", "é"]) for _ in range(rows)],
        "offset": rng.integers(0, 1 << 40, rows),
        "tokens": list(rng.integers(0, 50_000, (rows, length), np.int32)),
    }
    return pa.Table.from_pydict(columns, schema=schemas.WINDOWS)


def make_store(folder, tables, kind="windows", vocabulary=50_000):
    written = [write_shard(str(folder), number, table, "s") for number, table in enumerate(tables)]
    tokenizer = {"digest": "0" * 64, "encoding": "1" * 64, "vocabulary_size": vocabulary, "eos_token_id": 8}
    write_manifest(
        str(folder),
        Manifest(kind, written, {}, tokenizer, None, 0, ["pipeline/make_windows.py"], "/", {}),
    )
    return str(folder)


@pytest.fixture
def tables(monkeypatch):
    monkeypatch.setattr(shards_module, "ROW_GROUP_ROWS", 100)
    return [window_table(rows, seed) for seed, rows in enumerate(ROWS)]


@pytest.fixture
def path(tables, tmp_path):
    return make_store(tmp_path / "store", tables)


def test_rows_come_back_in_order_and_are_counted_without_reading_them(path, tables):
    store, whole = Store(path, "windows"), pa.concat_tables(tables)
    assert len(store) == sum(ROWS)
    assert pa.concat_tables(store.batches()).equals(whole)
    assert max(len(batch) for batch in store.batches()) == 100
    rows = list(store.rows(["offset", "tokens"]))
    assert [row["offset"] for row in rows] == whole["offset"].to_pylist()
    assert [row["tokens"].tolist() for row in rows] == whole["tokens"].to_pylist()
    assert next(batch.column_names for batch in store.batches(["tokens", "split"])) == ["tokens", "split"]
    assert pa.concat_tables(store.batches(shards=[2])).equals(tables[2])


@pytest.mark.parametrize("columns", [None, ["tokens"], ["offset", "window_id"]])
def test_any_rows_in_any_order(path, tables, columns):
    store, whole = Store(path), pa.concat_tables(tables)
    rng = random.Random(0)
    for rows in ([0], [1800], [499, 500, 501], rng.choices(range(1801), k=700), [5, 5, 5], list(range(1801))[::-1], []):
        expected = whole.take(pa.array(rows, pa.int64())).select(columns or whole.column_names)
        assert store.take(rows, columns).equals(expected)
    assert store[1800]["tokens"].tolist() == whole["tokens"][1800].as_py()


def test_rows_that_do_not_exist_and_columns_that_do_not_are_named(path):
    with pytest.raises(IndexError, match="rows 0 to 1800 exist, asked for 7 to 1801"):
        Store(path).take([7, 1801])
    with pytest.raises(UserError, match="no column 'energy', there are window_id"):
        next(Store(path).batches(["energy"]))


def test_a_row_is_read_without_what_comes_before_it_and_damage_is_named(path, tables):
    store = Store(path)
    url = shard_path(path, 2)
    chunk = pq.ParquetFile(url).metadata.row_group(0).column(5)
    data = bytearray(url.read_bytes())
    data[chunk.data_page_offset + chunk.total_compressed_size // 2] ^= 1
    url.write_bytes(data)
    assert store[500 + 1299]["tokens"].tolist() == tables[2]["tokens"][1299].as_py()
    with pytest.raises(UserError, match=r"00002-\w+.parquet: row group 0 cannot be read .*verify_store.py .* --repair"):
        store.take([500])


@pytest.mark.parametrize("id", [-1, 50_000])
def test_an_id_that_the_tokenizer_does_not_have_is_named(tmp_path, tables, id):
    bad = tables[0].to_pylist()
    bad[499]["tokens"][3] = id
    path = make_store(tmp_path / "bad", [pa.Table.from_pylist(bad, schema=schemas.WINDOWS)])
    assert len(Store(path).take([0, 399], ["tokens"])) == 2  # other row groups
    with pytest.raises(UserError, match=rf"00000-\w+.parquet: tokens has the id {id}, and the tokenizer 50000 pieces"):
        Store(path).take([499], ["tokens"])
    with pytest.raises(UserError, match="tokens has the id"):
        list(Store(path).batches())
    negatives = pa.table({"negatives": [[[1, 2], [3, id]], []]})
    with pytest.raises(UserError, match="negatives has the id"):
        Store(path)._shard(0).check_ids(negatives["negatives"], "negatives")


def test_a_shard_of_another_size_is_not_read(path):
    with open(shard_path(path, 0), "ab") as file:
        file.write(b"x")
    with pytest.raises(UserError, match=r"00000-\w+.parquet: \d+ bytes, the manifest says \d+"):
        next(Store(path).batches())


def test_a_store_of_another_kind_or_version_is_refused(path):
    with pytest.raises(UserError, match="a store of windows, but one of negatives is needed"):
        Store(path, "negatives")
    content = json.loads(Path(path, "manifest.json").read_text())
    Path(path, "manifest.json").write_text(json.dumps(content | {"schema_version": 2}))
    with pytest.raises(UserError, match=r"manifest.json: schema version 2, this code reads 1"):
        Store(path)


def test_a_manifest_that_was_tampered_with_is_refused(path):
    content = json.loads(Path(path, "manifest.json").read_text())
    content["seed"] = 1
    Path(path, "manifest.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match="it has changed since it was written"):
        Store(path)


def test_a_reader_can_be_sent_to_another_process(path):
    store = pickle.loads(pickle.dumps(Store(path)))
    assert store[3]["window_id"] == Store(path)[3]["window_id"]


def test_pandas_duckdb_and_datasets_read_the_shards_as_they_are(path, tables):
    import datasets

    whole = pa.concat_tables(tables)
    frame = pd.read_parquet(f"{path}/shards")
    assert frame["tokens"].map(list).tolist() == whole["tokens"].to_pylist()
    rows = duckdb.sql(f"select window_id, tokens from '{path}/shards/*.parquet' order by window_id").fetchall()
    expected = sorted(zip(whole["window_id"].to_pylist(), whole["tokens"].to_pylist(), strict=True))
    assert [(id, list(tokens)) for id, tokens in rows] == expected
    loaded = datasets.load_dataset("parquet", data_files=f"{path}/shards/*.parquet", split="train", streaming=True)
    assert [row["offset"] for row in loaded] == whole["offset"].to_pylist()


def test_the_same_rows_give_the_same_bytes_and_other_rows_another_digest(tmp_path):
    table = window_table(300, 0)
    chunked = pa.concat_tables([table[:7], table[7:]])
    first, second = write_shard(str(tmp_path / "a"), 0, table, "s"), write_shard(str(tmp_path / "b"), 0, chunked, "s")
    assert first == second
    assert digest_of_rows(table[:299]) != digest_of_rows(table)
    swapped = table.set_column(
        5, schemas.WINDOWS.field("tokens"), table["tokens"].take(pa.array([1, 0, *range(2, 300)]))
    )
    assert digest_of_rows(swapped) != digest_of_rows(table)


def test_a_shard_keeps_the_keys_that_manifests_have():
    shard = Shard("shards/00000.parquet", rows=3, bytes=100, file_digest="a" * 64, rows_digest="b" * 64)
    listed = {"file": "shards/00000.parquet", "rows": 3, "bytes": 100, "digest": "a" * 64, "content": "b" * 64}
    assert shard.to_json() == listed
    assert Shard.from_json(listed) == shard


def test_the_digest_of_rows_sees_nulls_lists_and_nothing_of_the_encoding(tmp_path):
    def negatives(log_p, tokens):
        row = {"window_id": "w", "corpus": "c", "split": "s", "tokens": [1, 2], "direction": "left_to_right"}
        row |= {"context_length": 1, "positive_log_p": None, "first_sample": 0, "negatives": tokens, "seed": 1}
        return pa.Table.from_pylist([row | {"log_p": log_p, "log_q": log_p}] * 2, schema=schemas.NEGATIVES)

    variants = [
        negatives(None, [[1], [2]]),
        negatives([], [[1], [2]]),
        negatives([0.0], [[1, 2]]),
        negatives([0.0], [[1], [2]]),
    ]
    assert len({digest_of_rows(table) for table in variants}) == 4
    pq.write_table(variants[3], tmp_path / "x.parquet", compression="snappy", row_group_size=1, use_dictionary=True)
    assert digest_of_rows(pq.read_table(tmp_path / "x.parquet")) == digest_of_rows(variants[3])
    shard = write_shard(str(tmp_path), 7, variants[0], "s")
    assert finished_shard(str(tmp_path), [shard.file], "negatives", "s") == shard


def test_a_left_over_shard_counts_only_if_it_is_whole_and_of_this_run(tmp_path):
    store = str(tmp_path)
    shard = write_shard(store, 1, window_table(50, 0), "settings")
    assert shard_files(store) == {1: [shard.file]}
    assert finished_shard(store, [shard.file], "windows", "settings") == shard
    assert finished_shard(store, [], "windows", "settings") is None
    assert finished_shard(store, ["shards/00001-gone.parquet", shard.file], "windows", "settings") == shard
    assert finished_shard(store, [shard.file], "windows", "other settings") is None
    url = tmp_path / shard.file
    data = url.read_bytes()
    copy = shard.file.replace("00001", "00002")
    (tmp_path / copy).write_bytes(data)  # under another number
    assert finished_shard(store, [copy], "windows", "settings") is None
    rng = random.Random(1)
    for _ in range(60):
        position = rng.randrange(len(data))
        url.write_bytes(data[:position] + bytes([data[position] ^ 1 << rng.randrange(8)]) + data[position + 1 :])
        found = finished_shard(store, [shard.file], "windows", "settings")
        # A flip that changes no row (a statistic, padding) may pass here; the rows never differ.
        assert found is None or (found.rows_digest == shard.rows_digest and found.file_digest != shard.file_digest)
    url.write_bytes(data[: len(data) // 2])
    assert finished_shard(store, [shard.file], "windows", "settings") is None


def test_the_manifest_reads_back_as_it_was_written(path):
    manifest = read_manifest(path)
    assert manifest.rows == 1801
    assert [shard.rows for shard in manifest.shards] == list(ROWS)
    assert manifest.versions["pyarrow"] == pa.__version__
    assert manifest.code_version.startswith("0.1.0")


def test_a_notebook_shows_what_the_manifest_says_and_runs_nothing_of_it(tmp_path):
    path = make_store(tmp_path / "store", [window_table(rows, seed) for seed, rows in enumerate(ROWS)])
    manifest = read_manifest(path)
    hostile = "<script>alert('x')</script>"
    manifest.settings.update(corpus=hostile, window=16)
    write_manifest(path, manifest)
    page = Store(path)._repr_html_()
    assert f"<caption>Store of windows: {path}</caption>" in page
    assert "<tr><th>rows</th><td>1,801</td></tr>" in page
    assert "<tr><th>window</th><td>16</td></tr>" in page
    assert manifest.digest in page
    assert "<tr><th>corpus</th><td>&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;</td></tr>" in page
    assert "<script" not in page
    assert "generator" not in page  # windows have none


def of_one_size(rows: int) -> tuple[pa.Table, pa.Table]:
    """Two tables of other rows whose shards have as many bytes."""
    found: dict[int, pa.Table] = {}
    for seed in range(1000):
        table = window_table(rows, seed)
        size = len(to_parquet(table, {"settings": "s", "shard": 0, "content": "0" * 64}))
        if size in found:
            return found[size], table
        found[size] = table
    raise AssertionError("no two of them")


def test_a_whole_shard_in_the_place_of_another_one_is_not_read(tmp_path):
    mine, other = of_one_size(20)
    path = make_store(tmp_path / "store", [mine])
    theirs = shard_path(make_store(tmp_path / "other", [other]), 0)
    shard = shard_path(path, 0)
    assert theirs.stat().st_size == shard.stat().st_size
    shard.write_bytes(theirs.read_bytes())
    match = r"00000-\w+.parquet: its rows are not those of the manifest: run pipeline/verify_store.py"
    with pytest.raises(UserError, match=match):
        next(Store(path).batches())
    with pytest.raises(UserError, match=match):
        Store(path)[3]
