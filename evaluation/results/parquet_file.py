"""Parquet files of results, on any filesystem."""

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.runtime import files


def write_parquet(url: str, rows: pa.Table, **layout: Any) -> None:
    """Writes a table, whole or not at all."""
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, **layout)
    files.put(url, sink.getvalue())
