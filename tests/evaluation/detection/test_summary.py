"""Accuracies with their intervals."""

import math

import numpy as np
import pytest

from evaluation.detection.summary import measured


def test_intervals_hold_the_true_accuracy_as_often_as_they_say():
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(400):
        real, generated = rng.normal(0.8, 1, 90), rng.normal(-0.3, 1, 60)
        low, high = measured(real, generated)["interval"]
        truth = (0.5 * (1 + math.erf(0.8 / math.sqrt(2))) + 0.5 * (1 + math.erf(0.3 / math.sqrt(2)))) / 2
        hits += low <= truth <= high
    assert 0.92 <= hits / 400 <= 0.985
    one_class = measured(np.array([1.0, 2.0]), np.array([-1.0, 0.0]))  # a score of 0 is not above 0: generated
    assert one_class["right"]["generated"] == {"share": 1.0, "texts": 2}
    assert one_class["interval"][1] == pytest.approx(1)
