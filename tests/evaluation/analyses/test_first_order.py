"""The first-order expansion of the energy, against the energy itself."""

import numpy as np
import pytest
import torch

from evaluation.analyses.first_order import (
    best_replacements,
    embedding_gradient,
    find_replacements,
    first_order_changes,
    replaced,
)
from tests.evaluation.analyses.conftest import KINDS
from tests.training.energy.test_model import model_of

SIZE = 14
WINDOW = np.array([3, 1, 4, 1, 5, 9, 2, 6, 5], np.int32)


@torch.no_grad()
def real_changes(model) -> np.ndarray:
    """(length, vocabulary): what every replacement really adds to the energy."""
    windows = np.array([[replaced_at(place, token) for token in range(SIZE)] for place in range(len(WINDOW))])
    energies = model(torch.tensor(windows.reshape(-1, len(WINDOW)))).double().numpy()
    return energies.reshape(len(WINDOW), SIZE) - model(torch.tensor(WINDOW[None])).item()


def replaced_at(place: int, token: int) -> np.ndarray:
    window = WINDOW.astype(np.int64)
    window[place] = token
    return window


def test_of_a_linear_energy_it_is_exact_for_every_token():
    model = model_of("linear")
    assert first_order_changes(model, WINDOW, SIZE) == pytest.approx(real_changes(model), abs=1e-5)


@torch.no_grad()
def moved(model, place: int, step: torch.Tensor) -> float:
    """The energy with one embedding moved by `step`."""

    def move(module, inputs, output):
        output = output.clone()
        output[:, output.shape[1] - len(WINDOW) + place] += step
        return output

    handle = model.get_input_embeddings().register_forward_hook(move)
    try:
        return model(torch.tensor(WINDOW[None])).item()
    finally:
        handle.remove()


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_the_slope_towards_every_other_token(kind):
    """Finite differences along e_v - e_x: of the best token, too, the gradient is right about the first step."""
    model = model_of(kind).double()
    changes = first_order_changes(model, WINDOW, SIZE)
    weights, h = model.get_input_embeddings().weight.detach(), 0.001
    slopes = np.array(
        [
            [
                (moved(model, place, h * direction) - moved(model, place, -h * direction)) / (2 * h)
                for direction in weights[:SIZE] - weights[WINDOW[place]]
            ]
            for place in range(len(WINDOW))
        ]
    )
    assert changes == pytest.approx(slopes, abs=0.002 * np.abs(slopes).max())
    assert np.abs(slopes).max() > 0.01
    # The chosen tokens' slopes are the steepest there are, within the finite differences' own error.
    for goal, sign in (("lower", 1), ("higher", -1)):
        (best,) = best_replacements(changes, WINDOW, range(len(WINDOW)), 1, goal)
        assert sign * slopes[best.place, best.new] <= (sign * slopes).min() + 0.002 * np.abs(slopes).max()


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_leaves_the_model_as_it_was(kind):
    model = model_of(kind)
    ids = torch.tensor(np.stack([WINDOW, WINDOW[::-1]]))
    before = model(ids)
    gradient = embedding_gradient(model, ids)
    assert gradient.shape[:2] == ids.shape
    assert torch.equal(model(ids), before)
    assert all(parameter.grad is None for parameter in model.parameters())
    alone = torch.cat([embedding_gradient(model, ids[:1]), embedding_gradient(model, ids[1:])])
    assert torch.allclose(gradient, alone, atol=1e-5)


def test_of_a_linear_energy_the_choice_is_the_best_of_all():
    model = model_of("linear")
    real = real_changes(model)
    real[np.arange(len(WINDOW)), WINDOW] = 0
    places = range(3, 9)
    for goal, best in (("lower", real[3:].min(1)), ("higher", real[3:].max(1))):
        found = find_replacements(model, WINDOW, places, 3, goal, SIZE)
        assert len({one.place for one in found}) == 3
        assert all(one.place >= 3 and one.new != one.old == WINDOW[one.place] for one in found)
        total = sum(sorted(best, key=abs)[-3:])
        assert sum(one.estimate for one in found) == pytest.approx(total, abs=1e-5)
        after = model(torch.tensor(replaced(WINDOW, found)[None])).item()
        assert after - model(torch.tensor(WINDOW[None])).item() == pytest.approx(total, abs=1e-5)
        greedy = find_replacements(model, WINDOW, places, 3, goal, SIZE, greedy=True)
        assert [(one.place, one.new) for one in greedy] == [(one.place, one.new) for one in found]


def test_greedy_follows_the_energy_where_it_bends():
    """Each step is the first-order best of the window as it is by then."""
    model = model_of("bit-nano")
    found = find_replacements(model, WINDOW, range(9), 4, "lower", SIZE, greedy=True)
    for step, one in enumerate(found):
        window = replaced(WINDOW, found[:step])
        changes = first_order_changes(model, window, SIZE)
        free = [place for place in range(9) if place not in {done.place for done in found[:step]}]
        assert one.estimate == pytest.approx(changes[free].min(), abs=1e-5)
    assert find_replacements(model, WINDOW, range(2), 9, "lower", SIZE, greedy=True)[1:2]
