"""Real windows against generated ones: the conditional noise-contrastive objective that energy models learn by."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerFast

from pipeline.text.tokenizer import TextEncoder
from training.data.mixture import Mixture
from training.energy.classifier import save_classifier
from training.energy.inputs import COLUMNS, Reader, completed
from training.energy.lora import merged
from training.energy.model import EnergyModel, parts_of_like_length
from training.energy.objectives import OBJECTIVES
from training.loop.trainer import Places


@dataclass
class NoiseContrast:
    """Rows of negatives: a real window and those with the same context and a sampled completion, in one batch."""

    model: EnergyModel
    train: Mixture
    valid: Mixture
    objective: str
    negatives: int
    reader: Reader
    encoder: TextEncoder
    own: PreTrainedTokenizerFast | None
    context_lengths: list[int]
    provenance: dict[str, Any]
    positions: int = 0
    wasted: int = 0

    noun = "energy model"
    columns = COLUMNS
    criterion = "loss"

    def tokens(self, rows: int) -> int:
        window = self.train.stores[0].manifest.settings.get("window") or 160
        return rows * (1 + self.negatives) * int(window)

    def tensors(self, rows: pa.Table, places: Places) -> dict[str, Tensor]:
        found = self.reader.read(completed(rows, self.negatives, places))
        self._count(torch.from_numpy(found.lengths.ravel()))
        batch = {
            "input_ids": torch.from_numpy(found.ids),
            "context_length": torch.tensor(rows["context_length"].to_pylist()),
        }
        return batch | ({"lengths": torch.from_numpy(found.lengths)} if self.ragged else {})

    @cached_property
    def ragged(self) -> bool:
        """Whether sequences may differ in length: those of a tokenizer of the model's own, and imported texts.

        A single batch is not asked: what it is computed in, parts or as a whole, must be the same on all ranks.
        """
        imported = (store.manifest.parent is None for mixture in (self.train, self.valid) for store in mixture.stores)
        return self.model.config.own_tokenizer or any(imported)

    def _count(self, lengths: Tensor) -> None:
        parts = parts_of_like_length(lengths)
        computed = sum(len(part) * int(lengths[part].max()) for part in parts)
        self.positions += computed
        self.wasted += computed - int(lengths.sum())

    def energies(self, network: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Of real windows, (rows,), and of their negatives, (rows, K): all through the model at once."""
        ids, mask = batch["input_ids"].flatten(0, 1), None
        if "lengths" in batch:
            lengths = batch["lengths"].flatten()
            ids = ids[:, : int(lengths.max())]
            mask = (torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]).long()
        found = network(ids, mask).view(len(batch["input_ids"]), -1)
        return found[:, 0], found[:, 1:]

    def loss(self, network: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        return OBJECTIVES[self.objective](*self.energies(network, batch)).mean()

    def sums(self, network: nn.Module, batch: dict[str, Tensor], weights: Tensor) -> Tensor:
        positive, negatives = (energies.double() for energies in self.energies(network, batch))
        weights = weights.double()
        right = ((positive < 0).double() + (negatives >= 0).double().mean(1)) / 2  # both classes count equally
        ranked = (positive[:, None] < negatives).double().mean(1)
        columns = [OBJECTIVES[self.objective](positive, negatives), right, ranked, torch.ones_like(right)]
        for length in self.context_lengths:
            here = (batch["context_length"] == length).double()
            columns += [right * here, here]
        return torch.stack([(column * weights).sum() for column in columns])

    def measure(self, sums: list[float]) -> dict[str, float]:
        loss, right, ranked, rows, *by_length = sums
        found = {"loss": loss / rows, "accuracy": right / rows, "ranked": ranked / rows}
        for place, length in enumerate(self.context_lengths):
            if by_length[2 * place + 1]:
                found[f"accuracy_{length}"] = by_length[2 * place] / by_length[2 * place + 1]
        return found

    def describe(self, measures: dict[str, float]) -> str:
        parts = [f"loss {measures['loss']:.4f}, accuracy {measures['accuracy']:.2%}"]
        if len(self.context_lengths) > 1:
            by_length = [
                f"{length}: {measures[f'accuracy_{length}']:.2%}"
                for length in self.context_lengths
                if f"accuracy_{length}" in measures
            ]
            parts.append(f"({', '.join(by_length[:6])})")
        return " ".join(parts)

    def progress(self, loss: float) -> dict[str, float]:
        return {"loss": loss}

    def summary(self) -> dict[str, str]:
        found = {"padding": f"{self.wasted / max(1, self.positions):.2%} of the positions that were computed"}
        if self.reader.cut:
            found["cut"] = f"{self.reader.cut:,} windows were longer than the encoder's positions, and lost their ends"
        return found

    def save(self, folder: str, state: dict[str, Tensor], notes: dict[str, Any]) -> None:
        if self.own is not None:
            weights = merged(state, self.model)
            save_classifier(self.model, folder, weights, self.provenance | notes, self.encoder, self.own)
            return
        self.model.config.provenance = self.provenance | notes
        self.model.save_pretrained(folder, state_dict=state)
        self.encoder.save(folder)
