"""What every training command shares: its settings, its output folder, and a run from beginning to end."""

import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from pipeline.models.precision import BF16, PRECISIONS, hardware_of, training_precision
from pipeline.runtime.command_line import Parser
from pipeline.runtime.errors import UserError
from pipeline.runtime.provenance import code_version
from pipeline.runtime.settings import Settings, read_settings, setting
from pipeline.runtime.summary import print_summary
from pipeline.stores.manifest import Manifest, Record, read_record, write_record
from pipeline.stores.writer import OutputFolder
from training.loop import checkpoints, ranks
from training.loop.plan import TrainingPlan, read_deepspeed_config, stage_of
from training.loop.recipe import Recipe, RecipeSettings
from training.loop.trackers import TRACKERS, check_installed

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

    from training.loop.trainer import Task, Trainer

ZERO_1 = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "zero", "stage1.json")
AUTO, NEVER, MUST = "auto", "never", "must"
MODEL, HOW = "the model", "how it runs"  # groups of flags


@dataclass(frozen=True, kw_only=True)
class MachineSettings(Settings):
    """How a training runs on the machines at hand."""

    deepspeed_config: str | None = setting(
        None,
        help="training/zero has one for each ZeRO stage, and two that offload to the CPU (default: stage1.json)",
        metavar="FILE",
        group=HOW,
    )
    precision: str | None = setting(
        None, help="of the network (default: the recipe's on GPUs, else fp32)", choices=PRECISIONS, group=HOW
    )
    micro_batch_size: int | None = setting(
        None, help="rows at once on a rank (default: what fits)", metavar="N", group=HOW, least=1
    )
    gradient_checkpointing: bool = setting(False, help="compute activations twice instead of keeping them", group=HOW)
    validate_every: int | None = setting(
        None, help="steps between validations (default: a tenth, at most 1000)", metavar="N", group=HOW, least=1
    )
    save_every: int | None = setting(
        None, help="steps between checkpoints (default: as --validate_every)", metavar="N", group=HOW, least=1
    )
    valid_windows: int = setting(
        1024, help="to validate on, as many of each store (default: 1024 in all)", metavar="N", group=HOW, least=1
    )
    patience: int | None = setting(
        None, help="stop after N validations without a better one (default: never)", metavar="N", group=HOW, least=1
    )
    tracker: str | None = setting(
        None,
        help="of experiments, beside TensorBoard and CSV; its own environment variables say where",
        choices=TRACKERS,
        group=HOW,
    )


@dataclass(frozen=True, kw_only=True)
class RunSettings(RecipeSettings, MachineSettings):
    """What every training has: a seed, an output folder, a recipe, and a machine that it runs on."""

    seed: int = setting(0, help="of the first weights and of the data's order (default: 0)", group=MODEL)
    output: str = setting(help="the model's folder, here or in a bucket (gs://…)", metavar="DIR", group="output")
    resume: str = setting(
        AUTO,
        help="auto: continue from the output's checkpoint if there is one (default); never: start over; must: or fail",
        choices=(AUTO, NEVER, MUST),
        group="output",
    )

    def check(self) -> None:
        super().check()
        if self.tracker is not None:
            check_installed(self.tracker)
        if not 0 <= self.seed < 2**63:
            raise UserError(f"--seed {self.seed}: between 0 and 2^63 - 1")


R = TypeVar("R", bound=RunSettings)


def read_run_settings(cls: type[R], arguments: Sequence[str], about: str | None) -> R:
    """A training's settings from its command line, without what the deepspeed launcher adds to it."""
    launcher = Parser(add_help=False)
    launcher.add_argument("--local_rank", type=int)
    return read_settings(cls, launcher.parse_known_args(list(arguments))[1], about)


def make_plan(settings: RunSettings, recipe: Recipe, rows_at_once: int) -> TrainingPlan:
    """How to train: the recipe, and what the settings say of this machine."""
    if recipe.batch_size % ranks.ranks():
        raise UserError(f"--batch_size {recipe.batch_size}: {ranks.ranks()} ranks cannot share it evenly")
    every = settings.validate_every or min(1000, max(1, recipe.max_steps // 10))
    deepspeed = read_deepspeed_config(settings.deepspeed_config or ZERO_1)
    hardware = hardware_of(ranks.device())
    plan = TrainingPlan(
        output=settings.output,
        recipe=recipe,
        seed=settings.seed,
        precision=training_precision(settings.precision, recipe.mixed_precision, hardware, stage_of(deepspeed)),
        micro_batch_size=settings.micro_batch_size or max(1, rows_at_once),
        validate_every=every,
        save_every=settings.save_every or every,
        valid_rows=settings.valid_windows,
        deepspeed=deepspeed,
        patience=settings.patience,
        tracker=settings.tracker,
    )
    if plan.precision == BF16 and plan.stage == 0:
        raise UserError("--precision bf16: DeepSpeed's ZeRO stage 0 keeps no fp32 weights beside them: take stage 1")
    return plan


def identity_of(plan: TrainingPlan, config: "PretrainedConfig", subject: dict[str, Any]) -> dict[str, Any]:
    """Everything that the loss curve depends on: a run is continued only if all of it is the same."""
    recipe = asdict(plan.recipe)
    for machine in ("rows_at_once", "mixed_precision"):  # the one changes nothing, the other is in the precision
        del recipe[machine]
    identity = recipe | {
        "seed": plan.seed,
        "architecture": config.to_diff_dict(),
        "precision": plan.precision,
        "deepspeed_config": plan.deepspeed,
    }
    if plan.patience is not None:
        identity |= {"patience": plan.patience, "validate_every": plan.validate_every, "valid_rows": plan.valid_rows}
    return dict(json.loads(json.dumps(identity | subject)))


def provenance_of(identity: dict[str, Any], names: Sequence[str], model: "PreTrainedModel") -> dict[str, Any]:
    """What the model's folder says of its making, from which tables are labelled later."""
    return {name: identity.get(name) for name in names} | {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "code_version": code_version(),
    }


def check_same_tokens(one: Manifest, other: Manifest, path: str, like: str) -> None:
    if one.tokenizer["digest"] != other.tokenizer["digest"]:
        raise UserError(f"{path}: not the vocabulary of {like}: make it with --tokenizer {like}")


def checkpoint_activations(model: "PreTrainedModel", wanted: bool) -> None:
    if not wanted:
        return
    try:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    except ValueError:
        raise UserError(
            f"--gradient_checkpointing: a {model.config.model_type} model keeps too little to gain from it"
        ) from None


def run(settings: RunSettings, record: Record, plan: TrainingPlan, make_task: "Callable[[], Task]") -> int:
    """Trains from the last whole checkpoint, or from the start, to the end; an exit code."""
    from training.loop.trainer import NotFinite, Trainer

    folder = OutputFolder(settings.output, record)
    with folder.held() if ranks.is_first() else nullcontext():
        if ranks.first_does(lambda: prepare_output(folder, settings.resume)):
            return 0
        task = make_task()
        checkpoint_activations(task.model, settings.gradient_checkpointing)
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


def prepare_output(folder: OutputFolder, resume: str) -> bool:
    """Decides whether to start, to continue, or that there is nothing to do (True)."""
    output = folder.output
    way_out = "give the same ones, choose another folder, or start over with --resume never"
    folder.check_owner(read_record(output), resume == NEVER, way_out)
    if resume == NEVER:
        checkpoints.start_over(output)
    elif checkpoints.is_finished(output):
        print(f"{output}: trained before, nothing to do")
        return True
    if resume == MUST and checkpoints.newest(output) is None:
        raise UserError(f"--resume must: there is no checkpoint in {output}")
    write_record(output, folder.record)
    return False


def describe_start(trainer: "Trainer", trained: int) -> None:
    if ranks.is_first():
        at = f", from step {trainer.step:,}" if trainer.step else ""
        print(
            f"training {trained / 1e6:,.2f} million parameters on {ranks.ranks()} ranks "
            f"({trainer.engine.device.type}, {trainer.plan.precision}, ZeRO {trainer.plan.stage}): "
            f"{trainer.plan.recipe.max_steps:,} steps of {trainer.plan.recipe.batch_size:,} windows{at}",
            flush=True,
        )


def describe_end(trainer: "Trainer") -> None:
    if ranks.is_first():
        task = trainer.task
        facts = {
            task.criterion: f"{trainer.best_value:.3f} on {task.valid.path}, at step {trainer.best_step:,}",
            **task.summary(),
            "curves": f"tensorboard --logdir {trainer.plan.output}/logs, or {trainer.plan.output}/logs/csv",
        }
        print_summary(f"{task.noun} {trainer.plan.output}", facts)
