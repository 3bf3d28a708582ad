"""Means of log-probability, against what enumeration says they are."""

import numpy as np
import pytest

from evaluation.analyses import densities
from evaluation.analyses.densities import log_probabilities, scored_contexts
from evaluation.joint.bounds import log_partition_bounds
from pipeline.runtime.errors import UserError
from pipeline.stores.reader import Store
from tests.helpers.world import SAMPLES, truth


def expected(world) -> dict[str, tuple[float, float]]:
    """The exact differences of means, samples less real completions, over the world's contexts.

    With each, how far off its estimate is with so many samples: the deviation of a mean, weighted by exp(-E) for the
    joint model.
    """
    differences, variances = {"base": [], "joint": []}, {"base": [], "joint": []}
    for log_p, energy, place in truth(world).values():
        for model, log_weight in (("base", np.zeros_like(energy)), ("joint", -energy)):
            log_q = log_p + log_weight - np.logaddexp.reduce(log_p + log_weight)
            mean = (np.exp(log_q) * log_q).sum()
            differences[model].append(mean - log_q[place])
            ratio = np.exp(log_q - log_p)  # the weight of a sample, on average 1
            variances[model].append((np.exp(log_p) * ratio**2 * (log_q - mean) ** 2).sum() / SAMPLES)
    return {
        model: (float(np.mean(found)), float(np.sqrt(np.sum(variances[model])) / len(found)))
        for model, found in differences.items()
    }


def test_differences_of_means_are_those_of_the_two_distributions(world, analyse):
    result = analyse(densities, negatives=world.samples, energies=world.energies)
    exact = expected(world)
    assert abs(exact["base"][0] - exact["joint"][0]) > 0.1  # the energy matters
    for row in result["rows"]:
        difference, deviation = exact[row["model"]]
        assert abs(row["expected_difference"] - difference) < 4 * deviation < 0.1
        assert abs(row["difference"] - difference) < 3 * row["difference_error"]
        assert row["difference"] == pytest.approx(row["sample"] - row["real"])


def test_real_completions_and_drawn_ones_have_the_log_probabilities_of_both_models(world):
    (contexts,) = scored_contexts(Store(world.samples), Store(world.energies))
    bounds = log_partition_bounds([-context.energy for context in contexts])
    log_z = bounds.midpoint
    values = log_probabilities(contexts, log_z, seed=0)
    exact, errors = truth(world), []
    for name, base, joint in zip(values["window_id"], values["base_real"], values["joint_real"], strict=True):
        log_p, energy, place = exact[name]
        assert base == pytest.approx(log_p[place], abs=1e-4)
        errors.append(joint - (log_p[place] - energy[place] - np.logaddexp.reduce(log_p - energy)))
    # What is left are the errors of the estimates of log Z, as large as the jackknife says, and none is systematic.
    scaled = np.array(errors) / bounds.standard_error
    assert np.sqrt(np.square(scaled).mean()) == pytest.approx(1, abs=0.4)
    assert abs(scaled.mean()) < 3 / np.sqrt(len(scaled))
    draws = [log_probabilities(contexts, log_z, seed)["joint_sample"] for seed in range(200)]
    assert np.mean(draws) == pytest.approx(values["joint_expected"].mean(), abs=0.03)
    assert (log_probabilities(contexts, log_z, 0)["joint_sample"] == draws[0]).all()
    assert (draws[0] != draws[1]).any()


def test_bad_input_is_named(world, backwards, tmp_path):
    cases = [
        ({"negatives": f"{tmp_path}/none"}, "no finished store of negatives there: python pipeline/mine_negatives.py"),
        ({"energies": f"{tmp_path}/none"}, "python evaluation/score.py --energy MODEL"),
        ({"negatives": backwards.path}, "mine with --sampling temperature"),
    ]
    good = {"negatives": world.samples, "energies": world.energies, "output": f"{tmp_path}/out"}
    for change, message in cases:
        with pytest.raises(UserError) as error:
            densities.main([f"--{name}={value}" for name, value in (good | change).items()])
        assert message in str(error.value), change
