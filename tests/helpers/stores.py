"""Files of stores."""

from pathlib import Path


def shard_path(store: str | Path, number: int) -> Path:
    """The one file of a shard."""
    (path,) = Path(store, "shards").glob(f"{number:05d}-*.parquet")
    return path


def shard_name(store: str | Path, number: int) -> str:
    """The same, as a manifest has it."""
    return f"shards/{shard_path(store, number).name}"
