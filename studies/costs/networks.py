"""Networks by their numbers alone: parameters and arithmetic, from a configuration whose weights are never made."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, PretrainedConfig, PreTrainedModel

from pipeline.models.model_folder import quiet
from pipeline.models.residual_lm import Ralm
from training.energy.model import EnergyConfig, EnergyModel


@dataclass(frozen=True)
class Network:
    """What a network has and does.

    `multiplied` are the weights that every token is multiplied with: all matrices but those of which only a row is
    looked up; an output layer counts also where it is the embeddings once more. `attended` is the width of all layers'
    attention together, `cached` are the numbers that a token leaves for those after it.
    """

    parameters: int
    multiplied: int
    attended: int = 0
    cached: int = 0
    starts: int = 0  # tokens that it puts before a sequence itself
    base: "Network | None" = None  # the frozen one that a ralm corrects

    @property
    def trained(self) -> int:
        """Parameters that learn."""
        return self.parameters - (self.base.parameters if self.base else 0)

    def forward(self, tokens: float, attending: float | None = None) -> float:
        """FLOPs of tokens that look at so many, themselves included (by default at each other): 2 for every weight."""
        looked_at = tokens if attending is None else attending
        own = 2 * tokens * self.multiplied + 4 * tokens * looked_at * self.attended
        return own + (self.base.forward(tokens, attending) if self.base else 0)

    def sequence(self, length: float) -> float:
        """FLOPs of reading a whole sequence."""
        return self.forward(length + self.starts)

    def training(self, length: float) -> float:
        """FLOPs of learning from one sequence: backwards is twice forwards, and the frozen part goes forwards only."""
        whole, frozen = self.sequence(length), self.base.sequence(length) if self.base else 0.0
        return 3 * (whole - frozen) + frozen


KNOWN: dict[tuple[str, bool], Network] = {}


def network_of(config: PretrainedConfig, masked: bool = False) -> Network:
    """Of a language model, a masked one, or an energy model; each is built once, without its weights."""
    key = (config.to_json_string(use_diff=False), masked)
    if key not in KNOWN:
        KNOWN[key] = build_network(config, masked)
    return KNOWN[key]


def build_network(config: PretrainedConfig, masked: bool) -> Network:
    build: Callable[[PretrainedConfig], PreTrainedModel] = (
        EnergyModel
        if isinstance(config, EnergyConfig)
        else (AutoModelForMaskedLM if masked else AutoModelForCausalLM).from_config
    )
    with torch.device("meta"), quiet():
        model = build(config)
    starts = int(masked or (isinstance(config, EnergyConfig) and config.start_id is not None))
    if isinstance(model, Ralm):
        base, own = (_facts(part, 0) for part in (model.base, model.residual))
        return Network(base.parameters + own.parameters, own.multiplied, own.attended, own.cached, 0, base)
    return _facts(model, starts)


def _facts(model: PreTrainedModel, starts: int) -> Network:
    multiplied = sum(
        weight.numel()
        for module in model.modules()
        if not isinstance(module, nn.Embedding)
        for weight in module.parameters(recurse=False)
        if weight.dim() > 1
    )
    attended, cached = _attention(model)
    return Network(sum(weight.numel() for weight in model.parameters()), multiplied, attended, cached, starts)


def _attention(model: PreTrainedModel) -> tuple[int, int]:
    """The width of all layers' queries, and of their keys and values, together."""
    inner = getattr(getattr(model, "network", model), "transformer", model)  # of an energy model
    config = getattr(inner, "config", model.config)
    heads, layers = (getattr(config, name, None) for name in ("num_attention_heads", "num_hidden_layers"))
    if not heads or not layers:
        return 0, 0
    size = getattr(config, "head_dim", None) or config.hidden_size // heads
    return layers * heads * size, 2 * layers * (getattr(config, "num_key_value_heads", None) or heads) * size
