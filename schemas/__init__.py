"""What all stages agree on: the Arrow schemas of the stores and the JSON Schema of their manifest.

Nothing else in the project spells a column list. `SCHEMAS` maps a store's kind, as its manifest names it,
to its columns; `SCHEMA_VERSION` grows when a store written before can no longer be read.
"""

import json
from importlib import resources
from typing import Any

import pyarrow as pa

SCHEMA_VERSION = 1


def _column(name: str, type: pa.DataType, nullable: bool = False) -> pa.Field:
    return pa.field(name, type, nullable=nullable)


def _list(type: pa.DataType) -> pa.DataType:
    return pa.list_(_column("element", type))


TOKENS = _list(pa.int32())

WINDOWS = pa.schema(
    [
        _column("window_id", pa.string()),
        _column("corpus", pa.string()),
        _column("split", pa.string()),
        _column("document", pa.string()),
        _column("offset", pa.int64()),
        _column("tokens", TOKENS),
    ]
)

NEGATIVES = pa.schema(
    [
        _column("window_id", pa.string()),
        _column("corpus", pa.string()),
        _column("split", pa.string()),
        _column("tokens", TOKENS),
        _column("direction", pa.string()),
        _column("context_length", pa.int32()),
        _column("positive_log_p", pa.float64(), nullable=True),
        _column("first_sample", pa.int64()),
        _column("negatives", _list(TOKENS)),
        _column("log_p", _list(pa.float64()), nullable=True),
        _column("log_q", _list(pa.float64()), nullable=True),
        _column("seed", pa.int64()),
    ]
)

ENERGIES = pa.schema(
    [
        _column("window_id", pa.string()),
        _column("corpus", pa.string()),
        _column("split", pa.string()),
        _column("context_length", pa.int32()),
        _column("sample", pa.int64()),
        _column("energy", pa.float64()),
        _column("log_p", pa.float64(), nullable=True),
        _column("log_q", pa.float64(), nullable=True),
    ]
)

SCHEMAS = {"windows": WINDOWS, "negatives": NEGATIVES, "energies": ENERGIES}


def read_schema(name: str) -> dict[str, Any]:
    """A JSON Schema of this folder."""
    return dict(json.loads(resources.files(__name__).joinpath(f"{name}.schema.json").read_text(encoding="utf-8")))


MANIFEST = read_schema("manifest")
