"""Energies of a store's windows: the only step of an evaluation that needs a network.

A causal energy reads a context once for all of its completions; every other one reads whole windows, those of equal
length together, so that nothing is padded.
"""

from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import Tensor

import schemas
from pipeline.engines.choice import TORCH, EngineOptions
from pipeline.engines.generator import Generator, open_generator
from pipeline.engines.sampling import Sampling
from pipeline.engines.torch_engine import groups, prepared
from pipeline.models.model_folder import open_model_folder
from schemas.division import completion_start
from training.energy.folder import EnergyModelFolder, open_energy_model
from training.energy.inputs import Sequences, completed
from training.energy.model import LINEAR, UNIT, BagOfTokens, Causal, EnergyConfig

Energies = NDArray[np.float64]
AT_ONCE = {"cpu": 64, "cuda": 512}  # windows
PIECE = 4096  # windows that are laid out in memory together


class Scorer(Protocol):
    """Something that gives windows energies."""

    def energies(self, windows: Sequences, context_length: int) -> Energies:
        """Of windows of shape (rows, count, length), those of a row with the same first `context_length` tokens."""


class EnergyScorer:
    """A trained energy model."""

    def __init__(self, folder: EnergyModelFolder, batch_size: int | None = None, precision: str | None = None):
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.model = folder.load(self.device, precision)
        self.reader = folder.reader()
        self.batch_size = batch_size or AT_ONCE[self.device]

    @torch.inference_mode()
    def energies(self, windows: Sequences, context_length: int) -> Energies:
        whole = windows.padded == 0
        if whole and context_length and windows.ids.shape[1] > 1:
            if self.model.config.kind == UNIT:
                return self._shared(torch.from_numpy(windows.ids), context_length)
            if self.model.config.kind == LINEAR:
                return self._added(torch.from_numpy(windows.ids), context_length)
        return self._whole(self.reader.read(windows))

    def _whole(self, read: Sequences) -> Energies:
        ids, lengths = read.ids.reshape(-1, read.ids.shape[-1]), read.lengths.ravel()
        found = np.empty(len(ids))
        for length, places in groups(lengths.tolist()):
            for start in range(0, len(places), self.batch_size):
                some = places[start : start + self.batch_size]
                batch = torch.from_numpy(ids[some, :length]).to(self.device)
                found[some] = self.model(batch).double().cpu().numpy()
        return found.reshape(read.lengths.shape)

    def _shared(self, ids: Tensor, context_length: int) -> Energies:
        """The mean over positions is that of the context's states, computed once, and of each completion's."""
        network = self.model.network
        assert isinstance(network, Causal)
        rows, count, length = ids.shape
        start = torch.full((rows, 1), int(self.model.config.start_id or 0))
        contexts = torch.cat([start, ids[:, 0, :context_length]], dim=1)
        completions = ids[:, :, context_length:]
        found = torch.empty(rows, count, dtype=torch.float64)
        at_once = min(count, self.batch_size)
        rows_at_once = max(1, self.batch_size // at_once)
        for start_row in range(0, rows, rows_at_once):
            some = slice(start_row, min(rows, start_row + rows_at_once))
            for first in range(0, count, at_once):
                chosen = completions[some, first : first + at_once]
                repeats = chosen.shape[1]
                output = network.transformer(input_ids=contexts[some].to(self.device), use_cache=True)
                before = output.last_hidden_state[:, 1:].float().sum(1).repeat_interleave(repeats, dim=0)
                cache = prepared(output.past_key_values, repeats, length - context_length)
                after = network.transformer(
                    input_ids=chosen.flatten(0, 1).to(self.device), past_key_values=cache, use_cache=True
                ).last_hidden_state
                energies = network.energy((before + after.float().sum(1)) / length).squeeze(1)
                found[some, first : first + at_once] = energies.double().cpu().view(-1, repeats)
        return found.numpy()

    def _added(self, ids: Tensor, context_length: int) -> Energies:
        network = self.model.network
        assert isinstance(network, BagOfTokens)
        scalars = network.energies.weight[:, 0].double().cpu()
        context = scalars[ids[:, 0, :context_length]].sum(1, keepdim=True)
        return (context + scalars[ids[:, :, context_length:]].sum(2)).numpy()


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


def is_energy_model(name: str) -> bool:
    return isinstance(open_model_folder(name).config, EnergyConfig)


def open_scorer(name: str, window: int, batch_size: int | None = None, precision: str | None = None) -> Scorer:
    """An energy model, or a language model whose energy is minus the log-probability.

    Without a precision: its own on GPUs, where that is mostly 16 bits, and fp32 on CPUs.
    """
    if is_energy_model(name):
        return EnergyScorer(open_energy_model(name), batch_size, precision)
    return LikelihoodScorer(name, window, precision)


def score_rows(rows: pa.Table, scorer: Scorer) -> pa.Table:
    """Rows of negatives to rows of energies: of the real window, with the first of its samples, and of each sample."""
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
