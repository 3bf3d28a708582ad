"""Batches of a store in training order, read ahead of whoever trains on them."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
import pyarrow as pa

from training.data.order import BLOCKS_PER_SPAN, ROWS_PER_BLOCK, Numbers, rows_at

T = TypeVar("T")
R = TypeVar("R")


class Rows(Protocol):
    """Rows that can be had by their numbers: a store's, or those of several."""

    path: str

    def __len__(self) -> int: ...

    def take(self, rows: Sequence[int] | Numbers, columns: Sequence[str]) -> pa.Table: ...


@dataclass(frozen=True)
class Loader:
    """A rank's share of every global batch; step s can be had without reading what comes before it."""

    store: Rows
    columns: Sequence[str]
    batch_size: int
    seed: int
    rank: int = 0
    ranks: int = 1

    def rows(self, step: int) -> Numbers:
        """The rows of the whole batch of a step, all ranks together."""
        start = step * self.batch_size
        return rows_at(start, start + self.batch_size, len(self.store), self.seed)

    def batches(self, start: int, stop: int) -> Iterator[pa.Table]:
        """This rank's rows of steps start, …, stop - 1: many are read at once, the next ones in the background."""
        share = self.batch_size // self.ranks
        at_once = max(1, ROWS_PER_BLOCK * BLOCKS_PER_SPAN // self.batch_size)

        def read(first: int) -> pa.Table:
            steps = range(first, min(first + at_once, stop))
            mine = [self.rows(step)[self.rank * share : (self.rank + 1) * share] for step in steps]
            return self.store.take(np.concatenate(mine), self.columns)

        with ThreadPoolExecutor(1) as reader:
            firsts = range(start, stop, at_once)
            coming = reader.submit(read, start) if start < stop else None
            for first in firsts:
                assert coming is not None
                table = coming.result()
                if first + at_once < stop:
                    coming = reader.submit(read, first + at_once)
                for offset in range(0, len(table), share):
                    yield table.slice(offset, share)


def ahead(function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """What the function makes of every item, made one item ahead, in the background."""
    with ThreadPoolExecutor(1) as worker:
        coming: deque[Future[R]] = deque()
        for item in items:
            coming.append(worker.submit(function, item))
            if len(coming) > 1:
                yield coming.popleft().result()
        while coming:
            yield coming.popleft().result()
