"""Batches of a store in training order, read ahead of whoever trains on them."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
import pyarrow as pa

from training.data.order import Numbers, rows_at, spans_between

MOST_ROWS = 1 << 17  # that a rank reads at once
T = TypeVar("T")
R = TypeVar("R")


class Rows(Protocol):
    """Rows that can be had by their numbers: a store's, or those of several."""

    path: str

    def __len__(self) -> int: ...

    def take(self, rows: Sequence[int] | Numbers, columns: Sequence[str]) -> pa.Table: ...


@dataclass(frozen=True)
class Loader:
    """A rank's share of every global batch; step s can be had without reading what comes before it.

    The batch of a step is the same on any number of ranks. Who takes which of its rows is free, as all gradients are
    averaged: a batch is divided by the numbers of its rows, so that a rank's rows of many steps are near each other in
    the store, and each rank reads its own row groups and few others. A rank has its rows in the order of the batch.
    """

    store: Rows
    columns: Sequence[str]
    batch_size: int
    seed: int
    rank: int = 0
    ranks: int = 1

    def rows(self, step: int) -> Numbers:
        """The rows of the whole batch of a step, all ranks together."""
        return self._between(step * self.batch_size, (step + 1) * self.batch_size)

    def places(self, step: int) -> Numbers:
        """The positions of this rank's rows of a step in the endless order of all, ascending."""
        first, found = step * self.batch_size, []
        for start, stop in spans_between(first, first + self.batch_size, len(self.store)):
            # Every span is divided by itself: which rows of it a rank reads does not depend on where batches end.
            low, high = (
                rank * (stop - first) // self.ranks - rank * (start - first) // self.ranks
                for rank in (self.rank, self.rank + 1)
            )
            found.append(start + np.sort(np.argsort(self._between(start, stop), kind="stable")[low:high]))
        return np.concatenate(found)

    def batches(self, start: int, stop: int) -> Iterator[tuple[pa.Table, Numbers]]:
        """This rank's rows of steps start, …, stop - 1, and their places; they are read ahead, in the background."""
        share = self.batch_size // self.ranks
        tables: list[pa.Table] = []
        places = np.empty(0, np.int64)
        for table, more in ahead(lambda stretch: self.read(*stretch), self.stretches(start, stop)):
            tables, places = [*tables, table], np.concatenate([places, more])
            whole = len(places) // share * share
            rows = pa.concat_tables(tables)
            for first in range(0, whole, share):
                yield rows.slice(first, share), places[first : first + share]
            tables, places = [rows.slice(whole)], places[whole:]

    def stretches(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """The positions of steps start, …, stop - 1 in pieces that are read at once: spans, or parts of one."""
        most = MOST_ROWS * self.ranks
        for first, last in spans_between(start * self.batch_size, stop * self.batch_size, len(self.store)):
            for begin in range(first, last, most):
                yield begin, min(begin + most, last)

    def read(self, start: int, stop: int) -> tuple[pa.Table, Numbers]:
        """This rank's rows of the positions start, …, stop - 1, which are of one span, and their places."""
        mine = self.places_between(start, stop)
        return self.store.take(self.rows_at(mine), self.columns), mine

    def places_between(self, start: int, stop: int) -> Numbers:
        """Those of the positions start, …, stop - 1 that are this rank's."""
        steps = range(start // self.batch_size, -(-stop // self.batch_size))
        found = np.concatenate([self.places(step) for step in steps])
        return found[(found >= start) & (found < stop)]

    def rows_at(self, places: Numbers) -> Numbers:
        """The rows at these places, which are ascending and near each other."""
        return self._between(int(places[0]), int(places[-1]) + 1)[places - places[0]] if len(places) else places

    def _between(self, start: int, stop: int) -> Numbers:
        return rows_at(start, stop, len(self.store), self.seed)


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
