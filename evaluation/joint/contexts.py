"""The energies of a store, context by context: what bounds on log Z are computed from."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipeline.engines.sampling import TEMPERATURE
from pipeline.runtime.errors import UserError
from pipeline.stores.reader import Store

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Contexts:
    """Some windows' contexts: each with its real completion, and the scores -E of as many samples as all have."""

    window_ids: list[str]
    context_lengths: NDArray[np.int64]
    tokens: NDArray[np.int64]  # of the completion
    log_p: Numbers  # of the real completion
    energy: Numbers  # of the real window
    scores: Numbers  # (contexts, samples)

    def __len__(self) -> int:
        return len(self.window_ids)


def open_stores(negatives: str, energies: str) -> tuple[Store, Store]:
    """Samples and their energies; refuses what bounds cannot be computed from, and names the command that helps."""
    samples = Store(negatives, kind="negatives")
    if samples.manifest.generator is None:
        raise UserError(
            f"{negatives}: no language model drew these texts, they were imported: there are no bounds of it"
        )
    rule = (samples.manifest.sampling or {}).get("rule")
    if rule != TEMPERATURE:
        raise UserError(
            f"{negatives}: its samples were drawn with {rule or 'an unknown rule'}: log Z would be that of what the "
            f"rule leaves: mine with --sampling temperature"
        )
    try:
        scored = Store(energies, kind="energies")
    except UserError as error:
        raise UserError(
            f"{error}: python evaluation/score.py --energy MODEL --store {negatives} --output {energies}"
        ) from None
    if (scored.manifest.parent or {}).get("digest") != samples.manifest.digest:
        raise UserError(f"{energies}: the energies of another store, {(scored.manifest.parent or {}).get('path')}")
    return samples, scored


def contexts_of(samples: Store, scored: Store, count: int | None = None) -> Iterator[Contexts]:
    """All contexts, those of one shard of windows at a time, with their first `count` samples (default: all).

    A window's samples may be in several shards, one after another: as many as mining divided them into.
    """
    drawn = int(samples.manifest.settings["negatives"])
    wanted = drawn if count is None else count
    if not 2 <= wanted <= drawn:
        raise UserError(f"--samples {wanted}: between 2 and the {drawn} that were drawn in {samples.path}")
    chunks = -(-drawn // int((samples.manifest.sampling or {})["samples_per_row"]))
    window = int(samples.manifest.settings["window"])
    if (longest := max(samples.manifest.settings["context_lengths"])) >= window:
        raise UserError(f"{samples.path}: a context of {longest} tokens leaves nothing of a window of {window}")
    for first in range(0, len(scored.manifest.shards), chunks):
        tables = list(scored.batches(shards=range(first, first + chunks)))
        if tables and len(rows := pa.concat_tables(tables)):
            yield _contexts(rows.filter(pc.less(rows["sample"], wanted)), window, wanted, scored.path)


def _contexts(rows: pa.Table, window: int, count: int, path: str) -> Contexts:
    ids = rows["window_id"].combine_chunks().dictionary_encode()
    lengths, samples = rows["context_length"].to_numpy().astype(np.int64), rows["sample"].to_numpy()
    order = np.lexsort((samples, lengths, ids.indices.to_numpy()))
    if len(order) % (1 + count) or (samples[order].reshape(-1, 1 + count) != np.arange(-1, count)).any():
        raise UserError(f"{path}: not every context has samples 0 to {count - 1}: score the whole store")
    energy = rows["energy"].to_numpy()[order].reshape(-1, 1 + count)
    first = order[:: 1 + count]
    log_p = rows["log_p"].take(first)
    if log_p.null_count:
        raise UserError(f"{path}: texts whose log-probability nobody knows (imported ones) have no perplexity")
    return Contexts(
        window_ids=rows["window_id"].take(first).to_pylist(),
        context_lengths=lengths[first],
        tokens=window - lengths[first],
        log_p=log_p.to_numpy(),
        energy=energy[:, 0],
        scores=-energy[:, 1:],
    )
