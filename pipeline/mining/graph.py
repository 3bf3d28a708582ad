"""The Beam graph that mines negatives, and the work of each of its steps.

An element is a shard to be made, never a row. A worker writes it whole or not at all, under a name and with a digest
that say all that it depends on: a shard that is there is not made again, and a bundle that runs twice does no harm.
What the manifest says is read from the shards themselves, after all of them are there.
"""

import traceback
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.metrics import Metrics
from apache_beam.pvalue import AsSingleton

import schemas
from pipeline.engines.sampling import TEMPERATURE
from pipeline.mining.job import MiningJob, StoreJob, Unit
from pipeline.mining.pool import GeneratorPool
from pipeline.mining.rows import Counts, Sketch, count, mine
from pipeline.runtime import files
from pipeline.runtime.errors import ResumableError, UserError
from pipeline.runtime.progress import note
from pipeline.stores.manifest import Manifest, read_manifest
from pipeline.stores.reader import Store
from pipeline.stores.shards import TOKENIZER_FOLDER, Shard, shard_file

ATTEMPTS = 3
PIECE = 2048  # windows that are generated for in one call: enough to keep an engine full, few enough to see progress


class TooManyDuplicates(UserError):
    """Windows share their samples: something is wrong with the seeds, and every further shard would be waste."""


@dataclass(frozen=True)
class MinedShard:
    """A shard that is there, and what is in it; without a shard: why it could not be made."""

    store: int
    unit: Unit
    shard: Shard | None
    counts: Counts
    sketch: Sketch
    error: str = ""


class MineNegatives(beam.PTransform):
    """A windows store, once it is there, to one store of negatives for every generator and sampling rule."""

    def __init__(self, job: MiningJob, hints: dict[str, str] | None = None):
        super().__init__()
        self.job, self.hints = job, hints or {}

    def expand(self, ready: beam.PCollection) -> beam.PCollection:
        """`ready` has one element, whatever it is, when the windows are there."""
        job = self.job
        parent = ready | "Look at the windows" >> beam.Map(begin, job)
        generate = beam.ParDo(Generate(job), AsSingleton(parent))
        return (
            parent
            | "Shards" >> beam.FlatMap(job.units)
            | "Spread shards" >> beam.Reshuffle()
            | "Generate" >> (generate.with_resource_hints(**self.hints) if self.hints else generate)
            | "All are made" >> beam.Reshuffle()
            | "Read them again" >> beam.Map(describe, job, AsSingleton(parent))
            | "All shards" >> beam.combiners.ToList()
            | "Finish" >> beam.FlatMap(finish, job, AsSingleton(parent))
        )


def begin(ready: Any, job: MiningJob) -> Manifest:
    """Makes the output folders this run's, and says what the windows are."""
    parent = read_manifest(job.settings.windows)
    for store in job.stores:
        store.writer.claim(files.join(job.settings.windows, TOKENIZER_FOLDER))
        note(
            store.writer.work,
            "total",
            0,
            parent.rows * job.rows_per_window * -(-job.settings.negatives // job.chunk_size(parent)),
        )
    return parent


class Generate(beam.DoFn):
    """Makes one shard of every store; the windows are read once for all of them."""

    def __init__(self, job: MiningJob):
        self.job = job
        names = ["shards", "rejects", *(field.name for field in fields(Counts))]
        self.counters = {name: Metrics.counter("mining", name) for name in names}

    def setup(self) -> None:
        self.generators = GeneratorPool(self.job)
        self.windows = Store(self.job.settings.windows, kind="windows")
        self.sketches: dict[int, Sketch] = {}

    def process(self, unit: Unit, parent: Manifest) -> Iterator[tuple[int, Unit, str]]:
        rows: pa.Table | None = None
        for number, store in enumerate(self.job.stores):
            settings_digest, error = self.job.settings_digest(store, parent), ""
            if store.writer.shard(unit.number, settings_digest) is None:
                for attempt in range(ATTEMPTS):
                    try:
                        rows = self._windows(unit) if rows is None else rows
                        self._make(number, store, unit, rows, settings_digest)
                        error = ""
                        break
                    except (ResumableError, OSError, TooManyDuplicates, KeyboardInterrupt):
                        raise
                    except Exception as failure:
                        error = f"{type(failure).__name__}: {failure}"
                        self._reject(store, unit, error, attempt)
            yield number, unit, error

    def _windows(self, unit: Unit) -> pa.Table:
        tables = list(self.windows.batches(shards=[unit.windows_shard]))
        return pa.concat_tables(tables) if tables else schemas.WINDOWS.empty_table()

    def _make(self, number: int, store: StoreJob, unit: Unit, windows: pa.Table, settings_digest: str) -> None:
        generator = self.generators.get(number)
        direction = store.description["direction"]
        pieces = []
        for start in range(0, len(windows), PIECE):
            pieces.append(mine(windows.slice(start, PIECE), unit, self.job, direction, generator))
            note(store.writer.work, "done", unit.number, sum(map(len, pieces)))
        rows = pa.concat_tables(pieces) if pieces else schemas.NEGATIVES.empty_table()
        counts, sketch = count(rows)
        self._check_duplicates(number, store, sketch)
        store.writer.write(unit.number, rows.combine_chunks(), settings_digest)
        for name, amount in (("shards", 1), *asdict(counts).items()):
            self.counters[name].inc(amount)
            note(store.writer.work, name, unit.number, amount)
        share = self.sketches[number].duplicate_fraction
        note(store.writer.work, "duplicates", 0, round(1e6 * share))

    def _check_duplicates(self, number: int, store: StoreJob, sketch: Sketch) -> None:
        """Compares with what this worker made before: equal seeds in different shards show at the second shard."""
        seen = self.sketches.get(number)
        self.sketches[number] = sketch if seen is None else seen + sketch
        check_duplicates(self.sketches[number], store, self.job)

    def _reject(self, store: StoreJob, unit: Unit, error: str, attempt: int) -> None:
        self.generators.forget()  # an engine that has died is started again
        if attempt + 1 == ATTEMPTS:
            self.counters["rejects"].inc()
            note(store.writer.work, "rejects", unit.number, 1)
            why = {"unit": asdict(unit), "error": error, "windows": self.job.settings.windows}
            store.writer.reject_shard(unit.number, why | {"traceback": traceback.format_exc()})

    def teardown(self) -> None:
        self.generators.release()


def check_duplicates(sketch: Sketch, store: StoreJob, job: MiningJob) -> None:
    share = sketch.duplicate_fraction
    if store.sampling.rule == TEMPERATURE and share > job.settings.max_duplicate_fraction:
        raise TooManyDuplicates(
            f"--output {store.writer.output}: {share:.0%} of the negatives are equal to another window's: are the "
            f"windows' ids or the engine's seeds all the same? To go on all the same, raise --max_duplicate_fraction"
        )


def describe(made: tuple[int, Unit, str], job: MiningJob, parent: Manifest) -> MinedShard:
    """What one shard holds, from the shard itself."""
    number, unit, error = made
    store = job.stores[number]
    if error:
        return MinedShard(number, unit, None, Counts(), Sketch.of(*np.empty((2, 0), np.uint64)), error)
    shard = store.writer.shard(unit.number, job.settings_digest(store, parent))
    if shard is None:
        raise UserError(
            f"{files.join(store.writer.output, shard_file(unit.number))}: it has vanished since it was made"
        )
    counts, sketch = count(read_rows(store.writer.output, unit.number))
    return MinedShard(number, unit, shard, counts, sketch)


def read_rows(store: str, number: int) -> pa.Table:
    import pyarrow.parquet as pq

    with files.open_random(files.join(store, shard_file(number))) as source:
        return pq.read_table(source)


def finish(made: list[MinedShard], job: MiningJob, parent: Manifest) -> Iterable[str]:
    """Writes the manifest of every store that is whole."""
    for number, store in enumerate(job.stores):
        mine_here = sorted((one for one in made if one.store == number), key=lambda one: one.unit.number)
        if any(one.shard is None for one in mine_here):
            continue
        yield finish_store(store, mine_here, job, parent)


def finish_store(store: StoreJob, made: list[MinedShard], job: MiningJob, parent: Manifest) -> str:
    counts, sketch = made[0].counts, made[0].sketch
    for one in made[1:]:
        counts, sketch = counts + one.counts, sketch + one.sketch
    check_duplicates(sketch, store, job)
    manifest = store.writer.finish(
        [one.shard for one in made if one.shard is not None],
        tokenizer=parent.tokenizer,
        parent={"path": job.settings.windows, "digest": parent.digest},
        seed=job.settings.seed,
        counts=asdict(counts) | {"duplicates_per_million": round(1e6 * sketch.duplicate_fraction)},
        generator=store.description,
        sampling=store.sampling.description | {"samples_per_row": job.chunk_size(parent)},
    )
    return manifest.digest
