"""Trains a language model on a store of windows: the P_phi that negatives are sampled from.

  deepspeed training/train_lm.py --preset transf-tiny --train stores/books-train --valid stores/books-valid \\
      --output models/books-tiny

The output is a model's folder: transformers loads it, and vLLM does if it has GPT-2's architecture. It becomes one when
the training has ended; the model with the best validation perplexity is kept. A killed run continues when the same
command is given again, also on another number of ranks. `deepspeed --num_accelerators 2` starts two ranks, a
--hostfile those of several machines; `python training/train_lm.py` is one rank.

With --objective masked it is a bidirectional model that tells hidden tokens, as BERT: an energy model of the same
preset can start from it (training/train_energy.py --init).
"""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    PretrainedConfig,
    PreTrainedModel,
    set_seed,
)

from pipeline.models.language_model import DIRECTIONS, LEFT_TO_RIGHT, LanguageModel, open_language_model
from pipeline.models.residual_lm import Ralm, config_of
from pipeline.runtime import files
from pipeline.runtime.command_line import Parser
from pipeline.runtime.errors import UserError
from pipeline.stores.manifest import Record
from pipeline.stores.reader import Store
from pipeline.stores.shards import TOKENIZER_FOLDER
from pipeline.text.tokenizer import load_tokenizer
from training.energy import presets as energy_presets
from training.language.presets import BASE, POSITIONS, PRESETS, TINY, find_preset, no_dropout
from training.language.task import LanguageModelling, MaskedModelling
from training.loop import ranks
from training.loop.recipe import Recipe, chosen_recipe
from training.loop.run import (
    add_run_options,
    check_run_options,
    check_same_tokens,
    make_plan,
    provenance_of,
    run,
    settings_of,
)
from training.loop.trainer import Plan

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
    "base",
    "init",
    "batch_size",
    "max_steps",
)


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    options = parse(arguments)
    train, valid = open_stores(options)
    base, init = (open_language_model(name) if name else None for name in (options.base, options.init))
    config = choose_architecture(options, train, base, init)
    plan = plan_of(options, train)
    ranks.start()
    settings = settings_of(plan, config, data_settings(options, train, base, init))
    record = Record(["training/train_lm.py", *arguments], os.getcwd(), settings)

    def make_task() -> LanguageModelling:
        return task_of(options, build(config, options.seed, base, init, options.objective), train, valid, settings)

    return run(options, record, plan, make_task)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser(__doc__)
    model = parser.add_argument_group("the model")
    model.add_argument(
        "--preset",
        metavar="NAME",
        help=f"its size and recipe: {', '.join(PRESETS)}; masked: {', '.join(MASKED_PRESETS)}",
    )
    model.add_argument(
        "--objective", choices=(CAUSAL, MASKED), default=CAUSAL, help="what it learns to tell (default: the next token)"
    )
    model.add_argument("--direction", choices=DIRECTIONS, help="in which it reads (default: left_to_right)")
    model.add_argument("--init", metavar="DIR_OR_NAME", help="start from this language model's weights")
    model.add_argument("--base", metavar="DIR_OR_NAME", help="the frozen language model that a ralm corrects")
    model.add_argument("--seed", type=int, default=0, help="of the first weights and of the data's order (default: 0)")
    data = parser.add_argument_group("data")
    data.add_argument("--train", required=True, metavar="STORE", help="windows to train on")
    data.add_argument("--valid", required=True, metavar="STORE", help="windows to measure perplexity on")
    add_run_options(parser)
    options = parser.parse_args(arguments)
    check_run_options(options)
    if options.objective == MASKED:
        check_masked(options)
    elif not (options.preset or options.init):
        raise UserError(f"--preset: name one ({', '.join(PRESETS)}), or a model to start from with --init")
    return options


def check_masked(options: argparse.Namespace) -> None:
    if options.preset not in MASKED_PRESETS:
        raise UserError(f"--preset {options.preset}: with --objective masked there are {', '.join(MASKED_PRESETS)}")
    for flag in ("direction", "init", "base"):
        if getattr(options, flag):
            raise UserError(f"--{flag}: a masked language model has none, it reads both ways and starts from nothing")


def open_stores(options: argparse.Namespace) -> tuple[Store, Store]:
    train, valid = Store(options.train, kind="windows"), Store(options.valid, kind="windows")
    for store, flag in ((train, "--train"), (valid, "--valid")):
        if not len(store):
            raise UserError(f"{flag} {store.path}: there are no windows in it")
    check_same_tokens(valid.manifest, train.manifest, valid.path, train.path)
    if train.manifest.settings["window"] != valid.manifest.settings["window"]:
        raise UserError(f"{valid.path}: not the window length of {train.path}: make it with the same --window")
    return train, valid


def choose_architecture(
    options: argparse.Namespace, train: Store, base: LanguageModel | None, init: LanguageModel | None
) -> PretrainedConfig:
    """The preset's configuration, or that of the model to start from; refuses what does not fit the windows."""
    tokenizer, window = train.manifest.tokenizer, int(train.manifest.settings["window"])
    if options.objective == MASKED:
        return masked_config(options.preset, tokenizer, window + 1)
    preset = find_preset(options.preset) if options.preset else None
    for model in (base, init):
        if model:
            model.check_fits(window, tokenizer, train.path)
    if preset and preset.needs_base and not base:
        raise UserError(f"--base: {options.preset} corrects a frozen language model: name its folder")
    if base and not (preset and preset.needs_base):
        raise UserError(f"--base {options.base}: only a ralm has a base model, --preset {options.preset} is none")
    for model in (base, init):
        if model and options.direction not in (None, model.direction):
            raise UserError(f"--direction {options.direction}: {model.name} reads {model.direction}")
        options.direction = model.direction if model else options.direction
    options.direction = options.direction or LEFT_TO_RIGHT
    if preset:
        config = preset.build(tokenizer["vocabulary_size"], max(POSITIONS, window + 1), base.config if base else None)
    else:
        assert init is not None
        config = init.config
        config.update(no_dropout(config.model_type))
    config.bos_token_id = config.eos_token_id = tokenizer["eos_token_id"]
    return config


def masked_config(preset: str, tokenizer: dict[str, Any], positions: int) -> PretrainedConfig:
    """The network of the energy model of this name, which says which of its ids are not the store's."""
    build = energy_presets.find_preset(preset).build
    assert build is not None
    config = config_of(build(tokenizer, positions).network)
    config.start_id, config.mask_id = energy_presets.start_id(tokenizer), energy_presets.mask_id(tokenizer)
    return config


def plan_of(options: argparse.Namespace, train: Store) -> Plan:
    recipe = chosen_recipe(preset_recipe(options), options)
    window, vocabulary = train.manifest.settings["window"], train.manifest.tokenizer["vocabulary_size"]
    return make_plan(options, recipe, LOGITS_BYTES[ranks.device().type] // (4 * window * vocabulary))


def preset_recipe(options: argparse.Namespace) -> Recipe:
    """The paper has none for masked pretraining: that of its language models."""
    if options.objective == MASKED:
        return TINY if options.preset in ("bit-tiny", "bit-nano") else BASE
    return find_preset(options.preset).recipe if options.preset else BASE


def data_settings(
    options: argparse.Namespace, train: Store, base: LanguageModel | None, init: LanguageModel | None
) -> dict[str, Any]:
    return {
        "objective": options.objective,
        "preset": options.preset,
        "direction": options.direction,
        "train": train.manifest.digest,
        "corpus": train.manifest.settings.get("corpus"),
        "split": train.manifest.settings.get("split"),
        "base": base.weights_digest if base else None,
        "init": init.weights_digest if init else None,
    }


def build(
    config: PretrainedConfig,
    seed: int,
    base: LanguageModel | None,
    init: LanguageModel | None,
    objective: str = CAUSAL,
) -> PreTrainedModel:
    """The network with its first weights: the same ones on every rank."""
    set_seed(seed % 2**32)
    kind = AutoModelForMaskedLM if objective == MASKED else AutoModelForCausalLM
    model = kind.from_config(config, dtype=torch.float32)
    if base:
        model.base.load_state_dict(base.load().state_dict())
    if init:
        copy_weights(init, model)
    if isinstance(model, Ralm):
        model.base.requires_grad_(False)
    return model


def task_of(
    options: argparse.Namespace, model: PreTrainedModel, train: Store, valid: Store, settings: dict[str, Any]
) -> LanguageModelling:
    encoder = load_tokenizer(files.join(train.path, TOKENIZER_FOLDER))
    common = (model, train, valid, options.direction, encoder, provenance_of(settings, PROVENANCE, model))
    if options.objective == MASKED:
        return MaskedModelling(*common, model.config.start_id, model.config.mask_id)
    return LanguageModelling(*common)


def copy_weights(init: LanguageModel, model: PreTrainedModel) -> None:
    """All weights of one model into another of the same shape; a tensor that does not fit is named."""
    source, target = init.load().state_dict(), model.state_dict()
    for name in sorted(source.keys() | target.keys()):
        shapes = [tuple(state[name].shape) if name in state else "absent" for state in (source, target)]
        if shapes[0] != shapes[1]:
            raise UserError(f"--init {init.name}: {name} is {shapes[0]} there and {shapes[1]} here: not the same shape")
    model.load_state_dict(source)


if __name__ == "__main__":
    ranks.exit_all_with(main)
