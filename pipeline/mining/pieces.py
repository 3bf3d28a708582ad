"""Pieces of a shard in progress: about half a minute's work each, kept until the shard is there, so that a kill costs
no more than one of them."""

from dataclasses import dataclass

import pyarrow as pa
import torch

from pipeline.runtime import files
from pipeline.stores.shards import digest_of_rows, from_parquet, to_parquet

SECONDS = 30
MOST_WINDOWS = 2048  # enough to keep any engine full
RATES = {"cpu": 5e10, "cuda": 2e13}  # floating-point operations a second that small models reach, roughly


def windows_in_a_piece(parameters: int, tokens: int) -> int:
    """How many windows are generated for in one call; `tokens` are those that the model reads and writes for one.

    A power of two that depends on the work alone, never on the clock: what runs beside a window can change the last
    bit of its numbers, and a run that was killed must make what an undisturbed one makes.
    """
    seconds = 2 * parameters * tokens / RATES["cuda" if torch.cuda.is_available() else "cpu"]
    windows = int(min(MOST_WINDOWS, max(1.0, SECONDS / seconds)))
    return 1 << windows.bit_length() - 1


@dataclass(frozen=True)
class Pieces:
    """The finished pieces of one shard, in a folder of their own."""

    folder: str
    settings_digest: str
    size: int

    def read(self, start: int) -> pa.Table | None:
        """The rows of the windows from `start` on, if they were made before, with these settings, and are sound."""
        try:
            data = files.read(self._file(start))
        except FileNotFoundError:
            return None
        found = from_parquet(data, self._footer(start))
        return None if found is None else found[0].replace_schema_metadata(None)

    def write(self, start: int, rows: pa.Table) -> None:
        files.put(self._file(start), to_parquet(rows, self._footer(start) | {"content": digest_of_rows(rows)}))

    def remove(self) -> None:
        files.remove(self.folder)

    def _file(self, start: int) -> str:
        return files.join(self.folder, f"{start:07d}.parquet")

    def _footer(self, start: int) -> dict[str, object]:
        return {"settings": self.settings_digest, "start": start, "size": self.size}
