"""Language modelling: the mean negative log-probability of a window's tokens, each given those before it."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import PreTrainedModel

from pipeline.language_model import RIGHT_TO_LEFT
from pipeline.store import Store
from pipeline.tokenizer import TextEncoder


@dataclass
class LanguageModelling:
    """Windows, each preceded by the start token, reversed for a right-to-left model."""

    model: PreTrainedModel
    train: Store
    valid: Store
    direction: str
    encoder: TextEncoder
    provenance: dict[str, Any]

    columns = ("tokens",)
    measure = "perplexity"

    @property
    def window(self) -> int:
        return int(self.train.manifest.settings["window"])

    def tokens(self, rows: int) -> int:
        return rows * self.window

    def tensors(self, rows: pa.Table) -> dict[str, Tensor]:
        ids = rows["tokens"].combine_chunks().flatten().to_numpy(zero_copy_only=False).reshape(len(rows), -1)
        windows = torch.from_numpy(ids.astype(np.int64))
        if self.direction == RIGHT_TO_LEFT:
            windows = windows.flip(1)
        start = torch.full((len(windows), 1), self.encoder.eos_token_id)
        return {"input_ids": torch.cat([start, windows[:, :-1]], dim=1), "targets": windows}

    def loss(self, network: Any, batch: dict[str, Tensor]) -> Tensor:
        return self._cross_entropy(network, batch, "mean")

    def sums(self, network: Any, batch: dict[str, Tensor], weights: Tensor) -> Tensor:
        losses = self._cross_entropy(network, batch, "none").double().view_as(batch["targets"])
        return torch.stack([(losses.sum(1) * weights).sum(), weights.double().sum() * losses.shape[1]])

    def _cross_entropy(self, network: Any, batch: dict[str, Tensor], reduction: str) -> Tensor:
        logits = network(input_ids=batch["input_ids"], use_cache=False).logits
        return F.cross_entropy(logits.flatten(0, 1).float(), batch["targets"].flatten(), reduction=reduction)

    def measured(self, sums: list[float]) -> dict[str, float]:
        loss = sums[0] / sums[1]
        return {"perplexity": math.exp(min(loss, 700)), "loss": loss}

    def shown(self, loss: float) -> dict[str, float]:
        return {"loss": loss, "perplexity": math.exp(min(loss, 700))}

    def save(self, folder: str, state: dict[str, Tensor], notes: dict[str, Any]) -> None:
        self.model.config.direction = self.direction
        self.model.config.provenance = self.provenance | notes
        self.model.save_pretrained(folder, state_dict=state)
        self.encoder.save(folder)
