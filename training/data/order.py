"""The order in which windows are trained on: arithmetic on (number of rows, seed, position) and nothing else.

A store is already shuffled, so an epoch only has to differ from the last one and to stay cheap to read. Blocks of
neighbouring rows are put in a new order each epoch, and the rows of a span of blocks at a time are shuffled among each
other: any place of any epoch can be computed at once, and reading there touches few places of the store.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from pipeline.runtime.randomness import mix

ROWS_PER_BLOCK = 256  # rows that stay near each other
BLOCKS_PER_SPAN = 64  # blocks that are shuffled among each other

Numbers = NDArray[np.int64]


def rows_at(start: int, stop: int, total: int, seed: int) -> Numbers:
    """The rows at positions start, …, stop - 1 of an endless sequence of epochs over `total` rows."""
    pieces, span_rows = [], ROWS_PER_BLOCK * BLOCKS_PER_SPAN
    while start < stop:
        epoch, place = divmod(start, total)
        span, inside = divmod(place, span_rows)
        piece = _span(epoch, span, total, seed)[inside : inside + stop - start]
        pieces.append(piece)
        start += len(piece)
    return np.concatenate(pieces) if pieces else np.empty(0, np.int64)


@lru_cache(maxsize=4)
def _span(epoch: int, span: int, total: int, seed: int) -> Numbers:
    """The rows of one span of one epoch. The last block may be short: it stays where the last place is."""
    blocks = _blocks(epoch, total, seed)[span * BLOCKS_PER_SPAN : (span + 1) * BLOCKS_PER_SPAN]
    rows = (blocks[:, None] * ROWS_PER_BLOCK + np.arange(ROWS_PER_BLOCK)).ravel()
    rows = rows[rows < total]
    return rows[np.argsort(mix(rows.astype(np.uint64), _key(seed, epoch, 1)), kind="stable")]


@lru_cache(maxsize=2)
def _blocks(epoch: int, total: int, seed: int) -> Numbers:
    whole, rest = divmod(total, ROWS_PER_BLOCK)
    order = np.argsort(mix(np.arange(whole, dtype=np.uint64), _key(seed, epoch, 0)), kind="stable")
    return np.append(order, whole) if rest else order


def _key(seed: int, epoch: int, use: int) -> int:
    return int(mix(mix(np.array([seed], np.uint64), 2 * epoch + use + 1))[0])
