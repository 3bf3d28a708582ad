"""Several stores as one: their rows numbered through, so that the training order mixes them in proportion."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.stores.reader import Store
from training.data.order import Numbers

Weights = NDArray[np.float64]


class Mixture:
    """The rows of all stores, each once an epoch: a store with twice the rows is seen twice as often."""

    def __init__(self, stores: Sequence[Store]):
        self.stores = list(stores)
        self.path = ",".join(store.path for store in stores)
        self.ends = np.cumsum([len(store) for store in stores])

    def __len__(self) -> int:
        return int(self.ends[-1])

    def spread(self, count: int) -> tuple[Numbers, Weights]:
        """About `count` rows that stand for all: as many of each store, those of its beginning, which are shuffled.

        Every store counts alike: where one has fewer rows than its share, each of them weighs more. The weights add up
        to the number of rows.
        """
        share = -(-count // len(self.stores))
        taken = np.minimum([len(store) for store in self.stores], share)
        firsts = self.ends - [len(store) for store in self.stores]
        rows = np.concatenate([np.arange(first, first + many) for first, many in zip(firsts, taken, strict=True)])
        return rows, np.repeat(len(rows) / (len(self.stores) * taken), taken)

    def take(self, rows: Sequence[int] | Numbers, columns: Sequence[str]) -> pa.Table:
        """The given rows, in the given order."""
        wanted = np.asarray(rows, np.int64)
        if not len(wanted):
            return self.stores[0].take(wanted, columns)
        owners = np.searchsorted(self.ends, wanted, side="right")
        pieces, places = [], []
        for number in np.unique(owners):
            mine = np.flatnonzero(owners == number)
            first = self.ends[number] - len(self.stores[number])
            pieces.append(self.stores[number].take(wanted[mine] - first, columns))
            places.append(mine)
        if len(pieces) == 1:
            return pieces[0]
        back = np.empty(len(wanted), np.int64)
        back[np.concatenate(places)] = np.arange(len(wanted))
        return pa.concat_tables(pieces).take(back)
