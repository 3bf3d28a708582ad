"""Trains an energy model to tell real windows from a language model's own: the E of P(x) ~ P_phi(x) exp(-E(x)).

  deepspeed training/train_energy.py --preset bit-tiny --train stores/books-train-negatives \\
      --valid stores/books-valid-negatives --output models/books-energy

Stores are those of pipeline/mine_negatives.py; several, separated by commas, are mixed in proportion. The output is a
model's folder, which `training.energy.folder.open_energy_model` and `EnergyModel.from_pretrained` load; it becomes one
when the training has ended, and the model with the best validation loss is kept. A killed run continues when the same
command is given again, also on another number of ranks. `deepspeed --num_accelerators 2` starts two ranks, a
--hostfile those of several machines; `python training/train_energy.py` is one rank.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

import torch
from transformers import set_seed

from pipeline.runtime import files
from pipeline.runtime.command_line import Parser
from pipeline.runtime.errors import UserError
from pipeline.stores.manifest import Record
from pipeline.stores.reader import Store
from pipeline.stores.shards import TOKENIZER_FOLDER
from pipeline.text.tokenizer import TextEncoder, load_tokenizer
from training.data.checks import count_negatives
from training.data.mixture import Mixture
from training.energy.first_weights import Start, find_start, start_from
from training.energy.folder import check_length, reader_for
from training.energy.model import EnergyConfig, EnergyModel
from training.energy.objectives import OBJECTIVES
from training.energy.presets import PRESETS, RECIPES, find_preset
from training.energy.task import NoiseContrast
from training.loop import ranks
from training.loop.recipe import chosen_recipe
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

ROWS_AT_ONCE = 32  # on a rank, where neither the flags nor the recipe say how many fit
PROVENANCE = ("preset", "objective", "negatives", "seed", "stores", "init", "batch_size", "max_steps", "max_lr")


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    options = parse(arguments)
    train, valid = open_stores(options)
    tokenizer = train.stores[0].manifest.tokenizer
    start = find_start(options.init, options.preset, tokenizer) if options.init else None
    config = choose_architecture(options, train, valid, start)
    plan = plan_of(options)
    ranks.start()
    options.negatives = ranks.first_does(lambda: count_negatives(options.negatives, train, valid))
    settings = settings_of(plan, config, data_settings(options, train, start))
    record = Record(["training/train_energy.py", *arguments], os.getcwd(), settings)

    def make_task() -> NoiseContrast:
        encoder = load_tokenizer(files.join(train.stores[0].path, TOKENIZER_FOLDER))
        model = build(config, options.seed, start, encoder, window_of(train))
        return task_of(options, model, train, valid, encoder, start, settings)

    return run(options, record, plan, make_task)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser(__doc__)
    model = parser.add_argument_group("the model")
    model.add_argument(
        "--preset",
        metavar="NAME",
        help=f"its size and recipe: {', '.join(PRESETS)}. The shape of a decoder or an encoder is that of --init: a "
        f"causal language model (gpt2, …), mean pooled, or an encoder (BERT, …) with a tokenizer of its own",
    )
    model.add_argument(
        "--init",
        metavar="DIR_OR_NAME",
        help="start from these weights: a unit from a language model of its shape, a bit from RoBERTa or from "
        "train_lm.py --objective masked, anything from an energy model (then without --preset)",
    )
    model.add_argument("--seed", type=int, default=0, help="of the first weights and of the data's order (default: 0)")
    data = parser.add_argument_group("data and objective")
    data.add_argument("--train", required=True, metavar="STORE[,STORE…]", help="negatives to train on")
    data.add_argument(
        "--valid", required=True, metavar="STORE[,STORE…]", help="negatives to measure loss and accuracy on"
    )
    data.add_argument(
        "--objective",
        choices=list(OBJECTIVES),
        default="balanced",
        help="see training/energy/objectives.py (default: balanced)",
    )
    data.add_argument("--negatives", type=int, metavar="K", help="of each window (default: as many as every row has)")
    data.add_argument("--recipe", choices=RECIPES, help="which of the paper's tables (default: discrimination)")
    add_run_options(parser)
    options = parser.parse_args(arguments)
    check_run_options(options)
    if not (options.preset or options.init):
        raise UserError(f"--preset: name one ({', '.join(PRESETS)}), or an energy model to start from with --init")
    if options.negatives is not None and options.negatives < 1:
        raise UserError(f"--negatives {options.negatives}: at least 1")
    return options


def open_stores(options: argparse.Namespace) -> tuple[Mixture, Mixture]:
    """The stores of negatives, all of one vocabulary."""
    mixtures = []
    for flag in ("train", "valid"):
        paths = [path for path in getattr(options, flag).split(",") if path]
        if not paths:
            raise UserError(f"--{flag}: name a store of negatives")
        stores = [Store(path, kind="negatives") for path in paths]
        for store in stores:
            if not len(store):
                raise UserError(f"--{flag} {store.path}: there are no rows in it")
        mixtures.append(Mixture(stores))
    like = mixtures[0].stores[0]
    for store in (*mixtures[0].stores, *mixtures[1].stores):
        check_same_tokens(store.manifest, like.manifest, store.path, like.path)
    return mixtures[0], mixtures[1]


def window_of(*mixtures: Mixture) -> int:
    """The longest window of all stores."""
    return max(int(store.manifest.settings.get("window") or 0) for mixture in mixtures for store in mixture.stores)


def choose_architecture(
    options: argparse.Namespace, train: Mixture, valid: Mixture, start: Start | None
) -> EnergyConfig:
    """The preset's configuration, or that of the model to start from; refuses what does not fit the windows."""
    tokenizer, window = train.stores[0].manifest.tokenizer, window_of(train, valid)
    preset = find_preset(options.preset) if options.preset else None
    if preset and preset.build:
        config = preset.build(tokenizer, window + 1)
    elif start and start.config:
        config = start.config
        check_length(config, window, train.path, options.init)
    elif preset:
        raise UserError(f"--init: the shape of --preset {options.preset} is that of a model to start from: name one")
    else:
        raise UserError(f"--preset: {options.init} is no energy model: say which kind to make of it")
    return config


def plan_of(options: argparse.Namespace) -> Plan:
    preset = find_preset(options.preset) if options.preset else PRESETS["bit-base"]
    recipe = chosen_recipe(preset.recipe(options.recipe, options.preset or options.init), options)
    return make_plan(options, recipe, recipe.rows_at_once or ROWS_AT_ONCE)


def data_settings(options: argparse.Namespace, train: Mixture, start: Start | None) -> dict[str, Any]:
    return {
        "preset": options.preset,
        "objective": options.objective,
        "negatives": options.negatives,
        "stores": [describe_store(store) for store in train.stores],
        "init": start.folder.weights_digest if start else None,
    }


def describe_store(store: Store) -> dict[str, Any]:
    """What a store's negatives are of, from which tables are labelled later."""
    manifest = store.manifest
    return {
        "digest": manifest.digest,
        "corpus": manifest.settings.get("corpus"),
        "split": manifest.settings.get("split"),
        "context_lengths": manifest.settings.get("context_lengths"),
        "generator": manifest.generator,
        "sampling": manifest.sampling,
    }


def build(config: EnergyConfig, seed: int, start: Start | None, encoder: TextEncoder, window: int) -> EnergyModel:
    """The network with its first weights: the same ones on every rank."""
    set_seed(seed % 2**32)
    model = EnergyModel(config).to(torch.float32)
    if start:
        report = start_from(model, start, encoder, window)
        if ranks.is_first():
            print(f"first weights: {report}", flush=True)
    return model


def task_of(
    options: argparse.Namespace,
    model: EnergyModel,
    train: Mixture,
    valid: Mixture,
    encoder: TextEncoder,
    start: Start | None,
    settings: dict[str, Any],
) -> NoiseContrast:
    own = start.own_tokenizer if start and model.config.own_tokenizer else None
    lengths = {length for store in valid.stores for length in store.manifest.settings.get("context_lengths") or []}
    return NoiseContrast(
        model=model,
        train=train,
        valid=valid,
        objective=options.objective,
        negatives=options.negatives,
        reader=reader_for(model.config, train.stores[0].path, own),
        encoder=encoder,
        own_tokenizer=own,
        context_lengths=sorted(lengths),
        provenance=provenance_of(settings, PROVENANCE, model),
    )


if __name__ == "__main__":
    ranks.exit_all_with(main)
