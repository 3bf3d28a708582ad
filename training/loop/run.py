"""What every training command shares: its flags, its output folder, and a run from beginning to end."""

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from typing import Any

from transformers import PretrainedConfig, PreTrainedModel

from pipeline.runtime import files
from pipeline.runtime.command_line import Parser
from pipeline.runtime.errors import UserError
from pipeline.runtime.lock import writing
from pipeline.runtime.provenance import code_version
from pipeline.stores.manifest import Manifest, Record, read_record, write_record
from pipeline.stores.writer import differences
from training.loop import checkpoints, ranks
from training.loop.recipe import Recipe, add_recipe_options
from training.loop.trainer import PRECISIONS, NotFinite, Plan, Task, Trainer, read_deepspeed_config

ZERO = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "zero")


def add_run_options(parser: Parser) -> None:
    """The flags of output, recipe and machine."""
    output = parser.add_argument_group("output")
    output.add_argument("--output", required=True, metavar="DIR", help="the model's folder")
    output.add_argument(
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
        help="training/zero has one for each ZeRO stage, and two that offload to the CPU (default: stage1.json)",
    )
    run.add_argument(
        "--precision", choices=PRECISIONS, help="of the network (default: the recipe's on GPUs, else fp32)"
    )
    run.add_argument("--micro_batch_size", type=int, metavar="N", help="rows at once on a rank (default: what fits)")
    run.add_argument(
        "--gradient_checkpointing", action="store_true", help="compute activations twice instead of keeping them"
    )
    run.add_argument(
        "--validate_every", type=int, metavar="N", help="steps between validations (default: a tenth, at most 1000)"
    )
    run.add_argument(
        "--save_every", type=int, metavar="N", help="steps between checkpoints (default: as --validate_every)"
    )
    run.add_argument("--valid_windows", type=int, default=1024, metavar="N", help="to validate on (default: 1024)")
    run.add_argument(
        "--patience", type=int, metavar="N", help="stop after N validations without a better one (default: never)"
    )
    run.add_argument("--local_rank", type=int, help=argparse.SUPPRESS)  # what the deepspeed launcher passes


def check_run_options(options: argparse.Namespace) -> None:
    for flag in ("micro_batch_size", "validate_every", "save_every", "valid_windows", "patience"):
        if getattr(options, flag) is not None and getattr(options, flag) < 1:
            raise UserError(f"--{flag} {getattr(options, flag)}: at least 1")
    if not 0 <= options.seed < 2**63:
        raise UserError(f"--seed {options.seed}: between 0 and 2^63 - 1")
    if not files.is_local(options.output):
        raise UserError(f"--output {options.output}: checkpoints need a local or mounted folder")


def make_plan(options: argparse.Namespace, recipe: Recipe, rows_at_once: int) -> Plan:
    """How to train: the recipe, and what the flags say of this machine."""
    if recipe.batch_size % ranks.ranks():
        raise UserError(f"--batch_size {recipe.batch_size}: {ranks.ranks()} ranks cannot share it evenly")
    every = options.validate_every or min(1000, max(1, recipe.max_steps // 10))
    mixed = recipe.mixed_precision and ranks.device().type != "cpu"
    plan = Plan(
        output=options.output,
        recipe=recipe,
        seed=options.seed,
        precision=options.precision or ("fp16" if mixed else "fp32"),
        micro_batch_size=options.micro_batch_size or max(1, rows_at_once),
        validate_every=every,
        save_every=options.save_every or every,
        valid_rows=options.valid_windows,
        deepspeed=read_deepspeed_config(options.deepspeed_config),
        patience=options.patience,
    )
    if plan.precision == "bf16" and plan.stage == 0:
        raise UserError("--precision bf16: DeepSpeed's ZeRO stage 0 keeps no fp32 weights beside them: take stage 1")
    return plan


def settings_of(plan: Plan, config: PretrainedConfig, more: dict[str, Any]) -> dict[str, Any]:
    """Everything that the loss curve depends on: a run is continued only if all of it is the same."""
    recipe = asdict(plan.recipe)
    for machine in ("rows_at_once", "mixed_precision"):  # the one changes nothing, the other is in the precision
        del recipe[machine]
    settings = recipe | {
        "seed": plan.seed,
        "architecture": config.to_diff_dict(),
        "precision": plan.precision,
        "deepspeed_config": plan.deepspeed,
    }
    if plan.patience is not None:
        settings |= {"patience": plan.patience, "validate_every": plan.validate_every, "valid_rows": plan.valid_rows}
    return dict(json.loads(json.dumps(settings | more)))


def provenance_of(settings: dict[str, Any], names: Sequence[str], model: PreTrainedModel) -> dict[str, Any]:
    """What the model's folder says of its making, from which tables are labelled later."""
    return {name: settings.get(name) for name in names} | {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "code_version": code_version(),
    }


def check_same_tokens(one: Manifest, other: Manifest, path: str, like: str) -> None:
    if one.tokenizer["digest"] != other.tokenizer["digest"]:
        raise UserError(f"{path}: not the vocabulary of {like}: make it with --tokenizer {like}")


def checkpoint_activations(model: PreTrainedModel, wanted: bool) -> None:
    if not wanted:
        return
    try:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    except ValueError:
        raise UserError(
            f"--gradient_checkpointing: a {model.config.model_type} model keeps too little to gain from it"
        ) from None


def run(options: argparse.Namespace, record: Record, plan: Plan, make_task: Callable[[], Task]) -> int:
    """Trains from the last whole checkpoint, or from the start, to the end; an exit code."""
    with writing(options.output) if ranks.is_first() else nullcontext():
        if ranks.first_does(lambda: prepare_output(options, record)):
            return 0
        task = make_task()
        checkpoint_activations(task.model, options.gradient_checkpointing)
        trained = sum(parameter.numel() for parameter in task.model.parameters() if parameter.requires_grad)
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
        task = trainer.task
        lines = {
            task.measure: f"{trainer.best_value:.3f} on {task.valid.path}, at step {trainer.best_step:,}",
            **task.closing(),
            "curves": f"tensorboard --logdir {trainer.plan.output}/logs, or {trainer.plan.output}/logs/csv",
        }
        print(f"{task.noun} {trainer.plan.output}")
        for name, value in lines.items():
            print(f"  {name:<10} {value}")
