"""Batches, and who reads what of them: the same ones on any number of ranks, and little more than is used."""

import hashlib
import shutil
from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest

from pipeline.stores import reader
from pipeline.stores.manifest import read_manifest, write_manifest
from pipeline.stores.reader import Store
from training.data import loader, order
from training.data.loader import Loader
from training.data.mixture import Mixture

GROUP = 20  # rows


def forget() -> None:
    for cached in (order._starts, order._span, order._blocks):
        cached.cache_clear()


@pytest.fixture
def small_blocks(monkeypatch):
    """Constants with which the 3,000 rows of the tests' store are many spans of a large store."""
    monkeypatch.setattr(order, "LARGE_BLOCK", 48)
    monkeypatch.setattr(order, "BLOCKS_PER_SPAN", 8)
    monkeypatch.setattr(order, "LARGE", 8 * 48)
    forget()
    yield
    forget()


@pytest.fixture(scope="module")
def finely_grouped(stores, tmp_path_factory) -> Store:
    """The tests' store, in row groups of 20 rows."""
    folder = tmp_path_factory.mktemp("grouped") / "store"
    shutil.copytree(stores.train.path, folder)
    manifest, shards = read_manifest(str(folder)), []
    for shard in manifest.shards:
        path = folder / shard.file
        pq.write_table(pq.read_table(path), path, write_page_checksum=True, row_group_size=GROUP)
        content = path.read_bytes()
        shards.append(replace(shard, bytes=len(content), file_digest=hashlib.sha256(content).hexdigest()))
    write_manifest(str(folder), replace(manifest, shards=shards))
    return Store(str(folder))


def batches_of(store, ranks: int, start: int, stop: int, size: int = 24) -> list[tuple[list[int], list[str]]]:
    """Every step's places and window ids, those of all ranks together, in the order of their places."""
    shares = [list(Loader(store, ["window_id"], size, 5, rank, ranks).batches(start, stop)) for rank in range(ranks)]
    found = []
    for step in zip(*shares, strict=True):
        assert {(len(rows), len(places)) for rows, places in step} == {(size // ranks, size // ranks)}
        assert all((np.diff(places) > 0).all() for _, places in step)
        pairs = [pair for rows, places in step for pair in zip(places, rows["window_id"].to_pylist(), strict=True)]
        found.append(tuple(map(list, zip(*sorted(pairs), strict=True))))
    return found


@pytest.mark.parametrize("large", [False, True])
def test_the_ranks_shares_are_the_batch_and_a_run_continues_on_any_number_of_them(large, stores, request):
    if large:
        request.getfixturevalue("small_blocks")
    ids = stores.train.take(range(3000), ["window_id"])["window_id"].to_numpy()
    alone = batches_of(stores.train, 1, 0, 300)
    rows = order.rows_at(0, 300 * 24, 3000, 5)
    assert [places for places, _ in alone] == np.arange(300 * 24).reshape(300, 24).tolist()
    assert [found for _, found in alone] == ids[rows].reshape(300, 24).tolist()
    for ranks, start in ((2, 0), (3, 120), (8, 177), (24, 290)):
        assert batches_of(stores.train, ranks, start, 300) == alone[start:], ranks
    assert (Loader(stores.train, [], 24, 5).rows(177) == rows[177 * 24 : 178 * 24]).all()


def test_a_batch_may_be_larger_than_the_store(stores):
    alone = batches_of(stores.valid, 1, 0, 3, size=960)  # of 200 rows
    assert batches_of(stores.valid, 64, 1, 3, size=960) == alone[1:]
    assert Counter(alone[0][1]).most_common(1)[0][1] == 5


def test_the_rows_of_a_mixture_are_shared_too_also_where_a_rank_has_none_of_a_span(stores):
    mixture = Mixture([stores.valid, stores.valid])
    assert batches_of(mixture, 64, 10, 20, size=64) == batches_of(mixture, 1, 10, 20, size=64)


@pytest.mark.parametrize("ranks", [1, 4, 8, 16])
def test_a_rank_reads_little_more_than_its_rows(ranks, finely_grouped, small_blocks, monkeypatch):
    """Row groups as they are really read: of the rows of a span, 8 blocks of 48, a rank reads its own part."""
    read: list[tuple[str, int]] = []
    real = reader._OpenShard.read

    def counted(shard, group, names):
        read.append((shard.url, group))
        return real(shard, group, names)

    monkeypatch.setattr(reader._OpenShard, "read", counted)
    monkeypatch.setattr(Store, "CACHED_GROUPS", 0)
    used = 0
    for rank in range(ranks):
        store = Store(finely_grouped.path)
        used += sum(len(rows) for rows, _ in Loader(store, ["tokens"], 64, 5, rank, ranks).batches(0, 40))
    assert used == 40 * 64
    # A block begins anywhere in a row group: 1 + 20 / 48 times its rows. Two of 16 ranks share one, and read most.
    assert len(read) * GROUP / used < (2.5 if ranks == 16 else 1.7)


def test_what_is_read_at_once_is_bounded(stores, monkeypatch):
    monkeypatch.setattr(loader, "MOST_ROWS", 100)
    alone = batches_of(stores.train, 1, 0, 50)
    monkeypatch.undo()
    assert alone == batches_of(stores.train, 1, 0, 50)
    monkeypatch.setattr(loader, "MOST_ROWS", 100)
    assert max(stop - start for start, stop in Loader(stores.train, [], 24, 5).stretches(0, 50)) == 100
