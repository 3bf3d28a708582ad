"""Energy models by name: the paper's sizes, its two appendix tables of recipes, and small ones for CPUs.

The paper's counts decide where its text and its counts disagree (the big BiLSTM's sizes). Its base and large
bidirectional models are RoBERTa's, 512 positions included; the others have 256. None has dropout.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pipeline.models.precision import FP16
from pipeline.runtime.errors import UserError
from training.energy.names import BILSTM, BIT, LINEAR, UNIT
from training.language.presets import POSITIONS, gpt2
from training.loop.recipe import COSINE, INVERSE_SQUARE_ROOT, Recipe

if TYPE_CHECKING:
    from transformers import BertConfig

    from training.energy.model import EnergyConfig

DISCRIMINATION, JOINT, JOINT_24L = RECIPES = ("discrimination", "joint", "joint-24l")

# A store's tokenizer, as its manifest describes it, and the least number of positions, to a configuration.
Build = Callable[[dict[str, Any], int], "EnergyConfig"]


@dataclass(frozen=True)
class EnergyPreset:
    """An architecture and the recipes that the paper, or experience, has for it."""

    build: Build | None  # None: the architecture is that of the model to start from
    recipes: dict[str, Recipe] = field(default_factory=dict)

    def recipe(self, name: str | None, preset: str) -> Recipe:
        """By its name; without one, the first."""
        if name is not None and name not in self.recipes:
            there = [known for known in self.recipes if known in RECIPES]
            way_out = f"there are {', '.join(there)}" if there else "it has one of its own, leave the flag out"
            raise UserError(f"--recipe {name}: the paper has none for {preset}: {way_out}")
        return self.recipes[name or next(iter(self.recipes))]


def config(kind: str, tokenizer: dict[str, Any], *sizes: Any) -> "EnergyConfig":
    """Imports the networks, which takes seconds: the names of presets are for flags, and come without."""
    from training.energy.model import EnergyConfig

    return EnergyConfig(kind, tokenizer["vocabulary_size"], *sizes)


def linear(tokenizer: dict[str, Any], positions: int) -> "EnergyConfig":
    return config(LINEAR, tokenizer)


def bilstm(embedding: int, hidden: int, layers: int = 4) -> Build:
    def build(tokenizer: dict[str, Any], positions: int) -> "EnergyConfig":
        return config(BILSTM, tokenizer, {"embedding": embedding, "hidden": hidden, "layers": layers})

    return build


def unit(layers: int, width: int, heads: int) -> Build:
    """The body of a language model of this shape, which it can start from."""

    def build(tokenizer: dict[str, Any], positions: int) -> "EnergyConfig":
        network = gpt2(layers, width, heads)(tokenizer["vocabulary_size"], max(POSITIONS, positions), None)
        return config(UNIT, tokenizer, network.to_dict(), tokenizer["eos_token_id"])

    return build


def bit(layers: int, width: int, heads: int, most: int = POSITIONS, first_weights: float = 0.02) -> Build:
    """`first_weights` is their standard deviation: with RoBERTa's 0.02 narrow networks learn nothing for long."""

    def build(tokenizer: dict[str, Any], positions: int) -> "EnergyConfig":
        network = bidirectional(tokenizer, layers, width, heads, max(most, positions))
        network.initializer_range = first_weights
        return config(BIT, tokenizer, network.to_dict(), start_id(tokenizer))

    return build


def bidirectional(tokenizer: dict[str, Any], layers: int, width: int, heads: int, positions: int) -> "BertConfig":
    """BERT's architecture with RoBERTa's details; two ids above the store's own are `<s>` and `<mask>`."""
    from transformers import BertConfig

    return BertConfig(
        vocab_size=tokenizer["vocabulary_size"] + 2,
        max_position_embeddings=positions,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        type_vocab_size=1,
        layer_norm_eps=1e-5,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        pad_token_id=None,  # every id of a store is a token, and is trained
    )


def start_id(tokenizer: dict[str, Any]) -> int:
    """`<s>`, whose top state gives the energy."""
    return int(tokenizer["vocabulary_size"])


def mask_id(tokenizer: dict[str, Any]) -> int:
    """`<mask>`, which hides a token in masked language modelling."""
    return int(tokenizer["vocabulary_size"]) + 1


def row(lr: float, rows: int, gpus: int, fp16: bool, warmup: int, steps: int, norm: float, schedule: str) -> Recipe:
    """A line of the paper's tables: a batch is the rows on a GPU times the GPUs, on however many."""
    precision = FP16 if fp16 else None
    return Recipe(lr, rows * gpus, warmup, steps, norm, schedule, rows_at_once=rows, mixed_precision=precision)


# For the two simple models the paper prints no number of steps: those of the others.
SIMPLE_LINEAR = row(0.01, 1024, 1, True, 1000, 180_000, 0.25, INVERSE_SQUARE_ROOT)
SIMPLE_BILSTM = row(0.0002, 128, 8, True, 1000, 180_000, 0.25, INVERSE_SQUARE_ROOT)
DISCRIMINATION_UNIT = row(0.0003, 32, 64, True, 2000, 180_000, 0.25, COSINE)
DISCRIMINATION_BIT = row(0.00005, 20, 192, True, 2000, 180_000, 10, COSINE)
JOINT_UNIT = row(0.0003, 64, 64, True, 2000, 180_000, 10, COSINE)
JOINT_BIT_BASE = row(0.00005, 60, 64, False, 2000, 90_000, 0.25, COSINE)
JOINT_BIT_MED_24L = row(0.00005, 32, 64, False, 2000, 90_000, 0.25, COSINE)
JOINT_BIT_LARGE = row(0.0003, 64, 64, True, 2000, 90_000, 10, COSINE)
JOINT_BIT_LARGE_24L = row(0.00005, 20, 64, False, 2000, 90_000, 0.25, COSINE)

UNIT_RECIPES = {DISCRIMINATION: DISCRIMINATION_UNIT, JOINT: JOINT_UNIT, JOINT_24L: JOINT_UNIT}
BIT_BASE_RECIPES = {DISCRIMINATION: DISCRIMINATION_BIT, JOINT: JOINT_BIT_BASE, JOINT_24L: JOINT_BIT_BASE}
BIT_MED_RECIPES = {DISCRIMINATION: DISCRIMINATION_BIT, JOINT_24L: JOINT_BIT_MED_24L}
BIT_LARGE_RECIPES = {DISCRIMINATION: DISCRIMINATION_BIT, JOINT: JOINT_BIT_LARGE, JOINT_24L: JOINT_BIT_LARGE_24L}


def tiny(lr: float, steps: int = 1_000, batch: int = 32, warmup: int = 100) -> dict[str, Recipe]:
    return {"tiny": Recipe(max_lr=lr, batch_size=batch, warmup_steps=warmup, max_steps=steps, max_grad_norm=1)}


PRESETS = {
    "linear": EnergyPreset(linear, {DISCRIMINATION: SIMPLE_LINEAR}),
    "bilstm-small": EnergyPreset(bilstm(512, 512), {DISCRIMINATION: SIMPLE_BILSTM}),
    "bilstm-big": EnergyPreset(bilstm(768, 1024), {DISCRIMINATION: SIMPLE_BILSTM}),
    "unit": EnergyPreset(unit(12, 1024, 16), UNIT_RECIPES),
    "bit-base": EnergyPreset(bit(12, 768, 12, 512), BIT_BASE_RECIPES),
    "bit-med": EnergyPreset(bit(12, 1024, 16), BIT_MED_RECIPES),
    "bit-large": EnergyPreset(bit(24, 1024, 16, 512), BIT_LARGE_RECIPES),
    "decoder": EnergyPreset(None, UNIT_RECIPES),
    "encoder": EnergyPreset(None, BIT_BASE_RECIPES),
    "unmasked": EnergyPreset(None, BIT_BASE_RECIPES),
    "linear-tiny": EnergyPreset(linear, tiny(1e-2, batch=128)),
    "bilstm-tiny": EnergyPreset(bilstm(64, 64, 2), tiny(2e-3)),
    "unit-tiny": EnergyPreset(unit(4, 128, 4), tiny(1e-3)),
    "bit-tiny": EnergyPreset(bit(4, 128, 4, first_weights=128**-0.5), tiny(1e-3)),
    "bit-nano": EnergyPreset(bit(2, 32, 1, first_weights=32**-0.5), tiny(3e-3, steps=1_500, batch=128)),
    "unit-nano": EnergyPreset(unit(2, 32, 1), tiny(3e-3, steps=1_500, batch=128)),
}


def find_preset(name: str) -> EnergyPreset:
    if name not in PRESETS:
        raise UserError(f"--preset {name}: there are {', '.join(PRESETS)}")
    return PRESETS[name]
