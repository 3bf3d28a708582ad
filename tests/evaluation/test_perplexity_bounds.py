"""Perplexity of the joint model, against what enumeration says it is."""

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from pipeline.errors import UserError
from pipeline.store import Store
from tests.evaluation.world import CONTEXT, SAMPLES, TEXTS, truth


def test_the_bounds_enclose_the_joint_models_exact_perplexity(world):
    result = world.bounds("--samples_curve")
    base, joint = [], []
    for log_p, energy, place in truth(world).values():
        base.append(log_p[place])
        joint.append(log_p[place] - energy[place] - np.logaddexp.reduce(log_p - energy))
    exact = np.exp(-np.mean(joint) / 3)
    assert result["base_perplexity"] == pytest.approx(np.exp(-np.mean(base) / 3), rel=1e-6)
    assert abs(result["base_perplexity"] - exact) > 0.02  # the energy matters
    found = result["joint_perplexity"]
    assert found["lower"] <= found["midpoint"] <= found["upper"]
    assert found["lower"] == pytest.approx(exact, rel=0.02)
    assert found["upper"] == pytest.approx(exact, rel=0.02)
    curve = result["samples_curve"]
    assert [point["samples"] for point in curve] == [2, 5, 10, 20, 50, 100, 200, 500, 600]
    gaps = [point["upper"] - point["lower"] for point in curve]
    assert gaps[-1] < gaps[2] / 5
    assert curve[-1]["lower"] == pytest.approx(found["lower"])
    assert {"bounds.json", "contexts.parquet", "samples_curve.svg", "samples_curve.png"} <= {
        path.name for path in (world.folder / "results").iterdir()
    }


def test_a_constant_energy_changes_nothing(world):
    result = world.bounds(energies=world.score("constant", world.samples))
    for bound in result["joint_perplexity"].values():
        assert bound == pytest.approx(result["base_perplexity"], rel=1e-9)
    assert result["effective_samples"]["least"] == pytest.approx(SAMPLES)


def test_token_by_token_the_conditionals_are_those_of_the_joint_distribution(world):
    """Samples at contexts of 2, 3 and 4; the exact conditionals come from sums over all completions."""
    flags = f"--context_lengths 2,3,4 --every_context_length --negatives {SAMPLES}"
    samples = world.mine("every", flags)
    exact_flags = f"--exact_windows 30 --energy {world.folder}/energy --generator {world.folder}/lm0"
    result = world.bounds(f"--positions {exact_flags}", samples, world.score("energy", samples))
    conditionals: list[list[float]] = [[], [], []]
    base: list[list[float]] = [[], [], []]
    for log_p, energy, place in truth(world).values():
        text = TEXTS[place]
        for weights, into in ((log_p - energy, conditionals), (log_p, base)):
            sums = [
                np.logaddexp.reduce(
                    [weight for weight, other in zip(weights, TEXTS, strict=True) if other[:known] == text[:known]]
                )
                for known in range(4)
            ]
            for step in range(3):
                into[step].append(sums[step + 1] - sums[step])
    for step, point in enumerate(result["positions"]):
        assert point["position"] == CONTEXT + step
        assert point["base"] == pytest.approx(np.exp(-np.mean(base[step])), rel=1e-5)
        exact = np.exp(-np.mean(conditionals[step]))
        assert point["lower"] <= point["upper"]
        assert point["lower"] == pytest.approx(exact, rel=0.1)
        assert point["upper"] == pytest.approx(exact, rel=0.1)
    last = result["last_position"]
    assert last["windows"] == 30
    assert last["exact"] == pytest.approx(np.exp(-np.mean(conditionals[2])), rel=1e-5)
    assert last["base"] == pytest.approx(np.exp(-np.mean(base[2])), rel=1e-5)
    assert last["lower"] == pytest.approx(last["exact"], rel=0.1)


@torch.no_grad()
def test_another_language_model_is_measured_on_the_same_completions(world):
    result = world.bounds(f"--language_model {world.folder}/lm0 --language_model {world.folder}/lm1")
    first, second = result["language_models"].values()
    assert first == pytest.approx(result["base_perplexity"], rel=1e-6)
    lm = AutoModelForCausalLM.from_pretrained(world.folder / "lm1").eval()
    windows = torch.tensor([row["tokens"].tolist() for row in Store(str(world.folder / "windows")).rows(["tokens"])])
    logits = lm(torch.cat([torch.full((len(windows), 1), 4), windows[:, :-1]], 1)).logits.log_softmax(-1)
    steps = logits.gather(2, windows[:, :, None])[:, CONTEXT:, 0]
    assert second == pytest.approx(np.exp(-steps.mean().item()), rel=1e-5)


def test_fewer_samples_are_the_first_ones(world):
    assert world.bounds("--samples 10")["samples"] == 10
    curve = world.bounds("--samples_curve")["samples_curve"]
    assert world.bounds("--samples 10")["joint_perplexity"]["upper"] == pytest.approx(curve[2]["upper"])


def test_what_bounds_cannot_be_computed_from_is_refused(world):
    top_k = world.mine("top_k", "--sampling top_k --top_k 3 --context_lengths 2 --negatives 4")
    other = world.mine("other", "--context_lengths 2 --negatives 4 --seed 9")
    scored = world.score("energy", top_k)
    cases = [
        ({"samples": top_k, "energies": scored}, "", "its samples were drawn with top_k"),
        ({"samples": other}, "", "the energies of another store"),
        ({"energies": str(world.folder / "nowhere")}, "", "python evaluation/score.py --energy MODEL --store"),
        ({}, "--samples 1", "--samples 1: between 2 and the 600"),
        ({}, "--samples 601", "--samples 601: between 2 and the 600"),
        ({}, "--positions", "mine every one up to 4 with --every_context_length"),
        ({}, "--exact_windows 3", "name the models with --energy and --generator"),
        (
            {},
            f"--exact_windows 3 --energy {world.folder}/energy --generator {world.folder}/lm1",
            "are another model's",
        ),
    ]
    for stores, flags, message in cases:
        with pytest.raises(UserError) as error:
            world.bounds(flags, **stores)
        assert message in str(error.value), flags


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
