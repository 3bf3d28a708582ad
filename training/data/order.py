"""The order in which windows are trained on: arithmetic on (number of rows, seed, position) and nothing else.

A store is already shuffled, so an epoch only has to differ from the last one and to stay cheap to read. Blocks of
neighbouring rows are put in a new order each epoch, and the rows of a span of blocks at a time are shuffled among each
other: any place of any epoch can be computed at once, and reading there touches few places of the store.

A large store, which no machine wants to read more often than it must, has larger blocks, each of them some row groups
of its files, and takes their rows in rounds, one of every block: then every batch has (but for one) as many rows of
each block as of any other, and ranks that share the blocks share the batch. What that gives up: the rows of a span,
262,144 of them, are each other's company in that epoch, and two rows of one block meet in a batch a little more seldom
than chance would have it. As every block is a fair sample of the store, batches are fair ones too, of a little less
variance than those of a shuffle of all rows. Small stores have the order of spans that are shuffled as a whole.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from pipeline.runtime.randomness import U64, mix

ROWS_PER_BLOCK = 256  # rows that stay near each other
BLOCKS_PER_SPAN = 64  # blocks that are shuffled among each other
LARGE_BLOCK = 4096  # rows, of a large store: at least a row group of any store's files
LARGE = LARGE_BLOCK * BLOCKS_PER_SPAN  # rows above which a store is large: at most a few hundred megabytes

Numbers = NDArray[np.int64]


def rows_at(start: int, stop: int, total: int, seed: int) -> Numbers:
    """The rows at positions start, …, stop - 1 of an endless sequence of epochs over `total` rows."""
    pieces = []
    for first, last in spans_between(start, stop, total):
        epoch, place = divmod(first, total)
        span = _span_at(place, total)
        inside = place - int(_starts(total)[span])
        pieces.append(_span(epoch, span, total, seed)[inside : inside + last - first])
    return np.concatenate(pieces) if pieces else np.empty(0, np.int64)


def spans_between(start: int, stop: int, total: int) -> list[tuple[int, int]]:
    """The positions start, …, stop - 1 in stretches of one span each: what is best read together."""
    found = []
    while start < stop:
        epoch, place = divmod(start, total)
        end = min(stop, epoch * total + int(_starts(total)[_span_at(place, total) + 1]))
        found.append((start, end))
        start = end
    return found


def _span_at(place: int, total: int) -> int:
    return int(np.searchsorted(_starts(total), place, side="right")) - 1


@lru_cache(maxsize=4)
def _starts(total: int) -> Numbers:
    """The places in an epoch at which spans begin, and its end. Those of a large store are as long as each other."""
    size = _block_rows(total)
    blocks = -(-total // size)
    spans = -(-blocks // BLOCKS_PER_SPAN)
    numbers = np.arange(spans + 1)
    firsts = numbers * blocks // spans if total > LARGE else numbers * BLOCKS_PER_SPAN
    return np.minimum(firsts * size, total)


def _block_rows(total: int) -> int:
    return LARGE_BLOCK if total > LARGE else ROWS_PER_BLOCK


@lru_cache(maxsize=4)
def _span(epoch: int, span: int, total: int, seed: int) -> Numbers:
    """The rows of one span of one epoch. The last block may be short: it stays where the last place is."""
    size, (start, stop) = _block_rows(total), _starts(total)[span : span + 2]
    blocks = _blocks(epoch, total, seed)[start // size : -(-stop // size)]
    rows = (blocks[:, None] * size + np.arange(size)).ravel()
    rows = rows[rows < total]
    draws = mix(rows.astype(np.uint64), _key(seed, epoch, 1))
    order = _in_rounds(rows // size, draws, size) if total > LARGE else np.argsort(draws, kind="stable")
    return np.asarray(rows[order])


def _in_rounds(blocks: Numbers, draws: U64, size: int) -> Numbers:
    """The order that takes a row of each block, then another of each, …; which one, and when in a round, is drawn.

    A short block takes part in as many rounds as it has rows, at equal distances.
    """
    by_block = np.lexsort((draws, blocks))
    _, firsts, counts = np.unique(blocks[by_block], return_index=True, return_counts=True)
    number = np.arange(len(blocks)) - np.repeat(firsts, counts)  # of a row among those of its block
    rounds = number * size // np.repeat(counts, counts)
    return np.asarray(by_block[np.lexsort((mix(draws)[by_block], rounds))])


@lru_cache(maxsize=2)
def _blocks(epoch: int, total: int, seed: int) -> Numbers:
    whole, rest = divmod(total, _block_rows(total))
    order = np.argsort(mix(np.arange(whole, dtype=np.uint64), _key(seed, epoch, 0)), kind="stable")
    return np.append(order, whole) if rest else order


def _key(seed: int, epoch: int, use: int) -> int:
    return int(mix(mix(np.array([seed], np.uint64), 2 * epoch + use + 1))[0])
