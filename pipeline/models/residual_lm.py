"""RALM: a language model that corrects a frozen one token by token: the autoregressive rival of an energy model.

log P(x_t | x_<t) = log P_theta(x_t | x_<t) + log P_phi(x_t | x_<t) - log sum over x' of the same, with P_phi frozen.
A softmax does not notice a constant, so the sum of the two networks' logits has exactly this distribution.

This file is saved beside the weights, so that transformers loads them where this project is not installed
(`trust_remote_code=True`, which this project itself never says): it imports nothing but torch, transformers, and its
neighbour, which is saved with it.
"""

from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

from .conv_lm import ConvConfig  # noqa: F401  (either network may be one; transformers finds relative imports)


class RalmConfig(PretrainedConfig):
    """The two networks' own configurations, as dictionaries."""

    model_type = "residual_ebm_ralm"

    def __init__(self, base: dict[str, Any] | None = None, residual: dict[str, Any] | None = None, **kwargs: Any):
        self.base = base or {"model_type": "gpt2"}
        self.residual = residual or {"model_type": "gpt2"}
        self.vocab_size = self.base_config.vocab_size
        super().__init__(**{"tie_word_embeddings": False} | kwargs)

    @property
    def base_config(self) -> PretrainedConfig:
        return config_of(self.base)

    @property
    def residual_config(self) -> PretrainedConfig:
        return config_of(self.residual)


class RalmCache:
    """One cache for each of the two networks."""

    def __init__(self, base: Any, residual: Any):
        self.base, self.residual = base, residual

    def batch_repeat_interleave(self, repeats: int) -> None:
        self.base.batch_repeat_interleave(repeats)
        self.residual.batch_repeat_interleave(repeats)


class Ralm(PreTrainedModel):
    """P_theta times a frozen P_phi, renormalised at each step."""

    config_class = RalmConfig
    base_model_prefix = "ralm"

    def __init__(self, config: RalmConfig):
        super().__init__(config)
        self.base = AutoModelForCausalLM.from_config(config.base_config).requires_grad_(False)
        self.residual = AutoModelForCausalLM.from_config(config.residual_config)
        self.post_init()

    def _init_weights(self, module: torch.nn.Module) -> None:
        """Nothing: the two networks have initialised themselves, each in its own way."""

    def train(self, mode: bool = True) -> "Ralm":
        super().train(mode)
        self.base.eval()
        return self

    def get_input_embeddings(self) -> torch.nn.Module:
        return self.residual.get_input_embeddings()

    def forward(
        self,
        input_ids: Tensor,
        past_key_values: RalmCache | None = None,
        use_cache: bool = False,
        logits_to_keep: int = 0,
        **_: Any,
    ) -> CausalLMOutputWithPast:
        past = past_key_values or RalmCache(None, None)
        options = {"use_cache": use_cache, "logits_to_keep": logits_to_keep}
        with torch.no_grad():
            base = self.base(input_ids, past_key_values=past.base, **options)
        residual = self.residual(input_ids, past_key_values=past.residual, **options)
        return CausalLMOutputWithPast(
            logits=base.logits + residual.logits,
            past_key_values=RalmCache(base.past_key_values, residual.past_key_values) if use_cache else None,
        )


def config_of(settings: dict[str, Any]) -> PretrainedConfig:
    """A network's configuration from its dictionary, which names its own model type."""
    rest = {name: value for name, value in settings.items() if name != "model_type"}
    return AutoConfig.for_model(settings["model_type"], **rest)


AutoConfig.register(RalmConfig.model_type, RalmConfig, exist_ok=True)
AutoModelForCausalLM.register(RalmConfig, Ralm, exist_ok=True)
RalmConfig.register_for_auto_class()
Ralm.register_for_auto_class("AutoModelForCausalLM")
