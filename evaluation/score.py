"""Scores a store of negatives: the energy of every real window and of every sample, into a store of energies.

  python evaluation/score.py --energy models/books-energy --store stores/books-test-negatives \\
      --output stores/books-test-energies

Everything after it is arithmetic on stores. --energy may also be a language model: the energy is then minus the whole
window's log-probability. Finished shards are not made again, and a killed run continues when the same command is given
again. Every further option is Beam's: --runner DataflowRunner uses a fleet, with --accelerator one of GPUs. Without
any, the shards are made here, one after another; --devices 8 uses eight GPUs of this machine, and --part 3/64, in as
many processes as one likes, any cluster.
"""

import sys
import uuid
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from evaluation.joint.scorers import Scorer, open_scorer, score_rows
from pipeline.engines.choice import ENGINES, TORCH, VLLM, accelerator_setting, default_engine
from pipeline.engines.environment import prepare_environment
from pipeline.engines.failures import end_if_broken, missing_accelerator
from pipeline.mining.plan import is_elsewhere
from pipeline.models.precision import PRECISIONS
from pipeline.runtime import files
from pipeline.runtime.digests import digest_of
from pipeline.runtime.errors import ResumableError, UserError, exit_with
from pipeline.runtime.lock import renewing
from pipeline.runtime.parts import PartSettings, lacking, run_parts, visible_gpus
from pipeline.runtime.progress import Bar
from pipeline.runtime.settings import read_known_settings, setting
from pipeline.runtime.summary import print_summary
from pipeline.stores.manifest import MANIFEST, Manifest, Record, read_manifest
from pipeline.stores.reader import Store
from pipeline.stores.shards import TOKENIZER_FOLDER, Shard
from pipeline.stores.writer import StoreWriter
from training.energy.folder import EnergyModelFolder, open_either

SCRIPT = "evaluation/score.py"
TWICE_AS_FAST = {"BertForSequenceClassification", "RobertaForSequenceClassification"}  # in vLLM, on CPUs
WORTH_STARTING = 5_000  # windows: at 4 layers, d 256, they take as much longer in torch as vLLM takes to start


@dataclass(frozen=True, kw_only=True)
class ScoreSettings(PartSettings):
    """A model, the negatives that it gives energies, and where these go."""

    energy: str = setting(help="an energy model, or a language model", metavar="DIR_OR_NAME")
    store: str = setting(help="the negatives to be scored", metavar="STORE")
    output: str = setting(help="the store of energies, on any filesystem", metavar="DIR")
    batch_size: int | None = setting(None, help="windows at once (default: 64, on GPUs 512)", metavar="N", least=1)
    engine: str | None = setting(
        None,
        help="torch, or vllm, which takes the models of --preset encoder and decoder (default: the faster one, as far "
        "as it was measured: vllm for many windows and BERT's like on a CPU, else torch)",
        choices=ENGINES,
    )
    precision: str | None = setting(
        None, help="of the network (default: that of its weights on GPUs, fp32 on CPUs)", choices=PRECISIONS
    )
    accelerator: str | None = accelerator_setting("scoring")
    overwrite: bool = setting(False, help="replace a store that was made with other settings")


def main(arguments: Sequence[str] | None = None) -> int:
    settings, beam = read_known_settings(ScoreSettings, sys.argv[1:] if arguments is None else arguments, __doc__)
    made = score(settings, beam)
    if made is None:
        whose = f"part {settings.part} is there, others are not yet" if settings.part else "the runner writes the store"
        print(f"{settings.output}: {whose}")
    else:
        describe(settings.output, made)
    return 0


def score(settings: ScoreSettings, beam: Sequence[str] = ()) -> Manifest | None:
    """The store of energies, made if it is not there: here, or through Beam if there are options of Beam's.

    None if this was a part and others are at work still, or if a runner was only asked to do it, some time.
    """
    prepare_environment()
    if settings.accelerator and not beam:
        raise UserError(f"--accelerator {settings.accelerator}: a fleet's: say which with --runner")
    if beam:
        from pipeline.runtime.beam import beam_options

        beam_options(list(beam))
        if not settings.alone or settings.devices is not None:
            raise UserError("--part, --finish, --devices: without options of Beam's, which divides the work itself")
    job = ScoringJob(settings, writer_of(settings, beam), uuid.uuid4().hex if is_elsewhere(beam) else None)
    parts = 1 if beam or not settings.alone else settings.devices or max(1, visible_gpus())
    if parts > 1 and job.writer.made_before(settings.overwrite) is None:
        run_parts("evaluation.score", settings.recorded().to_words(), parts)
    with job.writer.held(job.run) if settings.alone else job.writer.shared():
        if (there := job.writer.made_before(settings.overwrite)) is not None:
            return there
        if not settings.alone:
            return score_part(job)
        with job.writer.making():
            job.writer.claim(job.tokenizer_folder)
            if beam:
                run_on_beam(job, beam)
            else:
                finish(make_here(job), job)
    if files.is_file(files.join(settings.output, MANIFEST)):
        return read_manifest(settings.output)
    if is_handed_over(beam):
        return None
    raise ResumableError(f"{settings.output}: it was not finished")


def is_handed_over(beam: Sequence[str]) -> bool:
    from pipeline.runtime import beam as beam_runner

    return beam_runner.is_handed_over(beam_runner.beam_options(beam))


def score_part(job: "ScoringJob") -> Manifest | None:
    """Makes the shards of a part, and finishes the store if no other part is at work still."""
    job.writer.join()
    if not job.writer.is_claimed:
        job.writer.claim(job.tokenizer_folder)
    if not job.settings.finish:
        make_here(job)
    if job.writer.is_finished:  # by a part that was started twice
        return read_manifest(job.settings.output)
    there = job.writer.shard_files()
    shards = [job.writer.shard(there.get(number, ()), job.settings_digest) for number in job.numbers]
    if missing := [number for number, shard in enumerate(shards) if shard is None]:
        if job.settings.finish:
            raise lacking(job.writer.output, missing, len(shards))
        return None
    finish([shard for shard in shards if shard is not None], job)
    return read_manifest(job.settings.output)


def writer_of(settings: ScoreSettings, beam: Sequence[str]) -> StoreWriter:
    """Of the energies, which depend on the model and on the negatives, and on a precision that is asked for."""
    store = Store(settings.store, kind="negatives")
    result: dict[str, Any] = {"energy": describe_energy(settings.energy, store), "parent": store.manifest.digest}
    result |= {name: store.manifest.settings.get(name) for name in ("corpus", "split", "window", "context_lengths")}
    if settings.precision is not None:
        result["precision"] = settings.precision
    if (settings.engine or faster_engine(settings, store, beam)) == VLLM:
        result["engine"] = VLLM  # whose last digits are others
    return StoreWriter(settings.output, Record.of(SCRIPT, settings, result, beam), kind="energies")


def faster_engine(settings: ScoreSettings, store: Store, beam: Sequence[str]) -> str:
    """vLLM where starting it pays (tests/benchmarks/README.md), and all of the work is done here, without a GPU."""
    windows = store.manifest.rows * (1 + int(store.manifest.settings.get("negatives") or 1))
    if beam or not settings.alone or settings.devices or windows < WORTH_STARTING:
        return TORCH
    import torch

    if torch.cuda.is_available():
        return TORCH
    model = open_either(settings.energy)
    known = set(model.config.architectures or []) & TWICE_AS_FAST
    return VLLM if known and settings.precision is None and default_engine() == VLLM else TORCH


@dataclass(frozen=True)
class ScoringJob:
    """What every worker has to know."""

    settings: ScoreSettings
    writer: StoreWriter
    run: str | None = None  # of workers elsewhere, who hold the store too, and whom a runner replaces when they end

    @cached_property
    def negatives(self) -> Store:
        return Store(self.settings.store, kind="negatives")

    @cached_property
    def scorer(self) -> Scorer:
        if (accelerator := self.settings.accelerator) and (reason := missing_accelerator(accelerator)):
            raise UserError(reason)
        window = int(self.negatives.manifest.settings["window"])
        settings = self.settings
        engine = str(self.writer.record.settings.get("engine", TORCH))
        return open_scorer(settings.energy, window, settings.batch_size, settings.precision, engine)

    @cached_property
    def there(self) -> dict[int, list[str]]:
        """The files that were there when this worker began: what others write since then is only made once more."""
        return self.writer.shard_files()

    def held(self) -> AbstractContextManager[None]:
        """Keeps the store this run's while a worker elsewhere works for it, whatever becomes of who started that."""
        return renewing([self.writer.output], self.run) if self.run else nullcontext()

    @property
    def numbers(self) -> range:
        """Of all shards."""
        return range(len(self.negatives.manifest.shards))

    @property
    def tokenizer_folder(self) -> str:
        return files.join(self.settings.store, TOKENIZER_FOLDER)

    @property
    def settings_digest(self) -> str:
        """Of everything that the energies depend on."""
        return digest_of(self.writer.record.settings)

    def __getstate__(self) -> dict[str, Any]:
        """Without the network: a worker opens its own."""
        return {"settings": self.settings, "writer": self.writer, "run": self.run}


def describe_energy(name: str, store: Store) -> dict[str, Any]:
    """What the manifest says of the energy, from which tables are labelled later; refuses one that does not fit."""
    window, tokenizer = int(store.manifest.settings["window"]), store.manifest.tokenizer
    model = open_either(name)
    model.check_fits(window, tokenizer, store.path)
    model.check_weights()
    known = model.provenance
    kind = model.family if isinstance(model, EnergyModelFolder) else "likelihood"
    facts = {field: known.get(field) for field in ("preset", "seed", "objective", "stores", "corpus")}
    return {"path": name, "digest": model.weights_digest, "kind": kind} | facts


def make_here(job: ScoringJob) -> list[Shard]:
    """One shard after another, in this process: all of them, or those of a part."""
    made, numbers = [], job.settings.own(job.numbers)
    shards = job.negatives.manifest.shards
    rows = sum(shards[number].rows for number in numbers)
    with Bar(total=rows, desc="scoring", unit=" rows", unit_scale=True) as bar:
        for number in numbers:
            bar.set_description(f"shard {number + 1} of {len(shards)}")
            before = bar.done
            made.append(make_shard(number, job, bar.update))
            bar.update(before + shards[number].rows - bar.done)  # of those that were there
    return made


def make_shard(number: int, job: ScoringJob, tick: Callable[[int], object] = lambda rows: None) -> Shard:
    """The energies of one shard of negatives, unless they are there. A broken device ends a fleet's worker."""
    if (made := job.writer.shard(job.there.get(number, ()), job.settings_digest)) is not None:
        return made
    with job.held():
        try:
            energies = score_shard(number, job, tick)
        except Exception as error:
            end_if_broken(error, replaced=job.run is not None)
            raise
        return job.writer.write(number, energies, job.settings_digest)


def score_shard(number: int, job: ScoringJob, tick: Callable[[int], object]) -> pa.Table:
    tables = []
    for rows in job.negatives.batches(shards=[number]):
        tables.append(score_rows(rows, job.scorer))
        tick(len(rows))
    energies = pa.concat_tables(tables) if tables else score_rows(job.negatives.schema.empty_table(), job.scorer)
    bad = [value for value in energies["energy"].to_pylist() if value != value or abs(value) == float("inf")]
    if bad:
        model, store = job.settings.energy, job.settings.store
        raise UserError(f"{model}: it gives a window of {store} the energy {bad[0]}: train it again")
    return energies.combine_chunks()


def run_on_beam(job: ScoringJob, options: Sequence[str]) -> None:
    """The same through Beam: an element is a shard, written whole or not at all by whichever worker has it."""
    import apache_beam as beam

    from pipeline.runtime import beam as beam_runner

    def build(pipeline: beam.Pipeline) -> object:
        return (
            pipeline
            | "Shards" >> beam.Create(job.numbers)
            | "Spread shards" >> beam.Reshuffle()
            | "Score" >> beam_runner.on_accelerator(beam.Map(make_shard, job), job.settings.accelerator)
            | "All shards" >> beam.combiners.ToList()
            | "Finish" >> beam.Map(finish, job)
        )

    beam_runner.run(build, beam_runner.beam_options(list(options)))


def finish(made: list[Shard], job: ScoringJob) -> None:
    """Writes the manifest, and with it the store is finished."""
    parent = read_manifest(job.settings.store)
    job.writer.finish(
        made,
        tokenizer=parent.tokenizer,
        parent={"path": job.settings.store, "digest": parent.digest},
        seed=parent.seed,
        counts={"energies": sum(shard.rows for shard in made)},
        generator=parent.generator,
        sampling=parent.sampling,
    )


def describe(output: str, manifest: Manifest) -> None:
    energy, settings = manifest.settings["energy"], manifest.settings
    facts = {
        "energy": f"{energy['path']} ({energy['preset'] or energy['kind']})",
        "windows": f"{settings['corpus']}, {settings['split']}, of {(manifest.parent or {})['path']}",
        "energies": f"{manifest.rows:,}",
        "shards": f"{len(manifest.shards):,}, {manifest.bytes / 1e6:,.1f} MB",
        "digest": manifest.digest,
    }
    print_summary(f"energies store {output}", facts)


if __name__ == "__main__":
    exit_with(main)
