"""Whether negatives are worth learning from: how often a sample is likelier than the real completion."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from evaluation.reporting.blocks import Table, count, percent, words
from evaluation.reporting.inputs import Result
from pipeline.runtime.errors import UserError
from pipeline.stores.reader import Store

ROWS = 20_000  # the first of a store, which are as good as any: a window's shard is a hash of its id
NOTE = (
    "Likelier than real: the share of negatives whose log-probability is above that of the real completion, of the "
    "first 20,000 rows. A generator that fits the data has about one half; one that remembers the documents that it "
    "continues finds them likelier than its own samples, and an energy learns to see memory."
)


def health_table(stores: list[Result]) -> Table:
    rows = []
    for store in stores:
        share, negatives = likelier_than_real(store.path)
        seen = (store.content["generator"] or {}).get("trained_on_this_text")
        known = "not known" if seen is None else "yes" if seen else "no"
        rows.append([words(store.name), percent(share), count(negatives or None), words(known)])
    columns = ("Store", "Likelier than real", "Negatives", "Generator trained on this text")
    return Table("Negatives beside real completions", columns, rows, [NOTE])


def likelier_than_real(path: str) -> tuple[float | None, int]:
    """P(log_p of a negative > log_p of its positive), and of how many; None where log-probabilities are not known."""
    higher = total = 0
    try:
        for real, negatives in log_probabilities(path):
            higher += int((negatives > real).sum())
            total += len(negatives)
    except (UserError, OSError, pa.ArrowException):  # a store that is damaged is named elsewhere
        return None, 0
    return (higher / total if total else None), total


def log_probabilities(path: str) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Of negatives, one after another: the real completion's log-probability, and its own."""
    left = ROWS
    for table in Store(path, kind="negatives").batches(["positive_log_p", "log_p"]):
        known = table.slice(0, left).drop_null()
        left -= len(table)
        lists = known["log_p"].combine_chunks()
        owners = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)
        yield known["positive_log_p"].to_numpy()[owners], pc.list_flatten(lists).to_numpy(zero_copy_only=False)
        if left <= 0:
            return
