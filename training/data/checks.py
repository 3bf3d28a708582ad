"""Looks at stores of negatives before a training begins: a fault found after a day of training is found too late."""

import pyarrow as pa
import pyarrow.compute as pc
from tqdm import tqdm

from pipeline.runtime.errors import UserError
from pipeline.stores.reader import Store
from training.data.mixture import Mixture

ROUNDING = 1e-3  # by which a log-probability may exceed 0


def count_negatives(wanted: int | None, train: Mixture, valid: Mixture) -> int:
    """How many negatives of a row are used: those asked for, or as many as every row has.

    All log-probabilities are looked at on the way: a store with numbers that are none was not made soundly.
    """
    found = {store.path: fewest_negatives(store) for store in (*train.stores, *valid.stores)}
    path = min(found, key=lambda path: found[path])
    if wanted is not None and wanted > found[path]:
        raise UserError(f"--negatives {wanted}: there are rows with {found[path]} in {path}")
    return wanted or found[path]


def fewest_negatives(store: Store) -> int:
    """The smallest number of negatives in a row, from the columns of log-probabilities, which are short."""
    counts, row = [], 0
    with tqdm(total=len(store), unit="row", desc=f"checking {store.path}", leave=False, delay=2) as bar:
        for table in store.batches(["positive_log_p", "log_p", "log_q"]):
            check_numbers(table["positive_log_p"], store.path, "positive_log_p", row)
            for name in ("log_p", "log_q"):
                check_numbers(pc.list_flatten(table[name]), store.path, name, row)
            counts.append(pc.min(pc.list_value_length(table["log_p"])).as_py())
            row += len(table)
            bar.update(len(table))
    if None in counts:  # texts whose log-probabilities nobody knows
        counts = [pc.min(pc.list_value_length(table["negatives"])).as_py() for table in store.batches(["negatives"])]
    if min(counts) < 1:
        raise UserError(f"{store.path}: there are rows without negatives in it")
    return int(min(counts))


def check_numbers(values: pa.ChunkedArray, path: str, name: str, row: int) -> None:
    """Refuses log-probabilities that are not finite, or above zero; unknown ones (null) are fine."""
    bad = values.filter(pc.invert(pc.and_(pc.is_finite(values), pc.less(values, ROUNDING))))
    if len(bad):
        raise UserError(
            f"{path}: {name} is {bad[0].as_py()} in one of the rows from {row} on, which is no log-probability: "
            f"mine the store again"
        )
