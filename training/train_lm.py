"""Trains a language model on a store of windows: the P_phi that negatives are sampled from.

  deepspeed training/train_lm.py --preset transf-tiny --train stores/books-train --valid stores/books-valid \\
      --output models/books-tiny

The output is a model's folder: transformers loads it, and vLLM does if it has GPT-2's architecture. It becomes one when
the training has ended; the model with the best validation perplexity is kept. A killed run continues when the same
command is given again, also on another number of ranks. `deepspeed --num_accelerators 2` starts two ranks, a
--hostfile those of several machines; `python training/train_lm.py` is one rank.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedModel, set_seed

from pipeline import files
from pipeline.command_line import Parser
from pipeline.errors import UserError
from pipeline.language_model import (
    DIRECTIONS,
    LEFT_TO_RIGHT,
    LanguageModel,
    open_language_model,
)
from pipeline.lock import writing
from pipeline.manifest import Record, code_version, read_record, write_record
from pipeline.output import differences
from pipeline.residual_lm import Ralm
from pipeline.store import Store
from pipeline.tokenizer import TOKENIZER_FOLDER, load_tokenizer
from training import checkpoints, ranks
from training.lm_presets import POSITIONS, PRESETS, find_preset, no_dropout
from training.lm_task import LanguageModelling
from training.recipe import add_recipe_options, chosen_recipe
from training.trainer import PRECISIONS, NotFinite, Plan, Trainer, read_deepspeed_config

ZERO = os.path.join(os.path.dirname(os.path.abspath(__file__)), "zero")
LOGITS_BYTES = {"cpu": 1 << 28, "cuda": 1 << 30}  # of a micro-batch, where none is given


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    options = parse(arguments)
    train, valid = open_stores(options)
    base, init = (open_language_model(name) if name else None for name in (options.base, options.init))
    config = choose_architecture(options, train, base, init)
    plan = make_plan(options, train)
    ranks.start()
    settings = settings_of(options, plan, config, train, base, init)
    with writing(options.output) if ranks.is_first() else nullcontext():
        record = Record(["training/train_lm.py", *arguments], os.getcwd(), settings)
        if ranks.first_does(lambda: prepare_output(options, record)):
            return 0
        model = build(config, options.seed, base, init)
        task = task_of(options, model, train, valid, settings)
        trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
        trainer = Trainer(task, plan)
        describe_start(trainer, trained)
        try:
            trainer.train()
        except NotFinite as error:
            if ranks.is_first():
                print(f"error: {error}", file=sys.stderr)
            return 1
        describe_end(trainer)
    return 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser(__doc__)
    model = parser.add_argument_group("the model")
    model.add_argument("--preset", metavar="NAME", help=f"its size and recipe: {', '.join(PRESETS)}")
    model.add_argument("--direction", choices=DIRECTIONS, help="in which it reads (default: left_to_right)")
    model.add_argument("--init", metavar="DIR_OR_NAME", help="start from this language model's weights")
    model.add_argument("--base", metavar="DIR_OR_NAME", help="the frozen language model that a ralm corrects")
    model.add_argument("--seed", type=int, default=0, help="of the first weights and of the data's order (default: 0)")
    data = parser.add_argument_group("data and output")
    data.add_argument("--train", required=True, metavar="STORE", help="windows to train on")
    data.add_argument("--valid", required=True, metavar="STORE", help="windows to measure perplexity on")
    data.add_argument("--output", required=True, metavar="DIR", help="the model's folder")
    data.add_argument(
        "--resume",
        choices=("auto", "never", "must"),
        default="auto",
        help="auto: continue from the output's checkpoint if there is one (default); never: start over; must: or fail",
    )
    add_recipe_options(parser)
    run = parser.add_argument_group("how it runs")
    run.add_argument(
        "--deepspeed_config",
        default=os.path.join(ZERO, "stage1.json"),
        metavar="FILE",
        help="training/zero has one for each ZeRO stage (default: stage1.json)",
    )
    run.add_argument("--precision", choices=PRECISIONS, default="fp32", help="of the network (default: fp32)")
    run.add_argument(
        "--micro_batch_size", type=int, metavar="N", help="windows at once on a rank (default: by the vocabulary)"
    )
    run.add_argument(
        "--validate_every", type=int, metavar="N", help="steps between validations (default: a tenth, at most 1000)"
    )
    run.add_argument(
        "--save_every", type=int, metavar="N", help="steps between checkpoints (default: as --validate_every)"
    )
    run.add_argument("--valid_windows", type=int, default=1024, metavar="N", help="to validate on (default: 1024)")
    run.add_argument("--local_rank", type=int, help=argparse.SUPPRESS)  # what the deepspeed launcher passes
    options = parser.parse_args(arguments)
    for flag in ("micro_batch_size", "validate_every", "save_every", "valid_windows"):
        if getattr(options, flag) is not None and getattr(options, flag) < 1:
            raise UserError(f"--{flag} {getattr(options, flag)}: at least 1")
    if not 0 <= options.seed < 2**63:
        raise UserError(f"--seed {options.seed}: between 0 and 2^63 - 1")
    if not files.is_local(options.output):
        raise UserError(f"--output {options.output}: checkpoints need a local or mounted folder")
    if not (options.preset or options.init):
        raise UserError(f"--preset: name one ({', '.join(PRESETS)}), or a model to start from with --init")
    return options


def open_stores(options: argparse.Namespace) -> tuple[Store, Store]:
    train, valid = Store(options.train, kind="windows"), Store(options.valid, kind="windows")
    for store, flag in ((train, "--train"), (valid, "--valid")):
        if not len(store):
            raise UserError(f"{flag} {store.path}: there are no windows in it")
    if train.manifest.tokenizer["digest"] != valid.manifest.tokenizer["digest"]:
        raise UserError(f"{valid.path}: not the vocabulary of {train.path}: make it with --tokenizer {train.path}")
    if train.manifest.settings["window"] != valid.manifest.settings["window"]:
        raise UserError(f"{valid.path}: not the window length of {train.path}: make it with the same --window")
    return train, valid


def choose_architecture(
    options: argparse.Namespace, train: Store, base: LanguageModel | None, init: LanguageModel | None
) -> PretrainedConfig:
    """The preset's configuration, or that of the model to start from; refuses what does not fit the windows."""
    tokenizer, window = train.manifest.tokenizer, int(train.manifest.settings["window"])
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


def make_plan(options: argparse.Namespace, train: Store) -> Plan:
    preset = find_preset(options.preset) if options.preset else PRESETS["base-lm"]
    recipe = chosen_recipe(preset.recipe, options)
    deepspeed = read_deepspeed_config(options.deepspeed_config)
    if recipe.batch_size % ranks.ranks():
        raise UserError(f"--batch_size {recipe.batch_size}: {ranks.ranks()} ranks cannot share it evenly")
    window, vocabulary = train.manifest.settings["window"], train.manifest.tokenizer["vocabulary_size"]
    fitting = LOGITS_BYTES[ranks.device().type] // (4 * window * vocabulary)
    every = options.validate_every or min(1000, max(1, recipe.max_steps // 10))
    plan = Plan(
        output=options.output,
        recipe=recipe,
        seed=options.seed,
        precision=options.precision,
        micro_batch_size=options.micro_batch_size or max(1, fitting),
        validate_every=every,
        save_every=options.save_every or every,
        valid_rows=options.valid_windows,
        deepspeed=deepspeed,
    )
    if plan.precision == "bf16" and plan.stage == 0:
        raise UserError("--precision bf16: DeepSpeed's ZeRO stage 0 keeps no fp32 weights beside them: take stage 1")
    return plan


def settings_of(
    options: argparse.Namespace,
    plan: Plan,
    config: PretrainedConfig,
    train: Store,
    base: LanguageModel | None,
    init: LanguageModel | None,
) -> dict[str, Any]:
    """Everything that the loss curve depends on: a run is continued only if all of it is the same."""
    settings = asdict(plan.recipe) | {
        "preset": options.preset,
        "direction": options.direction,
        "seed": options.seed,
        "architecture": config.to_diff_dict(),
        "train": train.manifest.digest,
        "corpus": train.manifest.settings.get("corpus"),
        "split": train.manifest.settings.get("split"),
        "precision": plan.precision,
        "deepspeed_config": plan.deepspeed,
        "base": base.weights_digest if base else None,
        "init": init.weights_digest if init else None,
    }
    return dict(json.loads(json.dumps(settings)))


def prepare_output(options: argparse.Namespace, record: Record) -> bool:
    """Decides whether to start, to continue, or that there is nothing to do (True)."""
    output, there = options.output, read_record(options.output)
    if there is None and (strange := [name for name in files.names_in(output) if not name.endswith(".tmp")]):
        raise UserError(f"--output {output}: there is something else in this folder ({strange[0]}): choose another one")
    if options.resume == "never":
        checkpoints.start_over(output)
    elif there is not None and there.settings != record.settings:
        raise UserError(
            f"--output {output}: begun with other settings ({differences(there.settings, record.settings)}): give the "
            f"same ones, choose another folder, or start over with --resume never"
        )
    elif checkpoints.is_finished(output):
        print(f"{output}: trained before, nothing to do")
        return True
    if options.resume == "must" and checkpoints.newest(output) is None:
        raise UserError(f"--resume must: there is no checkpoint in {output}")
    write_record(output, record)
    return False


def build(
    config: PretrainedConfig, seed: int, base: LanguageModel | None, init: LanguageModel | None
) -> PreTrainedModel:
    """The network with its first weights: the same ones on every rank."""
    set_seed(seed % 2**32)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
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
    return LanguageModelling(model, train, valid, options.direction, encoder, provenance(settings, model))


def copy_weights(init: LanguageModel, model: PreTrainedModel) -> None:
    """All weights of one model into another of the same shape; a tensor that does not fit is named."""
    source, target = init.load().state_dict(), model.state_dict()
    for name in sorted(source.keys() | target.keys()):
        shapes = [tuple(state[name].shape) if name in state else "absent" for state in (source, target)]
        if shapes[0] != shapes[1]:
            raise UserError(f"--init {init.name}: {name} is {shapes[0]} there and {shapes[1]} here: not the same shape")
    model.load_state_dict(source)


def provenance(settings: dict[str, Any], model: PreTrainedModel) -> dict[str, Any]:
    """What the model's folder says of its making, from which tables are labelled later."""
    names = ("preset", "direction", "seed", "corpus", "split", "train", "base", "init", "batch_size", "max_steps")
    return {name: settings.get(name) for name in names} | {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "code_version": code_version(),
    }


def describe_start(trainer: Trainer, trained: int) -> None:
    if ranks.is_first():
        at = f", from step {trainer.step:,}" if trainer.step else ""
        print(
            f"training {trained / 1e6:,.2f} million parameters on {ranks.ranks()} ranks "
            f"({trainer.engine.device.type}, {trainer.plan.precision}, ZeRO {trainer.plan.stage}): "
            f"{trainer.plan.recipe.max_steps:,} steps of {trainer.plan.recipe.batch_size:,} windows{at}",
            flush=True,
        )


def describe_end(trainer: Trainer) -> None:
    if ranks.is_first():
        lines = {
            "perplexity": f"{trainer.best_value:.3f} on {trainer.task.valid.path}, at step {trainer.best_step:,}",
            "curves": f"tensorboard --logdir {trainer.plan.output}/logs, or {trainer.plan.output}/logs/csv",
        }
        print(f"language model {trainer.plan.output}")
        for name, value in lines.items():
            print(f"  {name:<10} {value}")


if __name__ == "__main__":
    ranks.exit_all_with(main)
