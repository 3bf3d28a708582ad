"""What every worker that makes a windows store has to know."""

from dataclasses import dataclass
from typing import Any

from pipeline.stores.writer import StoreWriter
from pipeline.windows.settings import WindowsSettings


@dataclass(frozen=True)
class WindowsJob:
    """What every worker knows: the settings, the store, and the tokenizer.

    `text_digests` are those that the files must have if a damaged store is made whole, None for a new store.
    """

    settings: WindowsSettings
    writer: StoreWriter
    cut_documents: bool
    tokenizer: dict[str, Any]
    tokenizer_folder: str
    text_digests: list[str] | None

    @property
    def corpus(self) -> str:
        return str(self.settings.corpus)

    @property
    def window(self) -> int:
        return int(self.settings.window or 0)

    @property
    def stride(self) -> int:
        return int(self.settings.stride or 0)

    @property
    def eos(self) -> int:
        return int(self.tokenizer["eos_token_id"])

    @property
    def rows_depend_on(self) -> dict[str, Any]:
        """All but the text itself and the number of shards: how a file is read, for one, is no part of a row."""
        result = self.settings.result()
        kept = {name: result[name] for name in result if name not in ("shards", "text_field", "encoding")}
        return kept | {"encoding": self.tokenizer["encoding"]}

    @property
    def token_bytes(self) -> int:
        return 2 if self.tokenizer["vocabulary_size"] <= 1 << 16 else 4
