"""Energies of a store's windows: the only step of an evaluation that needs a network."""

from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

import schemas
from pipeline.engines.choice import TORCH, VLLM, EngineOptions
from pipeline.engines.generator import Generator, open_generator
from pipeline.engines.sampling import Sampling
from schemas.division import completion_start
from training.energy.folder import EnergyModelFolder, open_either
from training.energy.inputs import Sequences, completed

if TYPE_CHECKING:
    from evaluation.joint.energy_scorer import EnergyScorer

Energies = NDArray[np.float64]
PIECE = 4096  # windows that are laid out in memory together


class Scorer(Protocol):
    """Something that gives windows energies."""

    def energies(self, windows: Sequences, context_length: int) -> Energies:
        """Of windows of shape (rows, count, length), those of a row with the same first `context_length` tokens."""


class LikelihoodScorer:
    """A language model as an energy: minus the log-probability of the whole window."""

    def __init__(self, name: str, window: int, precision: str | None = None):
        options = EngineOptions(precision=precision)
        self.generator: Generator = open_generator(name, Sampling(), TORCH, window_length=window, options=options)

    def energies(self, windows: Sequences, context_length: int) -> Energies:
        ids, lengths = windows.ids.reshape(-1, windows.ids.shape[-1]), windows.lengths.ravel()
        texts = [row[:length].astype(np.int32) for row, length in zip(ids, lengths, strict=True)]
        nothing = [np.empty(0, np.int32)] * len(texts)
        return -self.generator.log_prob(nothing, texts).reshape(windows.lengths.shape)


def open_scorer(
    name: str, window: int, batch_size: int | None = None, precision: str | None = None, engine: str = TORCH
) -> Scorer:
    """An energy model, or a language model whose energy is minus the log-probability.

    Without a precision: its own on GPUs, where that is mostly 16 bits, and fp32 on CPUs.
    """
    model = open_either(name)
    if engine == VLLM:
        from evaluation.joint.vllm_scorer import VllmScorer

        return VllmScorer(model, window, precision)
    if isinstance(model, EnergyModelFolder):
        return energy_scorer(model, batch_size, precision)
    return LikelihoodScorer(name, window, precision)


def energy_scorer(
    folder: EnergyModelFolder, batch_size: int | None = None, precision: str | None = None
) -> "EnergyScorer":
    """A trained energy model. torch comes with it: commands that only read their flags do without."""
    from evaluation.joint.energy_scorer import EnergyScorer

    return EnergyScorer(folder, batch_size, precision)


def score_rows(rows: pa.Table, scorer: Scorer) -> pa.Table:
    """Rows of negatives to rows of energies: of the real window, with the first of its samples, and of each sample."""
    from pipeline.engines.torch_engine import groups

    counts = pc.list_value_length(rows["negatives"]).to_numpy()
    keys = zip(counts.tolist(), rows["context_length"].to_pylist(), rows["direction"].to_pylist(), strict=True)
    found: dict[int, Energies] = {}
    for (count, context_length, direction), places in groups(keys):
        at_once = max(1, PIECE // (1 + count))
        for start in range(0, len(places), at_once):
            some = places[start : start + at_once]
            windows = completed(rows.take(some), count, np.array(some))
            shared = completion_start(context_length, direction)
            found |= dict(zip(some, scorer.energies(windows, shared), strict=True))
    return table_of(rows, counts, [found[place] for place in range(len(rows))])


def table_of(rows: pa.Table, counts: NDArray[np.int32], energies: list[Energies]) -> pa.Table:
    """A row for every energy; sample -1 is the real window, whose log_q nobody drew it from."""
    first = rows["first_sample"].to_numpy()
    # Every row's real window and samples, one after another; the real window again of later samples is left out.
    owners = np.repeat(np.arange(len(rows)), 1 + counts)
    samples = np.concatenate([np.arange(-1, count) for count in counts]) if len(rows) else np.empty(0, np.int64)
    real = samples < 0
    kept = pa.array(~real | (first[owners] == 0))
    columns = {name: rows[name].take(owners) for name in ("window_id", "corpus", "split", "context_length")}
    columns["sample"] = pa.array(np.where(real, -1, samples + first[owners]))
    columns["energy"] = pa.array(np.concatenate(energies) if energies else np.empty(0))
    for name, own in (("log_p", rows["positive_log_p"].to_pylist()), ("log_q", [None] * len(rows))):
        lists = rows[name].to_pylist()
        columns[name] = pa.array(
            [
                value
                for place, mine in enumerate(lists)
                for value in (own[place], *(mine if mine is not None else [None] * counts[place]))
            ],
            pa.float64(),
        )
    return pa.table(columns).filter(kept).cast(schemas.ENERGIES)
