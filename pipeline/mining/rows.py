"""Mining one shard: windows in, rows of negatives out."""

import hashlib
from dataclasses import dataclass, fields
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import schemas
from pipeline.engines.sampling import Completions, request_seed
from pipeline.mining.job import MiningJob, Unit, lengths_of
from pipeline.mining.settings import SCORED
from pipeline.runtime.randomness import U64, mix
from schemas.division import divide

DUPLICATES_FROM = 20  # tokens: shorter completions are often equal by chance
SKETCH = 4096  # completions from which the share of duplicates is estimated; of fewer ones it is exact


class Sampler(Protocol):
    """A generator, here or in another process."""

    def sample(self, contexts: list[np.ndarray], lengths: list[int], seeds: list[int], n: int) -> list[Completions]: ...

    def sample_and_score(
        self, contexts: list[np.ndarray], completions: list[np.ndarray], seeds: list[int], n: int
    ) -> tuple[list[Completions], np.ndarray]: ...


@dataclass(frozen=True)
class Counts:
    """What a shard's mining came to."""

    windows: int = 0
    negatives: int = 0
    tokens: int = 0
    equal_to_positive: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(Counts)))


def mine(windows: pa.Table, unit: Unit, job: MiningJob, direction: str, generator: Sampler) -> pa.Table:
    """The rows of one shard of negatives.

    Sample j of a window has the seed `request_seed(…) + j`, in whatever chunks the samples are drawn.
    """
    tokens = [ids.values.to_numpy() for ids in windows["tokens"]]
    window_ids = windows["window_id"].to_pylist()
    places, lengths = (list(column) for column in zip(*lengths_of(window_ids, job), strict=True))
    contexts, positives = [], []
    for place, length in zip(places, lengths, strict=True):
        context, positive = divide(tokens[place], length, direction)
        contexts.append(context)
        positives.append(positive)
    seeds = [
        request_seed(job.settings.seed, window_ids[place], length)
        for place, length in zip(places, lengths, strict=True)
    ]
    own_seeds = [seed + unit.first for seed in seeds]
    if job.settings.positives == SCORED:
        drawn, positive_log_p = generator.sample_and_score(contexts, positives, own_seeds, unit.count)
    else:
        drawn, positive_log_p = generator.sample(contexts, list(map(len, positives)), own_seeds, unit.count), None
    rows = windows.select(["window_id", "corpus", "split", "tokens"]).take(places)
    columns = {
        "direction": pa.array([direction] * len(places)),
        "context_length": pa.array(lengths, pa.int32()),
        "positive_log_p": pa.nulls(len(places)) if positive_log_p is None else pa.array(positive_log_p, pa.float64()),
        "first_sample": pa.array([unit.first] * len(places), pa.int64()),
        "negatives": _token_lists([completions.tokens for completions in drawn]),
        "log_p": _number_lists([completions.log_p for completions in drawn]),
        "log_q": _number_lists([completions.log_q for completions in drawn]),
        "seed": pa.array(seeds, pa.int64()),
    }
    for name, column in columns.items():
        rows = rows.append_column(name, column)
    return rows.cast(schemas.NEGATIVES)


def count(rows: pa.Table) -> tuple[Counts, "Sketch"]:
    """The counts of a shard's rows, and a sketch of its long negatives, from which duplicates are found."""
    if not len(rows):
        return Counts(), Sketch.of(*np.empty((2, 0), np.uint64))
    negatives = pa.concat_arrays(rows["negatives"].chunks)
    owners = np.repeat(np.arange(len(rows)), negatives.value_lengths().to_numpy())
    completions = list_hashes(negatives.flatten())
    tokens = rows["tokens"].combine_chunks()
    window = len(tokens[0])
    flat = tokens.flatten().to_numpy().reshape(len(rows), window)
    direction = rows["direction"][0].as_py()
    lengths = rows["context_length"].to_numpy()
    positives = [divide(ids, length, direction)[1] for ids, length in zip(flat, lengths, strict=True)]
    true_hashes = list_hashes(pa.array(positives, schemas.TOKENS))
    long = (window - lengths)[owners] >= DUPLICATES_FROM
    ids = (hashlib.blake2b(id.encode(), digest_size=8).digest() for id in rows["window_id"].to_pylist())
    windows = np.frombuffer(b"".join(ids), np.uint64)
    sketch = Sketch.of(completions[long], windows[owners][long])
    whole = Counts(
        windows=len(np.unique(windows)) if rows["first_sample"][0].as_py() == 0 else 0,
        negatives=len(completions),
        tokens=int((window - lengths)[owners].sum()),
        equal_to_positive=int((completions == true_hashes[owners]).sum()),
    )
    return whole, sketch


def list_hashes(lists: pa.Array) -> U64:
    """A 64-bit hash of every list of token ids."""
    if not len(lists):
        return np.empty(0, np.uint64)
    lengths = lists.value_lengths().to_numpy()
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    values = lists.flatten().to_numpy()
    places = np.arange(len(values)) - np.repeat(starts, lengths)
    mixed = mix(values.astype(np.uint64) << np.uint64(32) | places.astype(np.uint64), seed=1)
    return mix(np.add.reduceat(mixed, starts), seed=2)


@dataclass(frozen=True)
class Sketch:
    """Of many completions the distinct ones with the smallest hashes: how often each came, and for which windows.

    Equal completions of different shards are all in their sketches or none, so sketches of any number of shards make
    one of all of them, in memory that does not grow. `first` and `last` are the smallest and the largest window.
    """

    completions: U64
    counts: NDArray[np.int64]
    first: U64
    last: U64

    @staticmethod
    def of(completions: U64, windows: U64) -> "Sketch":
        return Sketch(completions, np.ones(len(completions), np.int64), windows, windows)._merged()

    def __add__(self, other: "Sketch") -> "Sketch":
        pairs = ((getattr(self, field.name), getattr(other, field.name)) for field in fields(Sketch))
        return Sketch(*(np.concatenate(pair) for pair in pairs))._merged()

    def _merged(self) -> "Sketch":
        if not len(self.completions):
            return self
        order = np.argsort(self.completions, kind="stable")
        distinct, starts = np.unique(self.completions[order], return_index=True)
        return Sketch(
            distinct[:SKETCH],
            np.add.reduceat(self.counts[order], starts)[:SKETCH],
            np.minimum.reduceat(self.first[order], starts)[:SKETCH],
            np.maximum.reduceat(self.last[order], starts)[:SKETCH],
        )

    @property
    def duplicate_fraction(self) -> float:
        """The share of completions that some other window has too."""
        total = self.counts.sum()
        return float(self.counts[self.first != self.last].sum() / total) if total else 0.0


def _token_lists(samples: list[np.ndarray]) -> pa.Array:
    """One list of token lists a row, from arrays of shape (n, length)."""
    flat = np.concatenate([tokens.ravel() for tokens in samples])
    inner = np.concatenate([np.full(len(tokens), tokens.shape[1]) for tokens in samples])
    ids = pa.ListArray.from_arrays(_offsets(inner), pa.array(flat, pa.int32()), type=schemas.TOKENS)
    type = schemas.NEGATIVES.field("negatives").type
    return pa.ListArray.from_arrays(_offsets(np.array([len(tokens) for tokens in samples])), ids, type=type)


def _number_lists(samples: list[np.ndarray]) -> pa.Array:
    type = schemas.NEGATIVES.field("log_p").type
    offsets = _offsets(np.array([len(numbers) for numbers in samples]))
    return pa.ListArray.from_arrays(offsets, pa.array(np.concatenate(samples), pa.float64()), type=type)


def _offsets(lengths: np.ndarray) -> pa.Array:
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
