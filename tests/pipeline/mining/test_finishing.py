"""Summing up: nothing that is sent from worker to worker grows with the number of shards."""

import pickle
import resource

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.testing.util import assert_that

from pipeline.mining.finishing import Tally, total
from pipeline.mining.graph import Tallies
from pipeline.mining.rows import SKETCH, Counts, Sketch
from pipeline.stores.shards import Shard

SHARDS = 20_000


def synthetic(number: int) -> Tally:
    """A shard of 5,000 long completions, one in a hundred of which every shard has."""
    rng = np.random.default_rng(number)
    own = rng.integers(0, 2**64, 4950, np.uint64)
    shared = np.arange(50, dtype=np.uint64) * np.uint64(2**57)
    sketch = Sketch.of(np.concatenate([own, shared]), np.full(5000, number, np.uint64))
    shard = Shard(f"shards/{number:05d}-{number:08x}.parquet", 5000, 10**6, f"{number:064x}", f"{number:064x}")
    return Tally([shard], 0, Counts(5000, 5000, 200_000, 7), sketch)


def test_sums_are_the_same_in_any_order_and_grouping():
    parts = [synthetic(number) for number in range(30)]
    whole = total(parts)
    turned = total([total(parts[20:]), total(parts[:7]), total(parts[7:20])])
    assert whole.counts == turned.counts == Counts(150_000, 150_000, 6_000_000, 210)
    assert whole.sketch.duplicate_fraction == pytest.approx(turned.sketch.duplicate_fraction)
    assert {shard.file for shard in whole.shards} == {shard.file for shard in turned.shards}
    assert total([]).lacking == 0
    assert total([Tally(lacking=1), *parts]).lacking == 1


SIZES: list[int] = []


class Measured(Tallies):
    """Notes how large what is sent on would be."""

    def merge_accumulators(self, accumulators):
        parts = list(accumulators)
        SIZES.extend(len(pickle.dumps(part)) for part in parts)
        return super().merge_accumulators(parts)


def numbered(number: int) -> tuple[int, Tally]:
    return 0, synthetic(number)


def check(found) -> None:
    ((_, whole),) = found
    assert len(whole.shards) == SHARDS
    assert whole.counts.negatives == 5000 * SHARDS
    assert len(whole.sketch.completions) == SKETCH
    SIZES.append(len(pickle.dumps(whole)))


@pytest.mark.slow
def test_twenty_thousand_shards_are_summed_up_in_flat_memory_and_small_elements():
    """Through Beam's own runner: the largest element is the list of all shards, some 250 bytes each."""
    SIZES.clear()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with beam.Pipeline("FnApiRunner") as pipeline:
        made = pipeline | beam.Create(range(SHARDS), reshuffle=False) | beam.Map(numbered)
        assert_that(made | beam.CombinePerKey(Measured()), check)
    assert len(SIZES) > 1
    assert max(SIZES) < 6_000_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400_000  # KB: 2.6 GB if gathered as they are
