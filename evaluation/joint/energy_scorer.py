"""A trained energy model at work on windows.

A causal energy reads a context once for all of its completions; every other one reads whole windows, those of equal
length together, so that nothing is padded.
"""

import numpy as np
import torch
from torch import Tensor

from evaluation.joint.scorers import Energies
from pipeline.engines.torch_engine import groups, prepared
from training.energy.folder import EnergyModelFolder
from training.energy.inputs import Sequences
from training.energy.model import BagOfTokens, Causal, Classifier, EnergyModel, started
from training.energy.names import LINEAR

AT_ONCE = {"cpu": 64, "cuda": 512}  # windows


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
            if shares_contexts(self.model):
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
        """A context's states are computed once, then those of its completions: as many tokens at once as of windows."""
        network = self.model.network
        assert isinstance(network, Causal | Classifier)
        rows, count, length = ids.shape
        contexts, _ = started(ids[:, 0, :context_length], None, network.start_id)
        completions = ids[:, :, context_length:]
        found = torch.empty(rows, count, dtype=torch.float64)
        fit = self.batch_size * length // (length - context_length)
        at_once = min(count, fit)
        rows_at_once = max(1, fit // at_once)
        for start_row in range(0, rows, rows_at_once):
            some = slice(start_row, min(rows, start_row + rows_at_once))
            for first in range(0, count, at_once):
                chosen = completions[some, first : first + at_once]
                repeats = chosen.shape[1]
                output = network.transformer(input_ids=contexts[some].to(self.device), use_cache=True)
                before = output.last_hidden_state[:, -context_length:].float().sum(1).repeat_interleave(repeats, dim=0)
                cache = prepared(output.past_key_values, repeats, length - context_length)
                after = network.transformer(
                    input_ids=chosen.flatten(0, 1).to(self.device), past_key_values=cache, use_cache=True
                ).last_hidden_state
                energies = network.of_states(before, after, length)
                found[some, first : first + at_once] = energies.double().cpu().view(-1, repeats)
        return found.numpy()

    def _added(self, ids: Tensor, context_length: int) -> Energies:
        network = self.model.network
        assert isinstance(network, BagOfTokens)
        scalars = network.energies.weight[:, 0].double().cpu()
        context = scalars[ids[:, 0, :context_length]].sum(1, keepdim=True)
        return (context + scalars[ids[:, :, context_length:]].sum(2)).numpy()


def shares_contexts(model: EnergyModel) -> bool:
    """Whether a window's energy is a function of states that see only what comes before them."""
    network = model.network
    return isinstance(network, Causal) or (
        isinstance(network, Classifier) and network.is_decoder and not model.config.own_tokenizer
    )
