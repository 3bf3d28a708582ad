"""What every worker that makes a windows store has to know."""

from dataclasses import dataclass
from typing import Any

from pipeline.runtime import files
from pipeline.stores.manifest import Record
from pipeline.stores.writer import WORK


@dataclass(frozen=True)
class WindowsJob:
    """What every worker knows: the settings that the rows depend on, and where things are.

    `inputs` are the digests that the files must have if a damaged store is made whole, None for a new store.
    """

    output: str
    corpus: str
    split: str
    window: int
    stride: int
    seed: int
    shards: int | None
    limit: int | None
    deduplicate: bool
    max_reject_fraction: float
    cut_documents: bool
    tokenizer: dict[str, Any]
    tokenizer_folder: str
    inputs: list[str] | None
    record: Record

    @property
    def work(self) -> str:
        return files.join(self.output, WORK)

    @property
    def rows_depend_on(self) -> dict[str, Any]:
        """All but the text itself and the number of shards: file names, for one, are no part of a row."""
        names = ("corpus", "split", "window", "stride", "seed", "limit", "deduplicate")
        return {name: getattr(self, name) for name in names} | {"encoding": self.tokenizer["encoding"]}

    @property
    def token_bytes(self) -> int:
        return 2 if self.tokenizer["vocabulary_size"] <= 1 << 16 else 4
