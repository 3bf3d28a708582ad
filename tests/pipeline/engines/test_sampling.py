import itertools

import numpy as np
import pytest
import torch
from scipy import stats

from pipeline.engines.drawing import draw, log_probabilities
from pipeline.engines.sampling import Sampling, request_seed, uniform
from pipeline.runtime.errors import UserError

LAST = 1 - 2.0**-53
RULES = [Sampling(), Sampling("top_k", top_k=7), Sampling("nucleus", top_p=0.8)]


def rows(logits: torch.Tensor, count: int) -> torch.Tensor:
    return logits.expand(count, -1).contiguous()


def truncated(p: np.ndarray, sampling: Sampling) -> np.ndarray:
    """What the rule leaves of a distribution, renormalised: written down once more, from its definition."""
    order = np.argsort(-p, kind="stable")
    kept = len(p)
    if sampling.rule == "top_k":
        kept = min(sampling.top_k, len(p))
    elif sampling.rule == "nucleus":
        kept = int(np.argmax(np.cumsum(p[order]) >= sampling.top_p)) + 1
    q = np.zeros_like(p)
    q[order[:kept]] = p[order[:kept]] / p[order[:kept]].sum()
    return q


@pytest.mark.parametrize("size", [1, 2, 255, 256, 257, 5000])
@pytest.mark.parametrize("sampling", RULES, ids=lambda sampling: sampling.rule)
def test_a_step_draws_from_what_the_rule_leaves_and_says_with_what_probability(size, sampling):
    logits = 3 * torch.randn(size, generator=torch.Generator().manual_seed(size))
    p = torch.softmax(logits.double(), 0).numpy()
    q = truncated(p, sampling)
    u = torch.arange(4000, dtype=torch.float64) / 4000
    tokens, log_p, log_q = draw(rows(logits, 4000), u, sampling)
    np.testing.assert_allclose(log_p, np.log(p[tokens]), atol=1e-5)
    np.testing.assert_allclose(log_q, np.log(q[tokens]), atol=1e-5)
    # Evenly spaced numbers hit every token as often as its probability says, to within one.
    assert np.abs(np.bincount(tokens, minlength=size) - 4000 * q).max() < 1 + 4000 * 1e-5


@pytest.mark.parametrize("sampling", RULES, ids=lambda sampling: sampling.rule)
@pytest.mark.parametrize("u", [0.0, 5e-324, 0.5, LAST])
def test_impossible_tokens_are_never_drawn_whatever_the_number(sampling, u):
    for possible in ([0], [699], [0, 699], [256, 257], [255, 511], list(range(300, 320))):
        logits = torch.full((1, 700), -torch.inf)
        logits[0, possible] = torch.randn(len(possible), generator=torch.Generator().manual_seed(1))
        tokens, log_p, log_q = draw(logits, torch.tensor([u], dtype=torch.float64), sampling)
        assert tokens.item() in possible
        assert torch.isfinite(log_p).all()
        assert torch.isfinite(log_q).all()


def test_tokens_of_tiny_probability_are_drawn_just_where_they_belong():
    logits = torch.log(torch.tensor([1e-12] * 300 + [1 - 600e-12] + [1e-12] * 300, dtype=torch.float64)).float()
    u = [0.0, 0.5e-12, 1.5e-12, 299.5e-12, 301e-12, 0.5, 1 - 299.5e-12, 1 - 0.5e-12, LAST]
    tokens, log_p, _ = draw(rows(logits, len(u)), torch.tensor(u, dtype=torch.float64), Sampling())
    assert tokens.tolist() == [0, 0, 1, 299, 300, 300, 301, 600, 600]
    assert log_p[0].item() == pytest.approx(np.log(1e-12), abs=1e-5)


def test_extreme_logits_give_numbers():
    logits = torch.tensor([[3e38, -3e38, 0.0], [-3e38, -3e38, -3e38], [1e4, 1e4, -1e4]])
    for sampling in RULES:
        tokens, log_p, log_q = draw(logits, torch.full((3,), LAST, dtype=torch.float64), sampling)
        assert tokens[0] == 0
        assert torch.isfinite(log_p).all()
        assert torch.isfinite(log_q).all()


def test_scores_are_the_softmax_of_the_logits():
    logits = 5 * torch.randn(3, 4, 1000, generator=torch.Generator().manual_seed(0))
    tokens = torch.randint(1000, (3, 4), generator=torch.Generator().manual_seed(1))
    expected = torch.log_softmax(logits.double(), -1).gather(-1, tokens[..., None])[..., 0]
    torch.testing.assert_close(log_probabilities(logits.clone(), tokens), expected, atol=1e-5, rtol=0)


def test_uniform_numbers_are_uniform_and_a_function_of_their_address():
    seeds = np.array([request_seed(0, f"w{number}", 120) for number in range(500)], np.uint64)
    numbers = uniform(np.repeat(seeds, 4) + np.tile(np.arange(4, dtype=np.uint64), 500), 40)
    assert numbers.min() >= 0
    assert numbers.max() < 1
    assert len(np.unique(numbers)) == numbers.size
    assert stats.kstest(numbers.ravel(), "uniform").pvalue > 1e-3
    assert abs(np.corrcoef(numbers[:, 0], numbers[:, 1])[0, 1]) < 0.1
    assert abs(np.corrcoef(numbers[0::4, 0], numbers[1::4, 0])[0, 1]) < 0.15
    np.testing.assert_array_equal(uniform(seeds[7:8] + np.uint64(3), 9), numbers[31:32, :9])


def test_no_two_windows_lengths_samples_or_runs_share_a_seed():
    addresses = list(itertools.product((0, 1), (f"{window:x}" for window in range(2000)), (0, 12)))
    seeds = {request_seed(*address) + sample for address in addresses for sample in range(3)}
    assert len(seeds) == 3 * len(addresses)
    assert all(0 <= seed < 2**62 + 3 for seed in seeds)
    assert request_seed(1, "2", 3) != request_seed(12, "", 3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rule": "beam"}, "--sampling beam: not a sampling rule, there are temperature, top_k, nucleus"),
        ({"rule": "top_k", "top_k": 0}, "--top_k 0: at least one"),
        ({"rule": "nucleus", "top_p": 0.0}, "--top_p 0.0"),
        ({"rule": "nucleus", "top_p": 1.1}, "--top_p 1.1"),
        ({"rule": "nucleus", "top_p": float("nan")}, "--top_p nan"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(UserError, match=message):
        Sampling(**settings)


def test_a_manifest_names_the_rule_and_its_own_setting_alone():
    assert Sampling().description == {"rule": "temperature", "temperature": 1.0}
    assert Sampling("top_k").description == {"rule": "top_k", "top_k": 10}
    assert Sampling("nucleus", top_p=0.5).description == {"rule": "nucleus", "top_p": 0.5}
    assert not Sampling().truncated
    assert Sampling("top_k").truncated
