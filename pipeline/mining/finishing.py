"""Finishing stores of negatives: all shards are read once more, and what the manifest says is summed up from them.

Sums are of a fixed size whatever the number of shards, but for the list of the shards themselves, some 250 bytes each.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from functools import reduce
from operator import add

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.mining.job import MiningJob
from pipeline.mining.making import MadeShard, check_duplicates
from pipeline.mining.rows import Counts, Sketch, count
from pipeline.runtime import files
from pipeline.runtime.errors import ResumableError
from pipeline.runtime.parts import lacking
from pipeline.stores.manifest import Manifest
from pipeline.stores.shards import Shard

NONE, EMPTY = Counts(), Sketch.of(*np.empty((2, 0), np.uint64))


@dataclass(frozen=True)
class Tally:
    """What some shards of one store come to."""

    shards: list[Shard] = field(default_factory=list)
    lacking: int = 0
    counts: Counts = NONE
    sketch: Sketch = EMPTY

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(
            self.shards + other.shards,
            self.lacking + other.lacking,
            self.counts + other.counts,
            self.sketch + other.sketch,
        )


def tally(made: MadeShard, job: MiningJob, parent: Manifest) -> tuple[int, Tally]:
    """The store's number, and what this one shard holds, from the shard itself."""
    if made.file is None:
        return made.store, Tally(lacking=1)
    shard = shard_of(made, job, parent)
    counts, sketch = count(read_rows(job.stores[made.store].writer.output, shard.file))
    return made.store, Tally([shard], 0, counts, sketch)


def shard_of(made: MadeShard, job: MiningJob, parent: Manifest) -> Shard:
    """What the manifest says of a shard, from the shard itself."""
    store = job.stores[made.store]
    shard = store.writer.shard([made.file] if made.file else [], job.settings_digest(store, parent))
    if shard is None:
        raise ResumableError(f"{files.join(store.writer.output, made.file or '')}: it has vanished since it was made")
    return shard


def total(tallies: Iterable[Tally]) -> Tally:
    return reduce(add, tallies, Tally())


def read_rows(store: str, file: str) -> pa.Table:
    with files.open_random(files.join(store, file)) as source:
        return pq.read_table(source)


def finish(whole: tuple[int, Tally], job: MiningJob, parent: Manifest) -> str | None:
    """Writes the manifest of a store that is whole: its digest."""
    number, result = whole
    store = job.stores[number]
    if result.lacking:
        return None
    check_duplicates(result.sketch, store, job)
    manifest = store.writer.finish(
        result.shards,
        tokenizer=parent.tokenizer,
        parent={"path": job.settings.windows, "digest": parent.digest},
        seed=job.settings.seed,
        counts=asdict(result.counts) | {"duplicates_per_million": round(1e6 * result.sketch.duplicate_fraction)},
        generator=store.description,
        sampling=store.sampling.description | {"samples_per_row": job.chunk_size(parent)},
    )
    return manifest.digest


def is_lacking(job: MiningJob, parent: Manifest) -> bool:
    """Whether shards are missing still: somebody else makes them, or they could not be made."""
    units = {unit.number for unit in job.units(parent)}
    return any(not units <= store.writer.shard_files().keys() for store in job.stores)


def finish_here(job: MiningJob, parent: Manifest) -> None:
    """Writes the manifests of stores whose shards lie there, whoever made them."""
    for number, store in enumerate(job.stores):
        there = store.writer.shard_files()
        missing = [unit.number for unit in job.units(parent) if unit.number not in there]
        if missing:
            raise lacking(store.writer.output, missing, len(job.units(parent)))
        sums, digest = Tally(), job.settings_digest(store, parent)
        for unit in job.units(parent):
            shard = store.writer.shard(there[unit.number], digest)
            if shard is None:
                raise lacking(store.writer.output, [unit.number], len(job.units(parent)))
            counts, sketch = count(read_rows(store.writer.output, shard.file))
            sums += Tally([shard], 0, counts, sketch)
        finish((number, sums), job, parent)
