"""How often samples are the real completion, against the exact shares."""

import numpy as np
import pytest

from tests.helpers.world import SAMPLES, truth


def test_real_completions_are_counted_among_samples_and_choices(world):
    """Against the exact shares: what the generator, and what the joint model, gives the real completion."""
    found = world.bounds("--matches")["matches"]
    exact = truth(world).values()
    base = np.mean([np.exp(log_p[place]) for log_p, _, place in exact])
    joint = np.mean(
        [np.exp((log_p - energy)[place] - np.logaddexp.reduce(log_p - energy)) for log_p, energy, place in exact]
    )
    assert found["base"] == pytest.approx(base, abs=0.004)
    last = found["joint"][-1]
    assert last["samples"] == SAMPLES
    assert last["joint"] == pytest.approx(joint, abs=0.004)
    first = found["joint"][0]
    assert first["samples"] == 1
    assert first["joint"] == first["oracle"]
    oracle = np.mean([1 - (1 - np.exp(log_p[place])) ** 100 for log_p, _, place in exact])
    assert next(point for point in found["joint"] if point["samples"] == 100)["oracle"] == pytest.approx(
        oracle, abs=0.15
    )
