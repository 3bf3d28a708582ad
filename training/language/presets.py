"""Language models by name: the paper's sizes and recipes, and small ones for CPUs.

The paper's counts decide where its text and its counts disagree. Each preset has 256 positions (more where windows are
longer) and no dropout. Its appendix gives recipes for the base LM, RALM and BALM; the models for which it gives none
(transf-small, transf-huge, conv) take the base LM's.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipeline.models.precision import BF16
from pipeline.runtime.errors import UserError
from training.loop.recipe import Recipe

if TYPE_CHECKING:
    from transformers import PretrainedConfig

POSITIONS = 256


def row(lr: float, batch: int, warmup: int, steps: int, norm: float) -> Recipe:
    return Recipe(lr, batch, warmup_steps=warmup, max_steps=steps, max_grad_norm=norm, mixed_precision=BF16)


BASE = row(1e-4, 32 * 64, warmup=2_000, steps=180_000, norm=10)
BASE_24L = row(3e-4, 50 * 64, warmup=2_000, steps=90_000, norm=0.25)
BALM_24L = row(3e-4, 28 * 64, warmup=2_000, steps=90_000, norm=0.25)
RALM = row(1e-4, 64 * 64, warmup=2_000, steps=180_000, norm=10)
RALM_24L = row(1.5e-4, 28 * 64, warmup=1_000, steps=90_000, norm=0.25)
TINY = row(2e-3, 32, warmup=100, steps=1_000, norm=1)
NANO = row(5e-3, 256, warmup=100, steps=2_000, norm=1)

# A vocabulary and a number of positions to a configuration; for RALM, its base model's configuration too. Only building
# one imports transformers: the names of presets are for flags.
Build = Callable[[int, int, "PretrainedConfig | None"], "PretrainedConfig"]


@dataclass(frozen=True)
class Preset:
    """An architecture and the recipe it is trained with."""

    build: Build
    recipe: Recipe
    needs_base: bool = False


def gpt2(layers: int, width: int, heads: int, inner: int | None = None) -> Build:
    """GPT-2's architecture, as transformers has it and vLLM loads it."""

    def build(vocabulary: int, positions: int, base: "PretrainedConfig | None" = None) -> "PretrainedConfig":
        from transformers import GPT2Config

        return GPT2Config(
            vocab_size=vocabulary,
            n_positions=positions,
            n_embd=width,
            n_layer=layers,
            n_head=heads,
            n_inner=inner,
            activation_function="gelu_pytorch_tanh",  # gelu_new, GPT-2's own, in one kernel: a fifth of a small step
            bos_token_id=None,  # the store's tokenizer decides
            eos_token_id=None,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
        )

    return build


def conv(embedding: int, hidden: int, layers: int) -> Build:
    def build(vocabulary: int, positions: int, base: "PretrainedConfig | None" = None) -> "PretrainedConfig":
        from pipeline.models.conv_lm import ConvConfig

        return ConvConfig(vocab_size=vocabulary, embedding_size=embedding, hidden_size=hidden, layers=layers)

    return build


def ralm(vocabulary: int, positions: int, base: "PretrainedConfig | None" = None) -> "PretrainedConfig":
    """A second network of the same shape as its frozen base model."""
    from pipeline.models.residual_lm import RalmConfig
    from training.language.dropout import without_dropout

    if base is None:
        raise UserError("--base: a ralm corrects a frozen language model: name its folder")
    return RalmConfig(base=base.to_dict(), residual=without_dropout(base).to_dict())


PRESETS = {
    "transf-small": Preset(gpt2(6, 512, 8), BASE),
    "transf-big": Preset(gpt2(12, 1024, 16), BASE),
    "transf-huge": Preset(gpt2(48, 1536, 24), BASE),
    "conv": Preset(conv(256, 1250, 12), BASE),
    "base-lm": Preset(gpt2(12, 1024, 16), BASE),
    "base-lm-24l": Preset(gpt2(24, 768, 12, 2912), BASE_24L),
    "balm": Preset(gpt2(12, 1536, 24, 5888), BASE),
    "balm-24l": Preset(gpt2(24, 1088, 17, 4576), BALM_24L),
    "ralm": Preset(ralm, RALM, needs_base=True),
    "ralm-24l": Preset(ralm, RALM_24L, needs_base=True),
    "transf-tiny": Preset(gpt2(4, 128, 4), TINY),
    "transf-nano": Preset(gpt2(2, 32, 1), NANO),
    "conv-tiny": Preset(conv(64, 128, 6), TINY),
    "balm-tiny": Preset(gpt2(4, 192, 6), TINY),
    "balm-nano": Preset(gpt2(2, 48, 1), NANO),
    "ralm-tiny": Preset(ralm, TINY, needs_base=True),
}


def find_preset(name: str) -> Preset:
    if name not in PRESETS:
        raise UserError(f"--preset {name}: there are {', '.join(PRESETS)}")
    return PRESETS[name]
