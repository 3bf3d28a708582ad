"""Recipes: how long, how fast and in what batches a model is trained, and the learning rate at every step."""

import argparse
import math
from dataclasses import dataclass, fields, replace
from typing import Any

from pipeline.runtime.errors import UserError

COSINE, INVERSE_SQUARE_ROOT = "cosine", "inverse_square_root"
SCHEDULES = (COSINE, INVERSE_SQUARE_ROOT)


@dataclass(frozen=True)
class Recipe:
    """The hyper-parameters of the paper's appendix; `batch_size` is windows in a step, on however many ranks."""

    max_lr: float
    batch_size: int
    warmup_steps: int
    max_steps: int
    max_grad_norm: float
    schedule: str = COSINE
    rows_at_once: int | None = None  # on a GPU, where memory allows; what is learned does not depend on it
    mixed_precision: bool = False  # on GPUs

    def learning_rate(self, step: int) -> float:
        """Of step 0, 1, …: linear warm-up to `max_lr`, then down to zero at `max_steps`, or as 1/sqrt(step)."""
        if step < self.warmup_steps:
            return self.max_lr * (step + 1) / self.warmup_steps
        if self.schedule == INVERSE_SQUARE_ROOT:
            return self.max_lr * math.sqrt(max(1, self.warmup_steps) / (step + 1))
        done = (step - self.warmup_steps) / max(1, self.max_steps - self.warmup_steps)
        return self.max_lr * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))


def add_recipe_options(parser: argparse.ArgumentParser) -> None:
    """A flag for every hyper-parameter; what is not given stays as the preset has it."""
    group = parser.add_argument_group("the recipe (default: the preset's)")
    group.add_argument("--max_steps", type=int, metavar="N", help="steps in all, one batch each")
    group.add_argument("--batch_size", type=int, metavar="N", help="windows in a step, all ranks together")
    group.add_argument("--max_lr", type=float, metavar="LR", help="the learning rate after warm-up")
    group.add_argument("--warmup_steps", type=int, metavar="N", help="steps until then")
    group.add_argument("--schedule", choices=SCHEDULES, help="what follows: cosine to zero at --max_steps, or 1/sqrt")
    group.add_argument("--max_grad_norm", type=float, metavar="NORM", help="gradients are clipped to it")


def chosen_recipe(recipe: Recipe, options: argparse.Namespace) -> Recipe:
    """A preset's recipe with what the command line says otherwise.

    A shorter run than the preset's keeps its proportions: the warm-up shrinks with the steps.
    """
    given: dict[str, Any] = {
        field.name: getattr(options, field.name)
        for field in fields(Recipe)
        if getattr(options, field.name, None) is not None
    }
    if "max_steps" in given and "warmup_steps" not in given:
        given["warmup_steps"] = min(recipe.warmup_steps, max(1, given["max_steps"] // 10))
    chosen = replace(recipe, **given)
    for name, least in (("max_steps", 1), ("batch_size", 1), ("warmup_steps", 0)):
        if getattr(chosen, name) < least:
            raise UserError(f"--{name} {getattr(chosen, name)}: at least {least}")
    for name in ("max_lr", "max_grad_norm"):
        value = getattr(chosen, name)
        if not (value > 0 and math.isfinite(value)):
            raise UserError(f"--{name} {value}: a number above 0")
    return chosen
