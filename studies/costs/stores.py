"""How large stores become: rows like those of a store are made up, and the store's own code writes them.

Tokens are drawn as pieces are in text: by Zipf's law, ids in the order of frequency, as byte pair encodings nearly have
them. What the text is like decides. Of a small study on English, with 4,096 pieces, stores of negatives had between 1 %
less and 4 % more than this says, but the law's numbers were fitted on some of them; windows had up to a fifth less,
where many of a shard are of one long document.
"""

import math
import tempfile
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import schemas
from pipeline.stores.shards import write_shard

GPT2 = 50_257
SHIFT, FLATTER = 2.7, 0.8  # of Zipf's law: see `shares`
TABLE_BYTES = 8 << 20  # of made-up rows, which are enough to stand for a larger shard
Names = list[str]


@cache
def windows_bytes(rows: int, shards: int, window: int, vocabulary: int, one_document: bool = False) -> float:
    """Of a store of windows; as in a large corpus, no two rows of a shard are of one document, unless all are."""

    def table(count: int) -> pa.Table:
        random = np.random.default_rng(0)
        columns = {
            "window_id": _names(random, count),
            **_labels(count),
            "document": _names(random, 1) * count if one_document else _names(random, count),
            "offset": pa.array(random.integers(0, 10**6, count), pa.int64()),
            "tokens": _lists(_tokens(random, vocabulary, count * window), [window] * count),
        }
        return pa.table(columns, schema=schemas.WINDOWS)

    return _of_shards(rows, shards, 4 * window + 100, table)


@cache
def negatives_bytes(
    rows: int, shards: int, window: int, vocabulary: int, lengths: tuple[int, ...], samples: int, every: bool = False
) -> float:
    """Of a store of negatives with so many samples a row; a window has one of the lengths, or a row for each."""

    def table(count: int) -> pa.Table:
        random = np.random.default_rng(0)
        copies = len(lengths) if every else 1
        owners = np.arange(count) // copies
        contexts = np.resize(lengths, count) if every else random.choice(np.array(lengths), count)
        windows = _tokens(random, vocabulary, (int(owners[-1]) + 1) * window).reshape(-1, window)
        sizes = np.repeat(window - contexts, samples)
        completions = _lists(_tokens(random, vocabulary, int(sizes.sum())), sizes)
        each = pa.array(np.arange(0, count * samples + 1, samples), pa.int32())
        log_p = pa.ListArray.from_arrays(each, _log_p(random, sizes), type=schemas.NEGATIVES.field("log_p").type)
        columns = {
            "window_id": np.array(_names(random, len(windows)))[owners].tolist(),
            **_labels(count),
            "tokens": _lists(windows[owners].ravel(), [window] * count),
            "direction": ["left_to_right"] * count,
            "context_length": pa.array(contexts, pa.int32()),
            "positive_log_p": _log_p(random, window - contexts),
            "first_sample": pa.array([0] * count, pa.int64()),
            "negatives": pa.ListArray.from_arrays(each, completions, type=schemas.NEGATIVES.field("negatives").type),
            "log_p": log_p,
            "log_q": log_p,
            "seed": pa.array(random.integers(0, 2**63 - 1, count), pa.int64()),
        }
        return pa.table(columns, schema=schemas.NEGATIVES)

    longest = window - min(lengths)
    return _of_shards(rows, shards, 4 * window + samples * (4 * longest + 16) + 150, table)


@cache
def energies_bytes(rows: int, shards: int, samples: int, copies: int = 1) -> float:
    """Of the energies of a store of negatives of so many rows: one for each sample, and one for the real window.

    A window has `copies` rows, one after the other, of different context lengths.
    """

    def table(count: int) -> pa.Table:
        random = np.random.default_rng(0)
        number = np.tile(np.arange(-1, samples), count)
        log_p = _log_p(random, np.full(len(number), 32))
        windows = _names(random, -(-count // copies))
        columns = {
            "window_id": np.repeat(windows, copies * (samples + 1))[: len(number)].tolist(),
            **_labels(len(number)),
            "context_length": pa.array(np.repeat(np.arange(count) % copies, samples + 1), pa.int32()),
            "sample": pa.array(number, pa.int64()),
            "energy": random.standard_normal(len(number), np.float32).astype(np.float64),
            "log_p": log_p,
            "log_q": pa.array(log_p.to_numpy(), mask=number < 0),
        }
        return pa.table(columns, schema=schemas.ENERGIES)

    return _of_shards(rows, shards, 100 * (samples + 1), table)


def _of_shards(rows: int, shards: int, row_bytes: int, table: Callable[[int], pa.Table]) -> float:
    """Of all shards, from one of them; of one that is too large to be made up, from its beginning."""
    if not rows:
        return 0.0
    whole = math.ceil(rows / shards)
    made = table(max(1, min(whole, TABLE_BYTES // row_bytes)))
    with tempfile.TemporaryDirectory() as folder:
        written = write_shard(folder, 0, made, "").bytes
    part = min(whole, max(1, TABLE_BYTES // row_bytes))
    return written * rows / part


def shares(vocabulary: int) -> NDArray[np.float64]:
    """How often the pieces of a vocabulary come: 1 / (rank + shift), fewer pieces being used more evenly."""
    shift = SHIFT * (GPT2 / vocabulary) ** FLATTER
    return 1 / (np.arange(vocabulary) + shift)


def _names(random: np.random.Generator, count: int) -> Names:
    return [random.bytes(16).hex() for _ in range(count)]


def _labels(rows: int) -> dict[str, Names]:
    return {"corpus": ["text"] * rows, "split": ["train"] * rows}


def _tokens(random: np.random.Generator, vocabulary: int, count: int) -> NDArray[np.int32]:
    sums = np.cumsum(shares(vocabulary))
    return np.searchsorted(sums, random.random(count) * sums[-1]).astype(np.int32)


def _lists(values: NDArray[np.int32], lengths: Sequence[int] | NDArray[np.int64]) -> pa.Array:
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    return pa.ListArray.from_arrays(offsets, pa.array(values), type=schemas.TOKENS)


def _log_p(random: np.random.Generator, tokens: NDArray[np.int64]) -> pa.Array:
    """Completions' log-probabilities: a number for every token, added up."""
    terms = random.exponential(3, int(tokens.sum()))
    return pa.array(-np.add.reduceat(terms, np.concatenate([[0], np.cumsum(tokens)[:-1]])), pa.float64())
