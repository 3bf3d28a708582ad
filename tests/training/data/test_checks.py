"""What is looked at before a training begins: how many negatives there are, and whether their numbers are numbers."""

import hashlib
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.runtime.errors import UserError
from pipeline.stores.manifest import read_manifest, write_manifest
from pipeline.stores.reader import Store
from training.data.checks import count_negatives, fewest_negatives
from training.data.mixture import Mixture


def test_as_many_negatives_are_used_as_every_row_has(negatives, backwards):
    three, one = Mixture([negatives.valid]), Mixture([backwards])
    assert count_negatives(None, three, three) == 3
    assert count_negatives(2, three, three) == 2
    assert count_negatives(None, three, one) == 1
    with pytest.raises(UserError, match=f"--negatives 2: there are rows with 1 in {backwards.path}"):
        count_negatives(2, three, one)


def changed_store(source: Store, folder: Path, change) -> str:
    """A copy of a store whose first shard was rewritten, with a manifest that believes in it."""
    shutil.copytree(source.path, folder)
    manifest = read_manifest(str(folder))
    path = folder / manifest.shards[0].file
    pq.write_table(change(pq.read_table(path)), path, write_page_checksum=True)
    content = path.read_bytes()
    shard = replace(manifest.shards[0], bytes=len(content), file_digest=hashlib.sha256(content).hexdigest())
    write_manifest(str(folder), replace(manifest, shards=[shard, *manifest.shards[1:]]))
    return str(folder)


@pytest.mark.parametrize("name", ["log_p", "positive_log_p"])
def test_log_probabilities_that_are_no_numbers_are_refused(name, negatives, tmp_path):
    def spoil(table: pa.Table) -> pa.Table:
        values = table[name].to_pylist()
        values[7] = [float("nan")] * 3 if name == "log_p" else float("nan")
        field = table.schema.field(name)
        return table.set_column(table.schema.get_field_index(name), field, pa.array(values, field.type))

    spoiled = changed_store(negatives.valid, tmp_path / "spoiled", spoil)
    with pytest.raises(UserError, match=f"{spoiled}: {name} is nan in one of the rows from 0 on"):
        count_negatives(None, Mixture([negatives.train]), Mixture([Store(spoiled)]))


def test_texts_whose_log_probabilities_nobody_knows_are_fine(negatives, tmp_path):
    def forget(table: pa.Table) -> pa.Table:
        for name in ("positive_log_p", "log_p", "log_q"):
            field = table.schema.field(name)
            table = table.set_column(table.schema.get_field_index(name), field, pa.nulls(len(table), field.type))
        return table

    unknown = changed_store(negatives.valid, tmp_path / "unknown", forget)
    assert fewest_negatives(Store(unknown)) == 3
