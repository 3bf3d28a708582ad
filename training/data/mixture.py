"""Several stores as one: their rows numbered through, so that the training order mixes them in proportion."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from pipeline.stores.reader import Store
from training.data.order import Numbers


class Mixture:
    """The rows of all stores, each once an epoch: a store with twice the rows is seen twice as often."""

    def __init__(self, stores: Sequence[Store]):
        self.stores = list(stores)
        self.path = ",".join(store.path for store in stores)
        self.ends = np.cumsum([len(store) for store in stores])

    def __len__(self) -> int:
        return int(self.ends[-1])

    def take(self, rows: Sequence[int] | Numbers, columns: Sequence[str]) -> pa.Table:
        """The given rows, in the given order."""
        wanted = np.asarray(rows, np.int64)
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
