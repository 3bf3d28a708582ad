"""What every worker that mines negatives has to know: which windows, which generators, which stores."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.engines.choice import EngineOptions
from pipeline.engines.sampling import NUCLEUS, Sampling
from pipeline.mining.settings import MiningSettings
from pipeline.runtime import files
from pipeline.runtime.digests import digest_of
from pipeline.runtime.progress import note
from pipeline.stores.manifest import Manifest
from pipeline.stores.shards import TOKENIZER_FOLDER
from pipeline.stores.writer import StoreWriter

CHUNK_BYTES = 128 << 20  # of a shard's samples: what a worker holds at once
MOST_SAMPLES = 1000  # of one request


def rows_of_window(settings: MiningSettings, lengths: Sequence[int]) -> int:
    """A row for each context length, or one of a length that is drawn."""
    return len(lengths) if settings.every_context_length else 1


def samples_of_row(settings: MiningSettings, lengths: Sequence[int], windows: int, window: int) -> int:
    """How many samples a row holds, of a shard of so many windows of so many tokens."""
    if settings.samples_per_row is not None:
        return min(settings.samples_per_row, settings.negatives)
    sample_bytes = windows * rows_of_window(settings, lengths) * 4 * (window - min(lengths))
    return max(1, min(settings.negatives, MOST_SAMPLES, CHUNK_BYTES // max(1, sample_bytes)))


@dataclass(frozen=True)
class StoreJob:
    """One store to be made: a generator, a sampling rule, and a place."""

    writer: StoreWriter
    generator: str
    engine: str
    sampling: Sampling
    description: dict[str, Any]  # of the generator, for the manifest


@dataclass(frozen=True)
class MiningJob:
    """All stores of a run, which are made from the same windows in the same way."""

    settings: MiningSettings
    stores: tuple[StoreJob, ...]
    context_lengths: tuple[int, ...]
    shared: bool  # whether generators run in processes of their own
    run: str  # of this run alone
    elsewhere: bool = False  # whether its workers are processes that a runner replaces when they end

    def chunk_size(self, parent: Manifest) -> int:
        """How many samples a row holds: one request's; fewer than all of them where a shard would grow too large."""
        rows = max(shard.rows for shard in parent.shards)
        return samples_of_row(self.settings, self.context_lengths, rows, int(parent.settings["window"]))

    @property
    def options(self) -> EngineOptions:
        """How engines use a device, which all those of this run share."""
        given = self.settings
        engines = len({(store.generator, store.sampling.rule == NUCLEUS) for store in self.stores})
        return EngineOptions(given.precision, given.gpu_memory / engines, given.sequences, given.tensor_parallel)

    def tokens_of_a_window(self, parent: Manifest, unit: "Unit") -> int:
        """What the model reads and writes at most for one window of a unit: context, true completion, samples."""
        window, shortest = int(parent.settings["window"]), min(self.context_lengths)
        return self.rows_per_window * (window + shortest + unit.count * (window - shortest))

    def claim(self, parent: Manifest) -> None:
        """Makes the output folders this run's, and notes how much there is to do."""
        for store in self.stores:
            store.writer.claim(files.join(self.settings.windows, TOKENIZER_FOLDER))
            note(store.writer.work, "total", 0, self._rows(parent))

    def join(self, parent: Manifest) -> None:
        """The same for one of several parts: the first to come makes the folders the run's."""
        for store in self.stores:
            store.writer.join()
            if not store.writer.is_claimed:
                store.writer.claim(files.join(self.settings.windows, TOKENIZER_FOLDER))
            note(store.writer.work, "total", 0, self._rows(parent))

    def run_of(self, store: StoreJob) -> str | None:
        """What holds a store for this run while its workers work; None where holding the launching process suffices."""
        return self.run if self.elsewhere or not files.is_local(store.writer.output) else None

    def _rows(self, parent: Manifest) -> int:
        return parent.rows * self.rows_per_window * -(-self.settings.negatives // self.chunk_size(parent))

    @property
    def rows_per_window(self) -> int:
        return rows_of_window(self.settings, self.context_lengths)

    def units(self, parent: Manifest) -> list["Unit"]:
        """The shards to be made: one for each shard of windows and chunk of samples."""
        size, negatives = self.chunk_size(parent), self.settings.negatives
        chunks = -(-negatives // size)
        return [
            Unit(shard * chunks + chunk, shard, chunk * size, min(size, negatives - chunk * size))
            for shard in range(len(parent.shards))
            for chunk in range(chunks)
        ]

    def settings_digest(self, store: StoreJob, parent: Manifest) -> str:
        """Of everything that the rows of a store depend on."""
        return digest_of(store.writer.record.settings | {"parent": parent.digest, "chunk": self.chunk_size(parent)})


@dataclass(frozen=True)
class Unit:
    """One shard of negatives: samples first, …, first + count - 1 of every window of a shard of windows."""

    number: int
    windows_shard: int
    first: int
    count: int


def drawn_length(window_id: str, seed: int, lengths: Sequence[int]) -> int:
    """The context length of a window: each of the list as likely as any other, decided by the window's own hash."""
    address = json.dumps([seed, window_id, "context length"]).encode()
    draw = int.from_bytes(hashlib.blake2b(address, digest_size=8).digest())
    return lengths[draw * len(lengths) >> 64]


def lengths_of(window_ids: Sequence[str], job: MiningJob) -> Iterator[tuple[int, int]]:
    """Each row that is to be made: the window's place, and the context length."""
    for place, window_id in enumerate(window_ids):
        if job.settings.every_context_length:
            yield from ((place, length) for length in job.context_lengths)
        else:
            yield place, drawn_length(window_id, job.settings.seed, job.context_lengths)
