import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

import schemas
from pipeline.engines.sampling import Completions, Sampling, request_seed
from pipeline.mining.job import MiningJob, StoreJob, Unit, drawn_length
from pipeline.mining.rows import SKETCH, Sketch, count, list_hashes, mine
from pipeline.mining.settings import MiningSettings
from pipeline.runtime.randomness import mix
from pipeline.stores.manifest import Record
from pipeline.stores.writer import StoreWriter
from schemas.division import divide


class Echo:
    """A generator whose samples say what they were asked with: nothing real is needed to see what a row is made of."""

    def sample(self, contexts, lengths, seeds, n):
        self.contexts, self.seeds = contexts, seeds
        drawn = []
        for number, (length, seed) in enumerate(zip(lengths, seeds, strict=True)):
            tokens = np.array([[(seed + sample) % 97] * length for sample in range(n)], np.int32)
            log_p = -np.arange(n, dtype=np.float64) - number
            drawn.append(Completions(tokens, log_p, log_p + 0.5))
        return drawn

    def sample_and_score(self, contexts, completions, seeds, n):
        pairs = zip(contexts, completions, strict=True)
        log_p = [-float(len(context)) - len(completion) / 100 for context, completion in pairs]
        return self.sample(contexts, list(map(len, completions)), seeds, n), np.array(log_p)


def windows(count: int, length: int = 40) -> pa.Table:
    columns = {
        "window_id": [f"{number:032x}" for number in range(count)],
        "corpus": ["c"] * count,
        "split": ["train"] * count,
        "document": ["d"] * count,
        "offset": list(range(count)),
        "tokens": [list(range(number, number + length)) for number in range(count)],
    }
    return pa.table(columns, schema=schemas.WINDOWS)


def job(**changes) -> MiningJob:
    writer = StoreWriter("out", Record([], "", {}), "negatives")
    store = StoreJob(writer, "lm", "torch", Sampling(), {"direction": "left_to_right"})
    lengths = changes.pop("context_lengths", (10, 30))
    settings = {"windows": "w", "generator": ("lm",), "output": "out", "negatives": 3, "seed": 5} | changes
    return MiningJob(MiningSettings(**settings), (store,), lengths, shared=False, run="r")


@pytest.mark.parametrize("direction", ["left_to_right", "right_to_left"])
def test_a_row_is_a_window_its_context_and_its_samples(direction):
    echo = Echo()
    rows = mine(windows(50), Unit(0, 0, 4, 3), job(), direction, echo)
    assert rows.schema.equals(schemas.NEGATIVES)
    for number, row in enumerate(rows.to_pylist()):
        ids, length = list(range(number, number + 40)), row["context_length"]
        assert row["tokens"] == ids
        assert length == drawn_length(row["window_id"], 5, (10, 30))
        expected = ids[:length] if direction == "left_to_right" else ids[40 - length :]
        assert echo.contexts[number].tolist() == expected
        seed = request_seed(5, row["window_id"], length)
        assert (row["seed"], row["first_sample"], row["direction"]) == (seed, 4, direction)
        assert row["negatives"] == [[(seed + 4 + sample) % 97] * (40 - length) for sample in range(3)]
        assert row["log_p"] == [-sample - number for sample in range(3)]
        assert row["log_q"] == [0.5 - sample - number for sample in range(3)]
        assert row["positive_log_p"] == pytest.approx(-length - (40 - length) / 100)


def test_every_context_length_is_a_row_for_each():
    rows = mine(windows(4), Unit(0, 0, 0, 1), job(every_context_length=True), "left_to_right", Echo())
    assert rows["context_length"].to_pylist() == [10, 30] * 4
    assert rows["window_id"].to_pylist() == [f"{number:032x}" for number in range(4) for _ in range(2)]


def test_context_lengths_are_drawn_evenly_and_by_the_window_alone():
    ids = [f"{number:032x}" for number in range(9000)]
    drawn = [drawn_length(id, 0, (0, 7, 9)) for id in ids]
    assert stats.chisquare(np.unique(drawn, return_counts=True)[1]).pvalue > 0.01
    assert drawn != [drawn_length(id, 1, (0, 7, 9)) for id in ids]


def test_many_samples_are_divided_into_chunks_that_fit_in_memory(stores):
    manifest = stores.train.manifest
    many = job(negatives=2500, context_lengths=(8,), samples_per_row=1000)
    units = many.units(manifest)
    assert [(unit.number, unit.windows_shard, unit.first, unit.count) for unit in units] == [
        (0, 0, 0, 1000),
        (1, 0, 1000, 1000),
        (2, 0, 2000, 500),
        (3, 1, 0, 1000),
        (4, 1, 1000, 1000),
        (5, 1, 2000, 500),
    ]
    assert job(negatives=1, context_lengths=(8,)).units(manifest) == [Unit(0, 0, 0, 1), Unit(1, 1, 0, 1)]
    rows = max(shard.rows for shard in manifest.shards)
    size = job(negatives=10**6, context_lengths=(0,)).chunk_size(manifest)
    assert size == 1000
    assert size * rows * 4 * 13 <= 128 << 20


def test_counts_are_those_of_the_rows():
    table = mine(windows(30), Unit(0, 0, 0, 2), job(), "left_to_right", Echo()).to_pylist()
    table[3]["negatives"][1] = table[3]["tokens"][table[3]["context_length"] :]
    rows = pa.Table.from_pylist(table, schema=schemas.NEGATIVES)
    counts, _ = count(rows)
    tokens = sum(len(negative) for row in table for negative in row["negatives"])
    assert (counts.windows, counts.negatives, counts.tokens, counts.equal_to_positive) == (30, 60, tokens, 1)


def test_duplicates_are_equal_completions_of_different_windows():
    table = mine(windows(40), Unit(0, 0, 0, 2), job(context_lengths=(10,)), "left_to_right", Echo()).to_pylist()
    for number, row in enumerate(table):
        row["negatives"] = [[number, sample] * 15 for sample in range(2)]
    table[5]["negatives"] = [[9] * 30, [9] * 30]  # twice the same, but of one window
    table[7]["negatives"][0] = table[8]["negatives"][1]
    _, sketch = count(pa.Table.from_pylist(table, schema=schemas.NEGATIVES))
    assert sketch.duplicate_fraction == 2 / 80
    assert (sketch + sketch).duplicate_fraction == 2 / 80
    for row in table:
        row["negatives"] = [[1] * 30] * 2
    _, same = count(pa.Table.from_pylist(table, schema=schemas.NEGATIVES))
    assert same.duplicate_fraction == 1
    short = [row | {"context_length": 21, "negatives": [[1] * 19]} for row in table]
    assert count(pa.Table.from_pylist(short, schema=schemas.NEGATIVES))[1].duplicate_fraction == 0


def test_a_sketch_of_many_shards_stays_small_and_estimates_their_duplicates():
    """A fifth of 100,000 completions has an equal one in another shard."""
    generator = np.random.default_rng(0)
    shards = []
    for number in range(10):
        own = generator.integers(0, 2**63, 8000).astype(np.uint64) * np.uint64(2)
        common = mix(np.arange(2000, dtype=np.uint64), number // 2)
        completions = np.concatenate([own, common])
        shards.append(Sketch.of(completions, np.arange(10_000, dtype=np.uint64) + np.uint64(number * 10_000)))
    whole = shards[0]
    for shard in shards[1:]:
        whole = whole + shard
    assert len(whole.completions) == SKETCH
    assert whole.duplicate_fraction == pytest.approx(0.2, abs=0.05)


def test_hashes_of_lists_see_order_length_and_content():
    lists = pa.array([[1, 2, 3], [3, 2, 1], [1, 2], [1, 2, 3], [0], [0, 0]], schemas.TOKENS)
    hashes = list_hashes(lists)
    assert hashes[0] == hashes[3]
    assert len(set(hashes.tolist())) == 5


def test_a_window_is_divided_where_the_direction_says():
    ids = np.arange(10)
    assert [part.tolist() for part in divide(ids, 3, "left_to_right")] == [[0, 1, 2], list(range(3, 10))]
    assert [part.tolist() for part in divide(ids, 3, "right_to_left")] == [[7, 8, 9], list(range(7))]
    assert divide(ids, 0, "right_to_left")[0].tolist() == []
