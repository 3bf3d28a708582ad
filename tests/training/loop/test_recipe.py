import math

import pytest

from pipeline.runtime.errors import UserError
from pipeline.runtime.settings import read_settings
from training.loop.recipe import Recipe, RecipeSettings, choose_recipe

RECIPE = Recipe(max_lr=0.1, batch_size=8, warmup_steps=10, max_steps=110, max_grad_norm=1)


def settings(*flags: str) -> RecipeSettings:
    return read_settings(RecipeSettings, flags, None)


def test_cosine_warms_up_and_ends_at_zero():
    rates = [RECIPE.learning_rate(step) for step in range(110)]
    assert rates[:10] == pytest.approx([0.01 * (step + 1) for step in range(10)])
    assert rates[60] == pytest.approx(0.05)
    assert rates[10:] == pytest.approx([0.05 * (1 + math.cos(math.pi * step / 100)) for step in range(100)])
    assert RECIPE.learning_rate(110) == pytest.approx(0)


def test_inverse_square_root_halves_when_steps_quadruple():
    recipe = choose_recipe(RECIPE, settings("--schedule", "inverse_square_root"))
    assert recipe.learning_rate(9) == pytest.approx(0.1)
    assert recipe.learning_rate(39) == pytest.approx(0.05)


def test_flags_replace_what_the_preset_says_and_a_short_run_has_a_short_warm_up():
    recipe = choose_recipe(RECIPE, settings("--max_steps", "50", "--max_lr", "0.3"))
    assert recipe == Recipe(0.3, 8, 5, 50, 1)
    assert choose_recipe(RECIPE, settings("--max_steps", "50", "--warmup_steps", "7")).warmup_steps == 7


@pytest.mark.parametrize(
    ("flag", "value"), [("max_steps", "0"), ("batch_size", "-1"), ("max_lr", "nan"), ("max_grad_norm", "0")]
)
def test_numbers_that_make_no_sense_are_named(flag, value):
    with pytest.raises(UserError, match=f"--{flag} "):
        settings(f"--{flag}", value)
