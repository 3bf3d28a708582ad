"""Language modelling: the mean negative log-probability of a window's tokens, each given those before it, or, masked,
of the hidden ones given all that is left."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel

from pipeline.runtime.randomness import mix
from pipeline.stores.reader import Store
from pipeline.text.tokenizer import TextEncoder
from schemas.division import RIGHT_TO_LEFT
from training.data.mixture import Mixture
from training.loop.trainer import Places

NO_TARGET = -100  # a position that counts in no loss


def windows_of(rows: pa.Table) -> Tensor:
    """The tokens of windows of equal length, a row each."""
    ids = rows["tokens"].combine_chunks().flatten().to_numpy(zero_copy_only=False).reshape(len(rows), -1)
    return torch.from_numpy(ids.astype(np.int64))


@dataclass
class LanguageModelling:
    """Windows, each preceded by the start token, reversed for a right-to-left model."""

    model: PreTrainedModel
    train: Store
    valid: Mixture
    direction: str | None  # none where it reads both ways
    encoder: TextEncoder
    provenance: dict[str, Any]

    noun = "language model"
    columns = ("tokens",)
    criterion = "perplexity"

    @property
    def window(self) -> int:
        return int(self.train.manifest.settings["window"])

    def tokens(self, rows: int) -> int:
        return rows * self.window

    def tensors(self, rows: pa.Table, places: Places) -> dict[str, Tensor]:
        windows = windows_of(rows)
        if self.direction == RIGHT_TO_LEFT:
            windows = windows.flip(1)
        start = torch.full((len(windows), 1), self.encoder.eos_token_id)
        return {"input_ids": torch.cat([start, windows[:, :-1]], dim=1), "targets": windows}

    def loss(self, network: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        return self._cross_entropy(network, batch, "mean")

    def sums(self, network: nn.Module, batch: dict[str, Tensor], weights: Tensor) -> Tensor:
        losses = self._cross_entropy(network, batch, "none").double().view_as(batch["targets"])
        counted = (batch["targets"] != NO_TARGET).sum(1)
        return torch.stack([(losses.sum(1) * weights).sum(), (counted * weights.double()).sum()])

    def _cross_entropy(self, network: nn.Module, batch: dict[str, Tensor], reduction: str) -> Tensor:
        logits = network(input_ids=batch["input_ids"], use_cache=False).logits
        targets = batch["targets"].flatten()
        return F.cross_entropy(logits.flatten(0, 1).float(), targets, ignore_index=NO_TARGET, reduction=reduction)

    def summary(self) -> dict[str, str]:
        return {}

    def describe(self, measures: dict[str, float]) -> str:
        return f"perplexity {measures['perplexity']:.4f}"

    def measure(self, sums: list[float]) -> dict[str, float]:
        loss = sums[0] / sums[1]
        return {"perplexity": math.exp(min(loss, 700)), "loss": loss}

    def progress(self, loss: float) -> dict[str, float]:
        return {"loss": loss, "perplexity": math.exp(min(loss, 700))}

    def save(self, folder: str, state: dict[str, Tensor], notes: dict[str, Any]) -> None:
        self.model.config.direction = self.direction
        self.model.config.provenance = self.provenance | notes
        self.model.save_pretrained(folder, state_dict=state)
        self.encoder.save(folder)


TARGET_SHARE = 0.15  # of all tokens: those that are to be predicted
MASK_SHARE, TRUE_SHARE = 0.8, 0.1  # of those: what the mask hides, and what is left as it is; others take the rest


@dataclass
class MaskedModelling(LanguageModelling):
    """BERT's pretraining: of every window 15 % of the tokens are to be predicted, most of which are hidden.

    Every window has equally many of them, so that the loss is the same in whatever parts a batch is computed; which
    ones is another draw in every epoch.
    """

    start_id: int
    mask_id: int

    noun = "masked language model"

    def tensors(self, rows: pa.Table, places: Places) -> dict[str, Tensor]:
        windows = windows_of(rows).numpy()
        addresses = places.astype(np.uint64)[:, None] * np.uint64(1 << 20) + np.arange(
            windows.shape[1], dtype=np.uint64
        )
        count = max(1, round(TARGET_SHARE * windows.shape[1]))
        chosen = np.argsort(mix(addresses, seed=1), axis=1, kind="stable")[:, :count]
        rolls = np.take_along_axis(mix(addresses, seed=2), chosen, 1) / 2.0**64
        truth = np.take_along_axis(windows, chosen, 1)
        others = (
            np.take_along_axis(mix(addresses, seed=3), chosen, 1) % np.uint64(self.encoder.vocabulary_size)
        ).astype(np.int64)
        shown = np.where(rolls < MASK_SHARE, self.mask_id, np.where(rolls < MASK_SHARE + TRUE_SHARE, truth, others))
        inputs, targets = np.full((2, len(windows), windows.shape[1] + 1), NO_TARGET)
        inputs[:, 0], inputs[:, 1:] = self.start_id, windows
        np.put_along_axis(inputs, chosen + 1, shown, 1)
        np.put_along_axis(targets, chosen + 1, truth, 1)
        return {"input_ids": torch.from_numpy(inputs), "targets": torch.from_numpy(targets)}
