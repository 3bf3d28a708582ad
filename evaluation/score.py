"""Scores a store of negatives: the energy of every real window and of every sample, into a store of energies.

  python evaluation/score.py --energy models/books-energy --store stores/books-test-negatives \\
      --output stores/books-test-energies

Everything after it is arithmetic on stores. --energy may also be a language model: the energy is then minus the whole
window's log-probability. Finished shards are not made again, and a killed run continues when the same command is given
again. Every further option is Beam's: --direct_num_workers 2 uses two processes, --runner DataflowRunner a fleet;
without any, the shards are made here, one after another, and Beam is not needed.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
from tqdm import tqdm

from evaluation.joint.scorers import Scorer, is_energy_model, open_scorer, score_rows
from pipeline.models.language_model import open_language_model
from pipeline.runtime import files
from pipeline.runtime.digests import digest_of
from pipeline.runtime.errors import UserError, exit_with
from pipeline.runtime.settings import Settings, read_known_settings, setting
from pipeline.runtime.summary import print_summary
from pipeline.stores.manifest import Manifest, Record, read_manifest
from pipeline.stores.reader import Store
from pipeline.stores.shards import TOKENIZER_FOLDER, Shard
from pipeline.stores.writer import StoreWriter
from training.energy.folder import open_energy_model
from training.energy.model import EnergyConfig

SCRIPT = "evaluation/score.py"


@dataclass(frozen=True, kw_only=True)
class ScoreSettings(Settings):
    """A model, the negatives that it gives energies, and where these go."""

    energy: str = setting(help="an energy model, or a language model", metavar="DIR_OR_NAME")
    store: str = setting(help="the negatives to be scored", metavar="STORE")
    output: str = setting(help="the store of energies, on any filesystem", metavar="DIR")
    batch_size: int | None = setting(None, help="windows at once (default: 64, on GPUs 512)", metavar="N", least=1)
    overwrite: bool = setting(False, help="replace a store that was made with other settings")


def main(arguments: Sequence[str] | None = None) -> int:
    settings, beam = read_known_settings(ScoreSettings, sys.argv[1:] if arguments is None else arguments, __doc__)
    describe(settings.output, score(settings, beam))
    return 0


def score(settings: ScoreSettings, beam: Sequence[str] = ()) -> Manifest:
    """The store of energies, made if it is not there: here, or through Beam if there are options of Beam's."""
    if beam:
        from pipeline.runtime.beam import beam_options

        beam_options(list(beam))
    job = ScoringJob(settings, writer_of(settings, beam))
    with job.writer.held():
        if (there := job.writer.made_before(settings.overwrite)) is not None:
            return there
        with job.writer.making():
            job.writer.claim(files.join(settings.store, TOKENIZER_FOLDER))
            if beam:
                run_on_beam(job, beam)
            else:
                finish(make_here(job), job)
    return read_manifest(settings.output)


def writer_of(settings: ScoreSettings, beam: Sequence[str]) -> StoreWriter:
    """Of the energies, which depend on the model and on the negatives, and on nothing else."""
    store = Store(settings.store, kind="negatives")
    result: dict[str, Any] = {"energy": describe_energy(settings.energy, store), "parent": store.manifest.digest}
    result |= {name: store.manifest.settings.get(name) for name in ("corpus", "split", "window", "context_lengths")}
    return StoreWriter(settings.output, Record.of(SCRIPT, settings, result, beam), kind="energies")


@dataclass(frozen=True)
class ScoringJob:
    """What every worker has to know."""

    settings: ScoreSettings
    writer: StoreWriter

    @cached_property
    def negatives(self) -> Store:
        return Store(self.settings.store, kind="negatives")

    @cached_property
    def scorer(self) -> Scorer:
        window = int(self.negatives.manifest.settings["window"])
        return open_scorer(self.settings.energy, window, self.settings.batch_size)

    @property
    def settings_digest(self) -> str:
        """Of everything that the energies depend on."""
        return digest_of(self.writer.record.settings)

    def __getstate__(self) -> dict[str, Any]:
        """Without the network: a worker opens its own."""
        return {"settings": self.settings, "writer": self.writer}


def describe_energy(name: str, store: Store) -> dict[str, Any]:
    """What the manifest says of the energy, from which tables are labelled later; refuses one that does not fit."""
    window, tokenizer = int(store.manifest.settings["window"]), store.manifest.tokenizer
    model = open_energy_model(name) if is_energy_model(name) else open_language_model(name)
    model.check_fits(window, tokenizer, store.path)
    model.check_weights()
    known = model.provenance
    kind = model.config.kind if isinstance(model.config, EnergyConfig) else "likelihood"
    facts = {field: known.get(field) for field in ("preset", "seed", "objective", "stores", "corpus")}
    return {"path": name, "digest": model.weights_digest, "kind": kind} | facts


def make_here(job: ScoringJob) -> list[Shard]:
    """One shard after another, in this process."""
    made = []
    with tqdm(total=len(job.negatives), unit=" rows", unit_scale=True, dynamic_ncols=True, disable=None) as bar:
        for number, shard in enumerate(job.negatives.manifest.shards):
            bar.set_description(f"shard {number + 1} of {len(job.negatives.manifest.shards)}")
            made.append(make_shard(number, job))
            bar.update(shard.rows)
    return made


def make_shard(number: int, job: ScoringJob) -> Shard:
    """The energies of one shard of negatives, unless they are there."""
    there = job.writer.shard(number, job.settings_digest)
    if there is not None:
        return there
    tables = [score_rows(rows, job.scorer) for rows in job.negatives.batches(shards=[number])]
    energies = pa.concat_tables(tables) if tables else score_rows(job.negatives.schema.empty_table(), job.scorer)
    bad = [value for value in energies["energy"].to_pylist() if value != value or abs(value) == float("inf")]
    if bad:
        model, store = job.settings.energy, job.settings.store
        raise UserError(f"{model}: it gives a window of {store} the energy {bad[0]}: train it again")
    return job.writer.write(number, energies.combine_chunks(), job.settings_digest)


def run_on_beam(job: ScoringJob, options: Sequence[str]) -> None:
    """The same through Beam: an element is a shard, written whole or not at all by whichever worker has it."""
    import apache_beam as beam

    from pipeline.runtime import beam as beam_runner

    def build(pipeline: beam.Pipeline) -> object:
        return (
            pipeline
            | "Shards" >> beam.Create(range(len(job.negatives.manifest.shards)))
            | "Spread shards" >> beam.Reshuffle()
            | "Score" >> beam.Map(make_shard, job)
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
