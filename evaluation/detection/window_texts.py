"""The windows of a store of negatives as text, for detectors that read text."""

from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipeline.runtime.errors import UserError
from pipeline.stores.reader import Store
from pipeline.text.tokenizer import load_tokenizer
from training.energy.inputs import completed


@dataclass(frozen=True)
class StoreTexts:
    """Whole windows, white space collapsed: real ones, and generated ones, each with the place of its real one."""

    windows: list[str]  # ids of the real ones
    contexts: list[int]
    real: list[str]
    generated: list[str]
    owners: NDArray[np.int64]


def texts_of(store: Store) -> StoreTexts:
    encoder = load_tokenizer(store.path)
    windows: list[str] = []
    contexts: list[int] = []
    found: tuple[list[str], list[str]] = ([], [])
    owners: list[int] = []
    for table in store.batches():
        counts = pc.list_value_length(table["negatives"]).to_pylist()
        if 0 in counts:
            raise UserError(f"{store.path}: there are rows without negatives in it")
        for place, count in enumerate(counts):
            sequences = completed(table.slice(place, 1), count, np.array([place]))
            ids = [row[:length].tolist() for row, length in zip(sequences.ids[0], sequences.lengths[0], strict=True)]
            texts = [" ".join(text.split()) for text in encoder.backend.decode_batch(ids, skip_special_tokens=False)]
            owners += [len(found[0])] * count
            found[0].append(texts[0])
            found[1].extend(texts[1:])
        windows += table["window_id"].to_pylist()
        contexts += table["context_length"].to_pylist()
    return StoreTexts(windows, contexts, *found, np.array(owners, np.int64))
