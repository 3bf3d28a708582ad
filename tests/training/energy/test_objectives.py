"""The objectives against their definitions, and against the energy that theory says they lead to."""

import math

import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits as bce
from torch.nn.functional import cross_entropy

from training.energy.model import EnergyModel
from training.energy.objectives import OBJECTIVES, balanced, nce, ranking
from training.energy.presets import PRESETS

UNITS = 24  # probabilities of completions are multiples of 1/UNITS, so that expectations are plain sums


def energies(rows: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(count)
    return torch.randn(rows, generator=generator), 2 * torch.randn(rows, count, generator=generator)


def test_one_negative_is_binary_cross_entropy_of_both_classes():
    positive, negatives = energies(50, 1)
    logits = -torch.cat([positive, negatives[:, 0]])
    labels = torch.cat([torch.ones(50), torch.zeros(50)])
    for objective in (balanced, nce):
        assert torch.allclose(objective(positive, negatives).mean(), bce(logits, labels))


def test_several_negatives_weigh_less_or_shift_the_logit_and_never_both():
    positive, negatives = energies(50, 7)
    weighed = (bce(-positive, torch.ones(50)) + bce(-negatives, torch.zeros(50, 7))) / 2
    assert torch.allclose(balanced(positive, negatives).mean(), weighed)
    logits = -torch.cat([positive[:, None], negatives], 1) - math.log(7)
    labels = torch.cat([torch.ones(50, 1), torch.zeros(50, 7)], 1)
    assert torch.allclose(nce(positive, negatives).mean(), bce(logits, labels))


def test_ranking_asks_which_one_is_real():
    positive, negatives = energies(50, 7)
    logits = -torch.cat([positive[:, None], negatives], 1)
    assert torch.allclose(ranking(positive, negatives).mean(), cross_entropy(logits, torch.zeros(50, dtype=torch.long)))


@pytest.fixture(scope="module")
def world() -> tuple[torch.Tensor, torch.Tensor]:
    """P_data and P_phi of all texts of 4 tokens out of 3, 9 completions of each of 9 contexts, in units, none 0."""
    generator = torch.Generator().manual_seed(0)

    def conditionals() -> torch.Tensor:
        table = torch.ones(9, 9, dtype=torch.long)
        for context in range(9):
            weights = torch.rand(9, generator=generator) ** 2
            drawn = torch.multinomial(weights, UNITS - 9, replacement=True, generator=generator)
            table[context] += torch.bincount(drawn, minlength=9)
        return table

    return conditionals(), conditionals()


def trained(objective: str, count: int, world: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """A table of energies, an entry for every text, trained by gradient descent; (contexts, completions).

    It sees every real completion with every combination of generated ones, as often as they come: nothing is left to
    chance.
    """
    data, noise = ([torch.arange(9).repeat_interleave(row) for row in table] for table in world)
    rows = [torch.cartesian_prod(data[context], *[noise[context]] * count) for context in range(9)]
    context = torch.arange(9).repeat_interleave(len(rows[0]))
    positive, sampled = torch.cat(rows)[:, 0], torch.cat(rows)[:, 1:]
    table = torch.zeros(9, 9, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([table], max_iter=200, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimiser.zero_grad()
        loss = OBJECTIVES[objective](table[context, positive], table[context[:, None], sampled]).mean()
        loss.backward()
        return loss

    optimiser.step(closure)
    return table.detach()


@pytest.mark.parametrize(("objective", "count"), [("balanced", 1), ("balanced", 2), ("nce", 2)])
def test_the_best_energy_is_log_noise_minus_log_data_and_normalises_itself(world, objective, count):
    truth = torch.log(world[1] / UNITS) - torch.log(world[0] / UNITS)
    found = trained(objective, count, world)
    assert (found - truth).abs().max() < 1e-3
    log_z = torch.logsumexp(torch.log(world[1] / UNITS) - found, dim=1)
    assert log_z.abs().max() < 1e-3  # sum of P_phi exp(-E) is 1 in every context


@pytest.mark.parametrize("count", [1, 2])
def test_ranking_finds_the_same_energy_up_to_a_constant_a_context(world, count):
    truth = torch.log(world[1] / UNITS) - torch.log(world[0] / UNITS)
    found = trained("ranking", count, world)
    expectation = world[1] / UNITS
    shift = ((found - truth) * expectation).sum(1, keepdim=True)
    assert (found - truth - shift).abs().max() < 1e-3


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("name", ["linear", "bilstm-tiny", "unit-nano", "bit-nano"])
def test_a_small_step_widens_the_gap_between_generated_and_real(name, objective):
    torch.manual_seed(0)
    model = EnergyModel(PRESETS[name].build({"vocabulary_size": 14, "eos_token_id": 13}, 14))
    ids = torch.randint(0, 14, (8, 4, 12))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)

    def gap() -> torch.Tensor:
        found = model(ids.flatten(0, 1)).view(8, 4)
        return (found[:, 1:] - found[:, :1]).mean()

    before = gap().item()
    found = model(ids.flatten(0, 1)).view(8, 4)
    OBJECTIVES[objective](found[:, 0], found[:, 1:]).mean().backward()
    optimiser.step()
    assert gap().item() > before
