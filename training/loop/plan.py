"""The plan of a training: its recipe, where it goes, and what DeepSpeed is told; all that is known before it starts."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.runtime.errors import UserError, first_line
from training.loop import mirror, ranks
from training.loop.recipe import Recipe

ZERO_FILES = Path(__file__).parents[1] / "zero"  # whose form is known
FLAGS_OF = {  # what a DeepSpeed configuration leaves to our flags
    "train_batch_size": "--batch_size",
    "train_micro_batch_size_per_gpu": "--micro_batch_size",
    "gradient_accumulation_steps": "--batch_size and --micro_batch_size",
    "gradient_clipping": "--max_grad_norm",
    "optimizer": "--max_lr",
    "scheduler": "--schedule",
    "fp16": "--precision",
    "bf16": "--precision",
    "checkpoint": "--resume",
}


@dataclass(frozen=True)
class TrainingPlan:
    """How a task is trained, and where to."""

    output: str
    recipe: Recipe
    seed: int
    precision: str
    micro_batch_size: int
    validate_every: int
    save_every: int
    valid_rows: int
    deepspeed: dict[str, Any]
    patience: int | None = None
    tracker: str | None = None

    @property
    def folder(self) -> str:
        """Where it works on this machine: in the output, unless that is in a bucket."""
        return mirror.working_folder(self.output)

    @property
    def stage(self) -> int:
        return stage_of(self.deepspeed)


def read_deepspeed_config(path: str) -> dict[str, Any]:
    """A DeepSpeed configuration, without what our own flags say."""
    try:
        with open(path) as file:
            config = json.load(file)
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"--deepspeed_config {path}: it cannot be read ({error})") from None
    if not isinstance(config, dict):
        raise UserError(f"--deepspeed_config {path}: not a JSON object")
    check_form(config, path)
    for name, flag in FLAGS_OF.items():
        if config.get(name, "auto") != "auto":
            raise UserError(f"--deepspeed_config {path}: {name} is set with {flag}, remove it from the file")
    return {name: value for name, value in config.items() if name not in FLAGS_OF}


def check_form(config: dict[str, Any], path: str) -> None:
    """Has DeepSpeed look at what is said of ZeRO before anything is built: its own error would be a page."""
    zero = config.get("zero_optimization", {})
    if not isinstance(zero, dict) or not isinstance(zero.get("offload_optimizer", {}), dict):
        raise UserError(f"--deepspeed_config {path}: zero_optimization is an object, and so is its offload_optimizer")
    if isinstance(zero.get("stage"), bool) or not isinstance(zero.get("stage", 0), int):
        raise UserError(f"--deepspeed_config {path}: zero_optimization.stage: a number from 0 to 3")
    if Path(path).resolve().parent == ZERO_FILES:
        return  # importing DeepSpeed takes seconds
    ranks.name_accelerator()
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig
    from pydantic import ValidationError

    try:
        DeepSpeedZeroConfig(**zero)
    except ValidationError as error:
        wrong = error.errors()[0]
        place = ".".join(map(str, ("zero_optimization", *wrong["loc"])))
        raise UserError(f"--deepspeed_config {path}: {place}: {wrong['msg']}") from None
    except Exception as error:  # of DeepSpeed's own checks, which are of many kinds
        raise UserError(f"--deepspeed_config {path}: zero_optimization: {first_line(error)}") from None


def stage_of(deepspeed: dict[str, Any]) -> int:
    """The ZeRO stage of a DeepSpeed configuration."""
    return int(deepspeed.get("zero_optimization", {}).get("stage", 0))
