"""Scores a store of negatives: the energy of every real window and of every sample, into a store of energies.

  python evaluation/score.py --energy models/books-energy --store stores/books-test-negatives \\
      --output stores/books-test-energies

Everything after it is arithmetic on stores. --energy may also be a language model: the energy is then minus the whole
window's log-probability. Finished shards are not made again, and a killed run continues when the same command is given
again. Every further option is Beam's: --direct_num_workers 2 uses two processes, --runner DataflowRunner a fleet;
without any, the shards are made here, one after another, and Beam is not needed.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
from tqdm import tqdm

from evaluation.joint.scorers import Scorer, is_energy_model, open_scorer, score
from pipeline.models.language_model import open_language_model
from pipeline.runtime import files
from pipeline.runtime.command_line import Parser
from pipeline.runtime.errors import Obstructed, UserError, exit_with
from pipeline.runtime.lock import writing
from pipeline.stores.manifest import Manifest, Record, read_manifest, write_manifest
from pipeline.stores.reader import Store
from pipeline.stores.shards import (
    SHARDS,
    TOKENIZER_FOLDER,
    Shard,
    fingerprint,
    finished_shard,
    remove_others,
    write_shard,
)
from pipeline.stores.writer import WORK, abandon, begin, commit, is_whole, store_there
from training.energy.folder import open_energy_model
from training.energy.model import EnergyConfig


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    options, rest = parse(arguments)
    store = Store(options.store, kind="negatives")
    settings: dict[str, Any] = {"energy": describe_energy(options.energy, store), "parent": store.manifest.digest}
    settings |= {name: store.manifest.settings.get(name) for name in ("corpus", "split", "window", "context_lengths")}
    record = Record(["evaluation/score.py", *arguments], os.getcwd(), settings)
    job = ScoringJob(options.energy, options.store, options.output, record, options.batch_size)
    with writing(options.output):
        there = store_there(options.output, record, options.overwrite)
        if there is None or not is_whole(options.output, there):
            make(job, rest)
        else:
            files.remove(files.join(options.output, WORK))
    describe(options.output, read_manifest(options.output))
    return 0


def parse(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    parser = Parser(__doc__)
    parser.add_argument("--energy", required=True, metavar="DIR_OR_NAME", help="an energy model, or a language model")
    parser.add_argument("--store", required=True, metavar="STORE", help="the negatives to be scored")
    parser.add_argument("--output", required=True, metavar="DIR", help="the store of energies, on any filesystem")
    parser.add_argument("--batch_size", type=int, metavar="N", help="windows at once (default: 64, on GPUs 512)")
    parser.add_argument("--overwrite", action="store_true", help="replace a store that was made with other settings")
    options, rest = parser.parse_known_args(arguments)
    if options.batch_size is not None and options.batch_size < 1:
        raise UserError(f"--batch_size {options.batch_size}: at least 1")
    if rest:
        from pipeline.runtime.beam import beam_options

        beam_options(rest)
    return options, rest


@dataclass(frozen=True)
class ScoringJob:
    """What every worker has to know."""

    energy: str
    store: str
    output: str
    record: Record
    batch_size: int | None

    @cached_property
    def negatives(self) -> Store:
        return Store(self.store, kind="negatives")

    @cached_property
    def scorer(self) -> Scorer:
        return open_scorer(self.energy, int(self.negatives.manifest.settings["window"]), self.batch_size)

    @property
    def stamp(self) -> str:
        """Of everything that the energies depend on."""
        return fingerprint(self.record.settings)

    def __getstate__(self) -> dict[str, Any]:
        """Without the network: a worker opens its own."""
        return {name: value for name, value in self.__dict__.items() if name not in ("negatives", "scorer")}


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


def make(job: ScoringJob, rest: list[str]) -> None:
    """All shards that are not there yet, then the manifest; bad input leaves the folder as it was."""
    existed = files.exists(job.output)
    begin(job.output, job.record)
    try:
        commit(job.output, files.join(job.store, TOKENIZER_FOLDER), job.record)
        if rest:
            run_on_beam(job, rest)
        else:
            finish(make_here(job), job)
    except Obstructed:
        raise
    except UserError:
        if not files.names_in(files.join(job.output, SHARDS)):
            abandon(job.output, existed)
        raise


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
    there = finished_shard(job.output, number, "energies", job.stamp)
    if there is not None:
        return there
    tables = [score(rows, job.scorer) for rows in job.negatives.batches(shards=[number])]
    energies = pa.concat_tables(tables) if tables else score(job.negatives.schema.empty_table(), job.scorer)
    bad = [value for value in energies["energy"].to_pylist() if value != value or abs(value) == float("inf")]
    if bad:
        raise UserError(f"{job.energy}: it gives a window of {job.store} the energy {bad[0]}: train it again")
    return write_shard(job.output, number, energies.combine_chunks(), job.stamp)


def run_on_beam(job: ScoringJob, rest: list[str]) -> None:
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

    beam_runner.run(build, beam_runner.beam_options(rest))


def finish(made: list[Shard], job: ScoringJob) -> None:
    """Writes the manifest, and with it the store is finished."""
    parent = read_manifest(job.store)
    shards = sorted(made, key=lambda shard: (len(shard.file), shard.file))
    rows = sum(shard.rows for shard in shards)
    manifest = Manifest(
        kind="energies",
        shards=shards,
        settings=job.record.settings,
        tokenizer=parent.tokenizer,
        parent={"path": job.store, "digest": parent.digest},
        seed=parent.seed,
        command=job.record.command,
        directory=job.record.directory,
        counts={"energies": rows},
        generator=parent.generator,
        sampling=parent.sampling,
    )
    write_manifest(job.output, manifest)
    remove_others(job.output, shards)
    files.remove(files.join(job.output, WORK))


def describe(output: str, manifest: Manifest) -> None:
    energy, settings = manifest.settings["energy"], manifest.settings
    lines = {
        "energy": f"{energy['path']} ({energy['preset'] or energy['kind']})",
        "windows": f"{settings['corpus']}, {settings['split']}, of {(manifest.parent or {})['path']}",
        "energies": f"{manifest.rows:,}",
        "shards": f"{len(manifest.shards):,}, {manifest.bytes / 1e6:,.1f} MB",
        "digest": manifest.digest,
    }
    print(f"energies store {output}")
    for name, value in lines.items():
        print(f"  {name:<10} {value}")


if __name__ == "__main__":
    exit_with(main)
