"""A language model of gated convolutions (Dauphin, Fan, Auli, Grangier 2017), which never looks at a position twice.

Each layer sees its own and the `kernel - 1` earlier inputs, so twelve layers of kernel 4 see 37 tokens. One token at a
time costs a layer those inputs and nothing else: they are the whole cache.

This file is saved beside the weights, so that transformers loads them where this project is not installed
(`trust_remote_code=True`, which this project itself never says): it imports nothing but torch and transformers.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast


class ConvConfig(PretrainedConfig):
    """Sizes of a gated-convolution language model."""

    model_type = "residual_ebm_conv"

    def __init__(
        self,
        vocab_size: int = 50257,
        embedding_size: int = 256,
        hidden_size: int = 1250,
        layers: int = 12,
        kernel: int = 4,
        **kwargs: Any,
    ):
        self.vocab_size = vocab_size
        self.embedding_size = embedding_size
        self.hidden_size = hidden_size
        self.layers = layers
        self.kernel = kernel
        super().__init__(**{"tie_word_embeddings": False} | kwargs)


class ConvCache:
    """The last `kernel - 1` inputs of every layer, each of shape (batch, kernel - 1, hidden)."""

    def __init__(self, inputs: list[Tensor]):
        self.inputs = inputs

    def batch_repeat_interleave(self, repeats: int) -> None:
        self.inputs = [inputs.repeat_interleave(repeats, dim=0) for inputs in self.inputs]


class GatedConvolution(nn.Module):
    """A residual gated linear unit over a causal convolution: (x + (Wx + b) * sigmoid(Vx + c)) * sqrt(1/2)."""

    def __init__(self, hidden: int, kernel: int):
        super().__init__()
        self.convolution = nn.Conv1d(hidden, 2 * hidden, kernel)

    def forward(self, padded: Tensor, new: Tensor) -> Tensor:
        """`padded` is `new` with what came before it, (batch, kernel - 1 + length, hidden)."""
        gated = F.glu(self.convolution(padded.transpose(1, 2)), dim=1).transpose(1, 2)
        return (new + gated) * math.sqrt(0.5)


class ConvLM(PreTrainedModel):
    """Embedding, twelve gated convolutions, and a softmax over the vocabulary."""

    config_class = ConvConfig
    base_model_prefix = "conv"

    def __init__(self, config: ConvConfig):
        super().__init__(config)
        self.embedding = nn.Embedding(config.vocab_size, config.embedding_size)
        self.widen = nn.Linear(config.embedding_size, config.hidden_size)
        self.layers = nn.ModuleList(GatedConvolution(config.hidden_size, config.kernel) for _ in range(config.layers))
        self.narrow = nn.Linear(config.hidden_size, config.embedding_size)
        self.output = nn.Linear(config.embedding_size, config.vocab_size)
        self.post_init()

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Variances that neither grow nor shrink through the layers; a gate starts half open."""
        if isinstance(module, nn.Embedding):
            module.weight.normal_(0, 0.1)
        elif isinstance(module, nn.Conv1d):
            module.weight.normal_(0, math.sqrt(4 / (module.in_channels * module.kernel_size[0])))
            module.bias.zero_()  # type: ignore[union-attr]
        elif isinstance(module, nn.Linear):
            module.weight.normal_(0, math.sqrt(1 / module.in_features))
            module.bias.zero_()

    def get_input_embeddings(self) -> nn.Module:
        return self.embedding

    def forward(
        self,
        input_ids: Tensor,
        past_key_values: ConvCache | None = None,
        use_cache: bool = False,
        logits_to_keep: int = 0,
        **_: Any,
    ) -> CausalLMOutputWithPast:
        hidden = self.widen(self.embedding(input_ids))
        reach = self.config.kernel - 1
        kept = []
        for number, layer in enumerate(self.layers):
            before = (
                past_key_values.inputs[number]
                if past_key_values is not None
                else hidden.new_zeros(len(hidden), reach, hidden.shape[-1])
            )
            padded = torch.cat([before, hidden], dim=1)
            kept.append(padded[:, padded.shape[1] - reach :])
            hidden = layer(padded, hidden)
        logits = self.output(self.narrow(hidden[:, -logits_to_keep:] if logits_to_keep else hidden))
        return CausalLMOutputWithPast(logits=logits, past_key_values=ConvCache(kept) if use_cache else None)


AutoConfig.register(ConvConfig.model_type, ConvConfig, exist_ok=True)
AutoModelForCausalLM.register(ConvConfig, ConvLM, exist_ok=True)
ConvConfig.register_for_auto_class()
ConvLM.register_for_auto_class("AutoModelForCausalLM")
