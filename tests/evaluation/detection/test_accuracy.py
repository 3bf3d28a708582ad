"""Accuracies and their intervals, against scores whose accuracy is known."""

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.metrics import balanced_accuracy_score

from evaluation.detection.accuracy import Rule, balanced_accuracy, best_rule, interval


def test_scores_of_known_accuracy():
    """Normal scores with means 1 and -0.5: the shares right are Phi(1) and Phi(0.5), the AUROC Phi(1.5 / sqrt 2)."""
    rng = np.random.default_rng(0)
    real, generated = rng.normal(1, 1, 200_000), rng.normal(-0.5, 1, 100_000)
    found = balanced_accuracy(real, generated)
    assert found.real == pytest.approx(norm.cdf(1), abs=0.004)
    assert found.generated == pytest.approx(norm.cdf(0.5), abs=0.004)
    assert found.accuracy == pytest.approx((norm.cdf(1) + norm.cdf(0.5)) / 2, abs=0.003)
    assert found.auroc == pytest.approx(norm.cdf(1.5 / np.sqrt(2)), abs=0.003)
    labels = np.concatenate([np.ones(len(real)), np.zeros(len(generated))])
    scores = np.concatenate([real, generated])
    assert found.accuracy == pytest.approx(balanced_accuracy_score(labels, scores > 0))


def test_a_score_of_zero_calls_nothing_real():
    found = balanced_accuracy(np.zeros(3), np.zeros(2))
    assert (found.real, found.generated, found.accuracy, found.auroc) == (0, 1, 0.5, 0.5)


@pytest.mark.parametrize("shares", [(0.6, 0.5), (0.9, 0.8), (0.995, 0.99)])
@pytest.mark.parametrize("samples", [1, 4])
def test_intervals_hold_the_truth_as_often_as_they_say(shares, samples):
    """300 windows; a window's real completion and its samples go wrong together, as hard windows do."""
    rng = np.random.default_rng(1)
    truth, windows, held, widths = sum(shares) / 2, 300, 0, []
    for _ in range(400):
        shared = rng.normal(size=windows)
        hard = 0.8 * shared[:, None] + 0.6 * rng.normal(size=(windows, 1 + samples))
        real = norm.ppf(shares[0]) - hard[:, 0]
        generated = hard[:, 1:] - norm.ppf(shares[1])
        names = np.arange(windows)
        found = balanced_accuracy(real, generated.ravel(), names, np.repeat(names, samples))
        held += found.low <= truth <= found.high
        widths.append(found.high - found.low)
    assert 0.92 <= held / 400 <= 0.995
    assert np.mean(widths) < 0.12


def test_more_samples_of_a_window_do_not_pretend_to_be_more_windows():
    rng = np.random.default_rng(2)
    real, generated = rng.normal(1, 1, 100), rng.normal(-1, 1, 100)
    names = np.arange(100)
    once = balanced_accuracy(real, generated, names, names)
    copied = balanced_accuracy(real, np.repeat(generated, 50), names, np.repeat(names, 50))
    assert copied.accuracy == pytest.approx(once.accuracy)
    assert copied.high - copied.low == pytest.approx(once.high - once.low)
    assert copied.windows == 100


def test_perfect_scores_are_not_certain():
    found = balanced_accuracy(np.ones(50), -np.ones(50), np.arange(50), np.arange(50))
    assert found.accuracy == found.high == 1
    assert 0.85 < found.low < 0.95  # by Clopper and Pearson, 50 of 50 is at least 0.929
    assert interval(np.zeros(50)) == pytest.approx((0, 1 - found.low))


def test_the_best_rule_is_the_best_of_all():
    rng = np.random.default_rng(3)
    for _ in range(5):
        real, generated = rng.normal(-0.7, 1, 40).round(1), rng.normal(0.3, 1.5, 60).round(1)
        rule = best_rule(real, generated)
        found = balanced_accuracy(rule.sign * real, rule.sign * generated, threshold=rule.threshold).accuracy
        every = [
            balanced_accuracy(sign * real, sign * generated, threshold=threshold).accuracy
            for sign in (1, -1)
            for threshold in [-100.0, *np.unique(np.concatenate([sign * real, sign * generated]))]
        ]
        assert found == pytest.approx(max(every))
    assert best_rule(np.array([1.0, 2.0]), np.array([-1.0, 0.0])) == Rule(1, 0.5)


def test_one_class_alone_has_no_accuracy():
    with pytest.raises(ValueError, match="both"):
        balanced_accuracy(np.ones(3), np.empty(0))
