"""Contrasts and verdicts: against direct computations, and how often their intervals hold the truth."""

import numpy as np
import pytest

from evaluation.claims.decision import (
    CANNOT_TELL,
    INDEPENDENT,
    NOT_SEEN,
    PAIRED,
    SEEN,
    Claim,
    Finding,
    Measured,
    Part,
    contrast,
    flipped,
    from_error,
)
from evaluation.detection.accuracy import accuracy_by_window, balanced_accuracy, interval

CLAIM = Claim("c", "a claim", "a table", "numbers")


def part(low: float, high: float, line: float = 0.0) -> Part:
    return Part("p", (low + high) / 2, low, high, line)


@pytest.mark.parametrize(
    ("ends", "line", "verdict"),
    [
        ((0.1, 0.2), 0.0, SEEN),
        ((-0.2, -0.1), 0.0, NOT_SEEN),
        ((-0.1, 0.2), 0.0, CANNOT_TELL),
        ((0.0, 0.0), 0.0, CANNOT_TELL),
        ((-0.01, 0.02), -0.02, SEEN),
        ((0.51, 0.6), 0.5, SEEN),
    ],
)
def test_a_part_is_decided_by_its_interval_and_its_line(ends, line, verdict):
    assert part(*ends, line).verdict == verdict


def test_a_claim_is_seen_if_all_parts_are_and_not_seen_if_one_is_not():
    good, bad, open_ = part(0.1, 0.2), part(-0.2, -0.1), part(-1, 1)
    assert Finding(CLAIM, [good, good]).verdict == SEEN
    assert Finding(CLAIM, [good, open_]).verdict == CANNOT_TELL
    assert Finding(CLAIM, [good, open_, bad]).verdict == NOT_SEEN
    assert Finding(CLAIM, []).verdict == CANNOT_TELL
    assert Finding(CLAIM, [good], "half of it is not measured").verdict == CANNOT_TELL
    assert Finding(CLAIM, [good, open_]).reason == "the interval includes both: p"
    assert Finding(CLAIM, [], "not measured: it").reason == "not measured: it"
    assert Finding(CLAIM, [good]).reason is None


def test_what_must_be_below_is_turned_over():
    turned = flipped(Part("p", -3.0, -5.0, -1.0, 2.0))
    assert (turned.value, turned.low, turned.high, turned.line) == (3.0, 1.0, 5.0, -2.0)
    assert turned.verdict == SEEN
    assert from_error("m", 1.0, 0.5).low == pytest.approx(1 - 0.5 * 1.959964)


def flags(rng: np.random.Generator, shares: tuple[float, float], windows: int) -> tuple[np.ndarray, np.ndarray]:
    """Two models on the same windows, right together more often than by accident."""
    hard = rng.random(windows)
    return tuple(((rng.random(windows) + hard) / 2 < share) for share in shares)


def measured(real: np.ndarray, generated: np.ndarray) -> Measured:
    names = np.arange(len(real))
    found = balanced_accuracy(np.where(real, 1.0, -1.0), np.where(generated, -1.0, 1.0), names, names)
    return Measured(found.accuracy, found.low, found.high, accuracy_by_window(real, generated, names, names))


def test_over_the_same_windows_the_contrast_is_that_of_the_windows_differences():
    rng = np.random.default_rng(0)
    first, second = (measured(*flags(rng, (share, share), 500)) for share in (0.7, 0.6))
    found, over = contrast([(1, first), (-1, second)])
    assert over == PAIRED
    by_hand = first.windows[1] - second.windows[1]
    assert found.value == pytest.approx(first.value - second.value)
    assert found.value == pytest.approx(by_hand.mean())
    low, high = interval((1 + by_hand) / 2)
    assert (found.low, found.high) == pytest.approx((2 * low - 1, 2 * high - 1))
    mean, _ = contrast([(1, first), (-0.5, second), (-0.5, second)])
    assert (mean.value, mean.low, mean.high) == pytest.approx((found.value, found.low, found.high))


def test_without_windows_it_is_newcombes_interval():
    """Of two independent proportions, 56/70 and 48/80, by Wilson's intervals: Newcombe 1998, method 10, table II."""
    first, second = Measured(56 / 70, 0.6921, 0.8772), Measured(48 / 80, 0.4904, 0.7002)
    found, over = contrast([(1, first), (-1, second)])
    assert over == INDEPENDENT
    assert (found.low, found.high) == pytest.approx((0.0524, 0.3339), abs=5e-4)
    other = Measured(0.6, 0.5, 0.7, (np.arange(3), np.zeros(3)))
    assert contrast([(1, other), (-1, Measured(0.5, 0.4, 0.6, (np.arange(4), np.zeros(4))))])[1] == INDEPENDENT


@pytest.mark.parametrize("paired", [True, False])
def test_intervals_of_contrasts_hold_the_truth_as_often_as_they_say(paired):
    """Shares of windows that both models find hard: pairing is narrower, and both hold the difference of 10 points."""
    rng, truth = np.random.default_rng(1), None
    many = [flags(rng, (0.7, 0.6), 400_000) for _ in range(2)]
    truth = np.mean([both[0].mean() - both[1].mean() for both in many])
    held, widths = [], []
    for _ in range(600):
        real, generated = flags(rng, (0.7, 0.6), 300), flags(rng, (0.7, 0.6), 300)
        first, second = (measured(real[model], generated[model]) for model in (0, 1))
        if not paired:
            first, second = (Measured(one.value, one.low, one.high) for one in (first, second))
        found, _ = contrast([(1, first), (-1, second)])
        held.append(found.low <= truth <= found.high)
        widths.append(found.high - found.low)
    assert np.mean(held) >= 0.93
    assert np.mean(widths) == pytest.approx(0.093 if paired else 0.107, rel=0.15)
