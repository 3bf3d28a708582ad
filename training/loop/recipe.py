"""Recipes: how long, how fast and in what batches a model is trained, and the learning rate at every step."""

import math
from dataclasses import dataclass, fields, replace
from typing import Any

from pipeline.runtime.errors import UserError
from pipeline.runtime.settings import Settings, setting

COSINE, INVERSE_SQUARE_ROOT = "cosine", "inverse_square_root"
SCHEDULES = (COSINE, INVERSE_SQUARE_ROOT)
GROUP = "the recipe (default: the preset's)"


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
    mixed_precision: str | None = None  # on GPUs, where they can: bf16 or fp16, with fp32 weights beside

    def learning_rate(self, step: int) -> float:
        """Of step 0, 1, …: linear warm-up to `max_lr`, then down to zero at `max_steps`, or as 1/sqrt(step)."""
        if step < self.warmup_steps:
            return self.max_lr * (step + 1) / self.warmup_steps
        if self.schedule == INVERSE_SQUARE_ROOT:
            return self.max_lr * math.sqrt(max(1, self.warmup_steps) / (step + 1))
        done = (step - self.warmup_steps) / max(1, self.max_steps - self.warmup_steps)
        return self.max_lr * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))


MOST = 1e38  # beyond, it is no number of fp32


@dataclass(frozen=True, kw_only=True)
class RecipeSettings(Settings):
    """A flag for every hyper-parameter; what is not given stays as the preset has it."""

    max_steps: int | None = setting(None, help="steps in all, one batch each", metavar="N", group=GROUP, least=1)
    batch_size: int | None = setting(
        None, help="windows in a step, all ranks together", metavar="N", group=GROUP, least=1
    )
    max_lr: float | None = setting(None, help="the learning rate after warm-up", metavar="LR", group=GROUP)
    warmup_steps: int | None = setting(None, help="steps until then", metavar="N", group=GROUP, least=0)
    schedule: str | None = setting(
        None, help="what follows: cosine to zero at --max_steps, or 1/sqrt", choices=SCHEDULES, group=GROUP
    )
    max_grad_norm: float | None = setting(None, help="gradients are clipped to it", metavar="NORM", group=GROUP)

    def check(self) -> None:
        super().check()
        for name, value in (("max_lr", self.max_lr), ("max_grad_norm", self.max_grad_norm)):
            if value is not None and not 0 < value <= MOST:
                raise UserError(f"--{name} {value}: a number above 0, at most {MOST:g}")


def choose_recipe(recipe: Recipe, settings: RecipeSettings) -> Recipe:
    """A preset's recipe with what the settings say otherwise.

    A shorter run than the preset's keeps its proportions: the warm-up shrinks with the steps.
    """
    names = [field.name for field in fields(RecipeSettings)]
    given: dict[str, Any] = {name: getattr(settings, name) for name in names if getattr(settings, name) is not None}
    if settings.max_steps is not None and settings.warmup_steps is None:
        given["warmup_steps"] = min(recipe.warmup_steps, max(1, settings.max_steps // 10))
    return replace(recipe, **given)
