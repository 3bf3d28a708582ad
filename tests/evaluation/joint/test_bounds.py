"""The bounds of log Z against their definition in many digits, and in worlds whose log Z is known."""

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest

from evaluation.joint.bounds import joint_perplexity, log_partition_bounds, tail_index, warnings_about
from pipeline.runtime.errors import UserError

FIGURES = ("lower", "upper", "midpoint", "standard_error", "effective_samples")


def by_definition(scores: list[float]) -> dict[str, float]:
    """The formulas as they are written, leaving one sample out at a time, in 60 digits."""
    with localcontext() as context:
        context.prec = 60
        weights, n = [Decimal(score).exp() for score in scores], len(scores)
        t_n = (sum(weights) / n).ln()
        left_out = [(sum(weights[:i] + weights[i + 1 :]) / (n - 1)).ln() for i in range(n)]
        mean = sum(left_out) / n
        found = {
            "lower": t_n,
            "upper": (2 * n - 1) * t_n - 2 * (n - 1) * mean,
            "midpoint": n * t_n - (n - 1) * mean,
            "standard_error": (Decimal(n - 1) / n * sum((t - mean) ** 2 for t in left_out)).sqrt(),
            "effective_samples": sum(weights) ** 2 / sum(weight**2 for weight in weights),
        }
        return {name: float(value) for name, value in found.items()}


def agree_with_definition(scores: np.ndarray) -> None:
    found, expected = log_partition_bounds(scores), by_definition(scores.tolist())
    for name in FIGURES:
        assert getattr(found, name) == pytest.approx(expected[name], rel=1e-12, abs=1e-15), name


@pytest.mark.parametrize("spread", [1e-3, 1, 30])
@pytest.mark.parametrize("n", [2, 3, 10, 101])
def test_the_bounds_are_the_papers(n, spread):
    agree_with_definition(np.random.default_rng(n).normal(2, spread, n))


@pytest.mark.parametrize("ahead", [30, 40, 700, 800, 5000])  # 1-p rounds to 0 from 37 on, exp underflows from 745 on
@pytest.mark.parametrize("n", [2, 20])
def test_one_sample_that_has_nearly_all_the_weight_loses_no_digits(n, ahead):
    scores = np.random.default_rng(n).normal(size=n)
    scores[n // 2] += ahead
    agree_with_definition(scores)
    scores[0] = scores[n // 2]  # and two that share it
    agree_with_definition(scores)


def test_a_constant_in_the_scores_is_a_constant_in_the_bounds():
    scores = np.random.default_rng(0).normal(0, 2, 1000)
    plain, shifted = log_partition_bounds(scores), log_partition_bounds(scores + 12345.678)
    for name in FIGURES:
        shift = 12345.678 if name in ("lower", "upper", "midpoint") else 0
        assert getattr(shifted, name) == pytest.approx(getattr(plain, name) + shift, rel=0, abs=1e-9), name
    assert shifted.tail_index == pytest.approx(plain.tail_index, abs=1e-9)


def test_contexts_are_estimated_row_by_row():
    scores = np.random.default_rng(0).normal(0, 3, (7, 50))
    together, apart = log_partition_bounds(scores), [log_partition_bounds(row) for row in scores]
    for name in (*FIGURES, "tail_index"):
        rows = [getattr(bounds, name) for bounds in apart]
        assert all(row.shape == () for row in rows)
        assert getattr(together, name).shape == (7,)
        np.testing.assert_allclose(getattr(together, name), rows, rtol=1e-13)


def test_what_is_given_as_float32_is_added_up_in_float64():
    scores = np.random.default_rng(0).normal(0, 1, 30).astype(np.float32)
    assert log_partition_bounds(scores).upper == log_partition_bounds(scores.astype(np.float64)).upper


def mean_and_error(values: np.ndarray) -> tuple[float, float]:
    return values.mean(), values.std(ddof=1) / math.sqrt(len(values))


@pytest.mark.parametrize(
    ("n", "lower", "upper", "midpoint"), [(5, -0.1355, 0.0917, -0.0219), (10, -0.0737, 0.0574, -0.0081)]
)
def test_log_normal_weights_of_mean_1_give_the_known_biases(n, lower, upper, midpoint):
    bounds = log_partition_bounds(np.random.default_rng(n).normal(-0.5, 1, (200_000, n)))
    for name, expected in (("lower", lower), ("upper", upper), ("midpoint", midpoint)):
        mean, error = mean_and_error(getattr(bounds, name))
        assert error < 0.003
        assert abs(mean - expected) < 4 * error, name


def test_the_standard_error_is_the_spread_of_the_lower_bound():
    bounds = log_partition_bounds(np.random.default_rng(0).normal(-0.5, 0.5, (4000, 100)))
    assert bounds.standard_error.mean() == pytest.approx(bounds.lower.std(), rel=0.05)


@pytest.fixture(scope="module")
def world() -> tuple[np.ndarray, np.ndarray, float]:
    """P_phi and scores of all 125 completions of 3 tokens out of 5, and log Z by adding them all up."""
    generator = np.random.default_rng(0)
    first, second, third = (generator.dirichlet(np.ones(5), 5**place) for place in range(3))
    p = (first[0][:, None, None] * second[:, :, None] * third.reshape(5, 5, 5)).ravel()
    scores = generator.normal(1, 0.7, 125)
    mean = (p * np.exp(scores)).sum()
    variance = (p * np.exp(scores) ** 2).sum() - mean**2
    assert p.sum() == pytest.approx(1)
    assert 0.5 < variance / mean**2 <= 2
    return p, scores, math.log(mean)


def test_the_bounds_enclose_log_z_and_close_in_on_it(world):
    p, scores, log_z = world
    generator, distances = np.random.default_rng(1), []
    for n in (10, 100):
        bounds = log_partition_bounds(scores[generator.choice(125, (20_000, n), p=p)])
        (lower, lower_error), (upper, upper_error) = mean_and_error(bounds.lower), mean_and_error(bounds.upper)
        assert lower + 3 * lower_error < log_z < upper - 3 * upper_error
        distances.append((log_z - lower, upper - log_z))
    assert distances[1][0] < distances[0][0] / 5
    assert distances[1][1] < distances[0][1] / 5


def test_with_a_heavy_tail_and_few_samples_the_upper_bound_is_below_log_z_and_a_warning_says_so():
    scores = np.where(np.random.default_rng(0).random((20_000, 10)) < 0.01, 8.0, 0.0)
    log_z = math.log(0.99 + 0.01 * math.exp(8))
    bounds = log_partition_bounds(scores)
    mean, error = mean_and_error(bounds.upper)
    assert mean + 4 * error < log_z
    asymptotic, few = warnings_about(bounds)
    assert "10 samples are too few to say whether the weights are heavy-tailed" in asymptotic
    dominated = np.flatnonzero(scores.any(1))
    assert f"in {len(dominated)} of 20000 contexts ({dominated[0]}, {dominated[1]}, " in few
    assert warnings_about(log_partition_bounds(np.zeros(10))) == [asymptotic]  # nothing heavy drawn, nothing seen


def test_a_warning_names_how_many_samples_count():
    scores = np.zeros(100)
    scores[3] = 8
    (few,) = warnings_about(log_partition_bounds(scores))
    assert "100 samples worth as few as 1.1, and below 10" in few
    effective = log_partition_bounds(scores).effective_samples.min()
    enough = int(few.split("--negatives ")[1].split(",")[0])
    assert 10 <= enough * effective / 100 < 12
    scores = np.random.default_rng(0).normal(size=10_000)
    scores[:20] += 12  # a fifth of a percent of the samples has nearly all the weight
    assert any("and below 100 " in sentence for sentence in warnings_about(log_partition_bounds(scores)))


def test_there_is_no_warning_where_the_weights_are_tame():
    assert warnings_about(log_partition_bounds(np.random.default_rng(0).normal(0, 0.5, (50, 1000)))) == []


@pytest.mark.parametrize("index", [0.2, 0.5, 0.9])
def test_the_tail_index_of_pareto_weights_is_theirs(index):
    scores = -index * np.log(np.random.default_rng(0).random((20, 100_000)))
    assert tail_index(scores).mean() == pytest.approx(index, abs=0.03)
    heavy = [sentence for sentence in warnings_about(log_partition_bounds(scores)) if "heavy-tailed" in sentence]
    assert len(heavy) == (index > 0.7)


def test_the_tail_index_is_nan_where_there_is_nothing_to_fit():
    scores = np.random.default_rng(0).normal(size=25)
    assert np.isfinite(tail_index(scores))
    assert np.isnan(tail_index(scores[:24]))
    one = np.zeros(1000)
    one[0] = 8
    far = np.arange(1000.0) * 1000
    assert np.isnan(tail_index([np.zeros(1000), one, far])).all()


def test_the_tail_index_is_of_the_scores_that_were_given():
    scores = np.random.default_rng(0).normal(size=1000)
    bounds, expected = log_partition_bounds(scores), tail_index(scores)
    scores *= 10
    assert bounds.tail_index == expected


@pytest.mark.parametrize("constant", [0, -3.7, 650, 1e6])
@pytest.mark.parametrize("n", [2, 7, 1000])
def test_a_constant_energy_changes_no_perplexity(n, constant):
    generator = np.random.default_rng(0)
    log_p, tokens = -generator.gamma(100, 1, 40), generator.integers(1, 41, 40)
    bounds = log_partition_bounds(np.full((40, n), -constant, np.float64))
    for log_z in (bounds.lower, bounds.upper):
        np.testing.assert_allclose(log_z, -constant, rtol=0, atol=1e-9)
        found = joint_perplexity(log_p, np.full(40, constant), log_z, tokens)
        assert found == pytest.approx(math.exp(-log_p.sum() / tokens.sum()), rel=1e-9)


def test_perplexity_counts_tokens_and_rises_with_log_z():
    log_p, energy, log_z, tokens = [-6.0, -10.0], [1.0, -2.0], [0.5, -0.5], [2, 3]
    assert joint_perplexity(log_p, energy, log_z, tokens) == pytest.approx(math.exp((7.5 + 7.5) / 5), rel=1e-14)
    assert joint_perplexity(log_p, energy, [1.5, 0.5], tokens) == pytest.approx(math.exp(17 / 5), rel=1e-14)
    assert joint_perplexity([-1e6], [0], [0], [1]) == math.inf


@pytest.mark.parametrize(
    ("scores", "named"),
    [
        (1.0, r"shape \(\): \(n,\) or \(contexts, n\)"),
        (np.zeros((2, 3, 4)), r"shape \(2, 3, 4\)"),
        ([1.0], r"shape \(1,\): at least 2 samples"),
        (np.zeros((5, 1)), r"shape \(5, 1\): at least 2 samples"),
        ([0.0, math.nan], "score of sample 1 is nan"),
        ([-math.inf, 0.0], "score of sample 0 is -inf"),
        ([[0, 0, 0], [0, 0, math.inf]], "score of sample 2 of context 1 is inf"),
    ],
)
def test_scores_that_cannot_be_used_are_refused_by_name(scores, named):
    for function in (log_partition_bounds, tail_index):
        with pytest.raises(UserError, match=named):
            function(scores)


@pytest.mark.parametrize(
    ("column", "values", "named"),
    [
        ("log_z", [1.0], r"log_p \(2,\), energy \(2,\), log_z \(1,\), tokens \(2,\)"),
        ("log_p", [0.0, -math.inf], "log_p of window 1 is -inf: a finite number"),
        ("energy", [math.nan, 0.0], "energy of window 0 is nan"),
        ("tokens", [3, 0], r"tokens of window 1 is 0\.0: at least 1"),
    ],
)
def test_perplexity_of_what_cannot_be_is_refused_by_name(column, values, named):
    columns = {"log_p": [-1.0, -2.0], "energy": [0.0, 0.0], "log_z": [0.0, 0.0], "tokens": [3, 4]}
    with pytest.raises(UserError, match=named):
        joint_perplexity(**columns | {column: values})


def test_perplexity_needs_windows():
    with pytest.raises(UserError, match="at least one window"):
        joint_perplexity([], [], [], [])


def test_a_notebook_shows_the_first_contexts_and_what_speaks_against_them():
    even, uneven = np.zeros(40), np.r_[50.0, np.zeros(39)]
    page = log_partition_bounds(np.stack([even, uneven, *[even] * 10]))._repr_html_()
    assert "<caption>log Z of 12 contexts, from 40 samples each</caption>" in page
    assert page.count("<tr>") == 1 + 10
    assert "<tr><th>context 0</th><td>0.0000</td><td>0.0000</td><td>0.0000</td>" in page
    assert "2 more contexts are not shown" in page
    assert warnings_about(log_partition_bounds(uneven))
    assert "<li>" in log_partition_bounds(uneven)._repr_html_()
    assert "<li>" not in log_partition_bounds(even)._repr_html_()
