"""Making shards of negatives, in whichever process: what fails is the device's fault, the engine's, or the shard's.

A broken device ends the process, so that its work goes elsewhere. An engine that cannot start fails the run. A shard
that fails on two starts of the engine is put aside, and a few of those in a row, or too large a share of them, stop the
run: something is wrong that further shards will not mend.
"""

import traceback
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import pyarrow as pa

import schemas
from pipeline.engines.failures import end_if_broken, missing_accelerator
from pipeline.engines.sampling import TEMPERATURE
from pipeline.mining.job import MiningJob, StoreJob, Unit
from pipeline.mining.pieces import Pieces, windows_in_a_piece
from pipeline.mining.pool import GeneratorPool
from pipeline.mining.rows import Counts, Sampler, Sketch, count, mine
from pipeline.runtime import files
from pipeline.runtime.errors import ResumableError, UserError, first_line
from pipeline.runtime.progress import note
from pipeline.stores.manifest import Manifest
from pipeline.stores.reader import Store

STARTS = 2  # of an engine, on which a shard fails before it is put aside
IN_A_ROW = 3  # shards put aside one after the other, after which a worker gives up
PIECES = "pieces"


class TooManyDuplicates(UserError):
    """Windows share their samples: something is wrong with the seeds, and every further shard would be waste."""


class TooManyRejects(ResumableError):
    """So many shards cannot be made that the fault is hardly theirs."""


@dataclass(frozen=True)
class MadeShard:
    """A shard of one store that is there, by its file; without one: why it could not be made. Counts, if it is new."""

    store: int
    unit: Unit
    file: str | None
    error: str = ""
    counts: Counts | None = None


class ShardMaker:
    """Makes one shard of every store at a time; the windows are read once for all of them."""

    def __init__(self, job: MiningJob, parent: Manifest):
        if (accelerator := job.settings.accelerator) and (reason := missing_accelerator(accelerator)):
            raise UserError(reason)
        self.job, self.parent = job, parent
        self.generators = GeneratorPool(job)
        self.windows = Store(job.settings.windows, kind="windows")
        self.units = len(job.units(parent))
        self.digests = [job.settings_digest(store, parent) for store in job.stores]
        self.sketches: dict[int, Sketch] = {}
        self.in_a_row = 0
        self.look()

    def look(self) -> None:
        """Lists the shards that are there: made by an earlier run, or by somebody else in this one."""
        self.there = [store.writer.shard_files() for store in self.job.stores]

    def make(self, unit: Unit) -> Iterator[MadeShard]:
        """Its shard of every store, made unless it is there."""
        windows: pa.Table | None = None
        for number, store in enumerate(self.job.stores):
            shard = store.writer.shard(self.there[number].get(unit.number, ()), self.digests[number])
            if shard is not None:
                note(store.writer.work, "done", unit.number, shard.rows)
                yield MadeShard(number, unit, shard.file)
                continue
            try:
                windows = self._windows(unit) if windows is None else windows
            except UserError as error:
                yield self._put_aside(number, unit, error)
            else:
                yield self._try(number, unit, windows)

    def close(self) -> None:
        self.generators.release()

    def _windows(self, unit: Unit) -> pa.Table:
        tables = list(self.windows.batches(shards=[unit.windows_shard]))
        return pa.concat_tables(tables) if tables else schemas.WINDOWS.empty_table()

    def _try(self, number: int, unit: Unit, windows: pa.Table) -> MadeShard:
        for start in range(STARTS):
            generator = self._generator(number)
            try:
                return self._make(number, unit, windows, generator)
            except (ResumableError, TooManyDuplicates):
                raise
            except OSError as error:
                if not isinstance(error, ConnectionError):  # to an engine in another process, which has died
                    raise
                failure: Exception = error
            except Exception as error:
                failure = error
            end_if_broken(failure, self.job.elsewhere)
            self.generators.forget()  # an engine that has died is started again
            if start + 1 == STARTS:
                return self._put_aside(number, unit, failure)
        raise AssertionError

    def _generator(self, number: int) -> Sampler:
        """The engine of a store; one that cannot start is no shard's fault."""
        try:
            return self.generators.get(number)
        except UserError as error:
            end_if_broken(error, self.job.elsewhere)
            raise
        except Exception as error:
            end_if_broken(error, self.job.elsewhere)
            name = self.job.stores[number].generator
            raise ResumableError(f"{name}: its engine cannot start ({first_line(error)})") from error

    def _make(self, number: int, unit: Unit, windows: pa.Table, generator: Sampler) -> MadeShard:
        store, digest = self.job.stores[number], self.digests[number]
        tokens = self.job.tokens_of_a_window(self.parent, unit)
        size = windows_in_a_piece(store.description["parameters"], tokens)
        pieces = Pieces(files.join(store.writer.work, PIECES, f"{unit.number:05d}"), digest, size)
        made = []
        for start in range(0, len(windows), size):
            if (rows := pieces.read(start)) is None:
                rows = mine(windows.slice(start, size), unit, self.job, store.description["direction"], generator)
                if start + size < len(windows):  # the last one is a shard in a moment
                    pieces.write(start, rows)
            made.append(rows)
            note(store.writer.work, "done", unit.number, sum(map(len, made)))
        rows = pa.concat_tables(made) if made else schemas.NEGATIVES.empty_table()
        counts, sketch = count(rows)
        self._check_duplicates(number, store, sketch)
        shard = store.writer.write(unit.number, rows.combine_chunks(), digest)
        pieces.remove()
        self.in_a_row = 0
        self._note(number, unit, counts)
        return MadeShard(number, unit, shard.file, counts=counts)

    def _check_duplicates(self, number: int, store: StoreJob, sketch: Sketch) -> None:
        """Compares with what this worker made before: equal seeds in different shards show at the second shard."""
        seen = self.sketches.get(number)
        self.sketches[number] = sketch if seen is None else seen + sketch
        check_duplicates(self.sketches[number], store, self.job)

    def _note(self, number: int, unit: Unit, counts: Counts) -> None:
        work = self.job.stores[number].writer.work
        for name, amount in (("shards", 1), *asdict(counts).items()):
            note(work, name, unit.number, amount)
        note(work, "duplicates", 0, round(1e6 * self.sketches[number].duplicate_fraction))

    def _put_aside(self, number: int, unit: Unit, failure: Exception) -> MadeShard:
        store, error = self.job.stores[number], f"{type(failure).__name__}: {failure}"
        why = {"unit": asdict(unit), "error": error, "windows": self.job.settings.windows}
        store.writer.reject_shard(unit.number, why | {"traceback": "".join(traceback.format_exception(failure))})
        note(store.writer.work, "rejects", unit.number, 1)
        self.in_a_row += 1
        rejects = len(store.writer.reject_files())
        share = self.job.settings.max_reject_fraction
        few = rejects <= max(IN_A_ROW, share * self.units)
        if self.in_a_row >= IN_A_ROW < self.units or not few:
            raise TooManyRejects(
                f"{store.writer.output}: {rejects} of {self.units} shards could not be made, the last because of "
                f"{first_line(failure) or error} (more in {store.writer.rejects})"
            )
        return MadeShard(number, unit, None, error)


def check_duplicates(sketch: Sketch, store: StoreJob, job: MiningJob) -> None:
    share = sketch.duplicate_fraction
    if store.sampling.rule == TEMPERATURE and share > job.settings.max_duplicate_fraction:
        raise TooManyDuplicates(
            f"--output {store.writer.output}: {share:.0%} of the negatives are equal to another window's: are the "
            f"windows' ids or the engine's seeds all the same? To go on all the same, raise --max_duplicate_fraction"
        )
