"""Parquet files of results: written whole, with the schema that was given, on any filesystem."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evaluation.results.parquet_file import write_parquet
from pipeline.runtime import files


@pytest.mark.parametrize("layout", [{}, {"compression": "zstd"}])
def test_what_is_read_is_what_was_written(tmp_path, layout):
    schema = pa.schema([("name", pa.string()), ("score", pa.float64())], {"facts": "known"})
    rows = pa.Table.from_pylist([{"name": "a", "score": None}, {"name": None, "score": 1.5}], schema)
    for url in (f"{tmp_path}/deep/rows.parquet", "memory://results/rows.parquet"):
        write_parquet(url, rows, **layout)
        with files.open_random(url) as source:
            found = pq.read_table(source)
        assert found.equals(rows)
        assert found.schema.equals(schema, check_metadata=True)
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["rows.parquet"]
