"""The Beam graph that mines negatives.

An element is a shard to be made, never a row. A worker writes it whole or not at all, under a name and with a digest
that say all that it depends on: a shard that is there is not made again, and a bundle that runs twice does no harm.
What the manifest says is read from the shards themselves, after all of them are there.
"""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, fields
from typing import Any

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.pvalue import AsSingleton

from pipeline.mining.finishing import Tally, finish, tally, total
from pipeline.mining.job import MiningJob, Unit
from pipeline.mining.making import MadeShard, ShardMaker
from pipeline.mining.rows import Counts
from pipeline.runtime.beam import on_accelerator
from pipeline.runtime.lock import renewing
from pipeline.stores.manifest import Manifest, read_manifest


class MineNegatives(beam.PTransform):
    """A windows store, once it is there, to one store of negatives for every generator and sampling rule."""

    def __init__(self, job: MiningJob):
        super().__init__()
        self.job = job

    def expand(self, ready: beam.PCollection) -> beam.PCollection:
        """`ready` has one element, whatever it is, when the windows are there."""
        job = self.job
        parent = ready | "Look at the windows" >> beam.Map(begin, job)
        generate = beam.ParDo(Generate(job), AsSingleton(parent))
        return (
            parent
            | "Shards" >> beam.FlatMap(job.units)
            | "Spread shards" >> beam.Reshuffle()
            | "Generate" >> on_accelerator(generate, job.settings.accelerator)
            | "All are made" >> beam.Reshuffle()
            | "Read them again" >> beam.Map(tally, job, AsSingleton(parent))
            | "Sum up" >> beam.CombinePerKey(Tallies())
            | "Finish" >> beam.Map(finish, job, AsSingleton(parent))
        )


def begin(ready: Any, job: MiningJob) -> Manifest:
    """Makes the output folders this run's, and says what the windows are."""
    parent = read_manifest(job.settings.windows)
    job.claim(parent)
    return parent


class Generate(beam.DoFn):
    """Makes one shard of every store; the windows are read once for all of them."""

    def __init__(self, job: MiningJob):
        self.job = job
        self.maker: ShardMaker | None = None
        names = ["shards", "rejects", *(field.name for field in fields(Counts))]
        self.counters = {name: Metrics.counter("mining", name) for name in names}

    def start_bundle(self) -> None:
        if self.maker is not None:
            self.maker.look()

    def process(self, unit: Unit, parent: Manifest) -> Iterator[MadeShard]:
        with renewing([store.writer.output for store in self.job.stores if self.job.run_of(store)], self.job.run):
            self.maker = self.maker or ShardMaker(self.job, parent)
            for made in self.maker.make(unit):
                self._count(made)
                yield made

    def _count(self, made: MadeShard) -> None:
        amounts = {"rejects": 1} if made.error else {"shards": 1} | asdict(made.counts) if made.counts else {}
        for name, amount in amounts.items():
            self.counters[name].inc(amount)

    def teardown(self) -> None:
        if self.maker is not None:
            self.maker.close()


class Tallies(beam.CombineFn):
    """Sums of shards, made where the shards are read: what is sent on does not grow with their number."""

    def create_accumulator(self) -> Tally:
        return Tally()

    def add_input(self, accumulator: Tally, element: Tally) -> Tally:
        return accumulator + element

    def merge_accumulators(self, accumulators: Iterable[Tally]) -> Tally:
        return total(accumulators)

    def extract_output(self, accumulator: Tally) -> Tally:
        return accumulator
