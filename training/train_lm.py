"""Trains a language model on a store of windows: the P_phi that negatives are sampled from.

  deepspeed training/train_lm.py --preset transf-tiny --train stores/books-train --valid stores/books-valid \\
      --output models/books-tiny

The output is a model's folder: transformers loads it, and vLLM does if it has GPT-2's architecture. It becomes one when
the training has ended; the model with the best validation perplexity is kept. A killed run continues when the same
command is given again, also on another number of ranks. `deepspeed --num_accelerators 2` starts two ranks;
torchrun, Slurm's srun or a --hostfile those of several machines; `python training/train_lm.py` is one rank.

With --objective masked it is a bidirectional model that predicts hidden tokens, as BERT: an energy model of the same
preset can start from it (training/train_energy.py --init).
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipeline.models.language_model import LanguageModelFolder, open_language_model
from pipeline.runtime.errors import UserError
from pipeline.runtime.settings import setting
from pipeline.stores.manifest import Record
from pipeline.stores.reader import Store
from pipeline.text.inputs import text_of
from pipeline.text.tokenizer import load_tokenizer
from schemas.division import DIRECTIONS, LEFT_TO_RIGHT
from training.data.mixture import Mixture
from training.energy import presets as energy_presets
from training.language.presets import BASE, POSITIONS, PRESETS, TINY, find_preset
from training.loop import ranks
from training.loop.plan import TrainingPlan
from training.loop.recipe import Recipe, choose_recipe
from training.loop.run import (
    MODEL,
    RunSettings,
    check_same_tokens,
    identity_of,
    make_plan,
    provenance_of,
    read_run_settings,
    run,
)

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

    from training.language.task import LanguageModelling

CAUSAL, MASKED = "causal", "masked"
MASKED_PRESETS = [name for name in energy_presets.PRESETS if name.startswith("bit-")]
LOGITS_BYTES = {"cpu": 1 << 28, "cuda": 1 << 30}  # of a micro-batch, where none is given
PROVENANCE = (
    "objective",
    "preset",
    "direction",
    "seed",
    "corpus",
    "split",
    "train",
    "text",
    "base",
    "init",
    "batch_size",
    "max_steps",
)


@dataclass(frozen=True, kw_only=True)
class LanguageModelSettings(RunSettings):
    """What a language model is trained with: its architecture, its windows, and what every training has."""

    preset: str | None = setting(
        None,
        help=f"its size and recipe: {', '.join(PRESETS)}; masked: {', '.join(MASKED_PRESETS)}",
        metavar="NAME",
        group=MODEL,
    )
    objective: str = setting(
        CAUSAL, help="what it learns to predict (default: the next token)", choices=(CAUSAL, MASKED), group=MODEL
    )
    direction: str | None = setting(
        None, help="in which it reads (default: left_to_right)", choices=DIRECTIONS, group=MODEL
    )
    init: str | None = setting(
        None, help="start from this language model's weights", metavar="DIR_OR_NAME", group=MODEL
    )
    base: str | None = setting(
        None, help="the frozen language model that a ralm corrects", metavar="DIR_OR_NAME", group=MODEL
    )
    train: str = setting(help="windows to train on", metavar="STORE", group="data")
    valid: str = setting(help="windows to measure perplexity on", metavar="STORE", group="data")

    def check(self) -> None:
        super().check()
        if self.objective == MASKED:
            self._check_masked()
        elif not (self.preset or self.init):
            raise UserError(f"--preset: name one ({', '.join(PRESETS)}), or a model to start from with --init")
        elif self.preset:
            find_preset(self.preset)

    def _check_masked(self) -> None:
        if self.preset not in MASKED_PRESETS:
            raise UserError(f"--preset {self.preset}: with --objective masked there are {', '.join(MASKED_PRESETS)}")
        for flag, value in (("direction", self.direction), ("init", self.init), ("base", self.base)):
            if value:
                raise UserError(
                    f"--{flag}: a masked language model has none, it reads both ways and starts from nothing"
                )


@dataclass(frozen=True)
class Sources:
    """The language models that another one is made of: the frozen one that it corrects, the one that it starts from."""

    base: LanguageModelFolder | None = None
    init: LanguageModelFolder | None = None

    @classmethod
    def open(cls, settings: LanguageModelSettings) -> "Sources":
        """Opens those that the settings name."""
        return cls(*(open_language_model(name) if name else None for name in (settings.base, settings.init)))

    @property
    def models(self) -> list[LanguageModelFolder]:
        return [model for model in (self.base, self.init) if model]


def main(arguments: Sequence[str] | None = None) -> int:
    """Reads the command line and trains; an exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    return train_lm(read_run_settings(LanguageModelSettings, given, __doc__))


def train_lm(settings: LanguageModelSettings) -> int:
    """Trains a language model in this process, or on the ranks that this process is one of; an exit code."""
    train, valid = open_stores(settings)
    sources = Sources.open(settings)
    config = choose_architecture(settings, train, sources)
    direction = choose_direction(settings, sources)
    plan = plan_of(settings, train)
    ranks.start()
    identity = identity_of(plan, config, subject_of(settings, direction, train, sources))
    record = Record.of("training/train_lm.py", settings, identity)

    def make_task() -> "LanguageModelling":
        model = build(config, settings.seed, sources, settings.objective)
        return task_of(model, direction, train, valid, identity)

    return run(settings, record, plan, make_task)


def open_stores(settings: LanguageModelSettings) -> tuple[Store, Store]:
    """The windows to train on and those to validate on, of one vocabulary and length."""
    train, valid = Store(settings.train, kind="windows"), Store(settings.valid, kind="windows")
    for store, flag in ((train, "--train"), (valid, "--valid")):
        if not len(store):
            raise UserError(f"{flag} {store.path}: there are no windows in it")
    check_same_tokens(valid.manifest, train.manifest, valid.path, train.path)
    if train.manifest.settings["window"] != valid.manifest.settings["window"]:
        raise UserError(f"{valid.path}: not the window length of {train.path}: make it with the same --window")
    return train, valid


def choose_architecture(settings: LanguageModelSettings, train: Store, sources: Sources) -> "PretrainedConfig":
    """The preset's configuration, or that of the model to start from; refuses what does not fit the windows."""
    tokenizer, window = train.manifest.tokenizer, int(train.manifest.settings["window"])
    if settings.objective == MASKED:
        assert settings.preset is not None
        return masked_config(settings.preset, tokenizer, window + 1)
    preset, base, init = find_preset(settings.preset) if settings.preset else None, sources.base, sources.init
    for model in sources.models:
        model.check_fits(window, tokenizer, train.path)
    if preset and preset.needs_base and not base:
        raise UserError(f"--base: {settings.preset} corrects a frozen language model: name its folder")
    if base and not (preset and preset.needs_base):
        raise UserError(f"--base {settings.base}: only a ralm has a base model, --preset {settings.preset} is none")
    if preset:
        config = preset.build(tokenizer["vocabulary_size"], max(POSITIONS, window + 1), base.config if base else None)
    else:
        from training.language.dropout import without_dropout

        assert init is not None
        config = without_dropout(init.config)
    config.bos_token_id = config.eos_token_id = tokenizer["eos_token_id"]
    return config


def choose_direction(settings: LanguageModelSettings, sources: Sources) -> str | None:
    """In which the model reads: as its sources do, or as the settings say; None for a masked one, which reads both."""
    if settings.objective == MASKED:
        return None
    direction = settings.direction
    for model in sources.models:
        if direction not in (None, model.direction):
            raise UserError(f"--direction {direction}: {model.name} reads {model.direction}")
        direction = model.direction
    return direction or LEFT_TO_RIGHT


def masked_config(preset: str, tokenizer: dict[str, Any], positions: int) -> "PretrainedConfig":
    """The network of the energy model of this name, which says which of its ids are not the store's."""
    from pipeline.models.residual_lm import config_of

    build = energy_presets.find_preset(preset).build
    assert build is not None
    config = config_of(build(tokenizer, positions).network)
    config.start_id, config.mask_id = energy_presets.start_id(tokenizer), energy_presets.mask_id(tokenizer)
    return config


def plan_of(settings: LanguageModelSettings, train: Store) -> TrainingPlan:
    """How the settings' training goes, its micro-batches as large as their logits allow."""
    recipe = choose_recipe(preset_recipe(settings), settings)
    window, vocabulary = train.manifest.settings["window"], train.manifest.tokenizer["vocabulary_size"]
    return make_plan(settings, recipe, LOGITS_BYTES[ranks.device().type] // (4 * window * vocabulary))


def preset_recipe(settings: LanguageModelSettings) -> Recipe:
    """The preset's recipe; the paper has none for masked pretraining: that of its language models."""
    if settings.objective == MASKED:
        return TINY if settings.preset in ("bit-tiny", "bit-nano") else BASE
    return find_preset(settings.preset).recipe if settings.preset else BASE


def subject_of(
    settings: LanguageModelSettings, direction: str | None, train: Store, sources: Sources
) -> dict[str, Any]:
    """What is trained on what, as far as the loss curve depends on it."""
    return {
        "objective": settings.objective,
        "preset": settings.preset,
        "direction": direction,
        "train": train.manifest.digest,
        "text": text_of(train.manifest),
        "corpus": train.manifest.settings.get("corpus"),
        "split": train.manifest.settings.get("split"),
        "base": sources.base.weights_digest if sources.base else None,
        "init": sources.init.weights_digest if sources.init else None,
    }


def build(config: "PretrainedConfig", seed: int, sources: Sources, objective: str = CAUSAL) -> "PreTrainedModel":
    """The network with its first weights: the same ones on every rank."""
    import torch
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, set_seed

    from pipeline.models.residual_lm import Ralm

    set_seed(seed % 2**32)
    kind = AutoModelForMaskedLM if objective == MASKED else AutoModelForCausalLM
    model = kind.from_config(config, dtype=torch.float32)
    if sources.base:
        model.base.load_state_dict(sources.base.load().state_dict())
    if sources.init:
        copy_weights(sources.init, model)
    if isinstance(model, Ralm):
        model.base.requires_grad_(False)
    return model


def task_of(
    model: "PreTrainedModel", direction: str | None, train: Store, valid: Store, identity: dict[str, Any]
) -> "LanguageModelling":
    """What the trainer does with a network that reads in a direction, or, without one, predicts hidden tokens."""
    from training.language.task import LanguageModelling, MaskedModelling

    encoder = load_tokenizer(train.path)
    common = (model, train, Mixture([valid]), direction, encoder, provenance_of(identity, PROVENANCE, model))
    if direction is None:
        return MaskedModelling(*common, model.config.start_id, model.config.mask_id)
    return LanguageModelling(*common)


def copy_weights(init: LanguageModelFolder, model: "PreTrainedModel") -> None:
    """All weights of one model into another of the same shape; a tensor that does not fit is named."""
    source, target = init.load().state_dict(), model.state_dict()
    for name in sorted(source.keys() | target.keys()):
        shapes = [tuple(state[name].shape) if name in state else "absent" for state in (source, target)]
        if shapes[0] != shapes[1]:
            raise UserError(f"--init {init.name}: {name} is {shapes[0]} there and {shapes[1]} here: not the same shape")
    model.load_state_dict(source)


if __name__ == "__main__":
    ranks.exit_all_with(main)
