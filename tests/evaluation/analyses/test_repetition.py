"""Repetition: by energy, counted once more; at the next token, against the joint distribution itself."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from evaluation import sample_joint
from evaluation.analyses import repetition_by_energy, repetition_next_token
from evaluation.analyses.repetition_next_token import first_repetition
from pipeline.runtime.errors import UserError
from tests.helpers.world import CONTEXT, TEXTS, truth


def repeated(tokens: list[int], n: int) -> float:
    seen, again = set(), 0
    for place in range(len(tokens) - n + 1):
        gram = tuple(tokens[place : place + n])
        again += gram in seen
        seen.add(gram)
    return again / (len(tokens) - n + 1)


def test_worst_and_best_are_compared_context_by_context(joint_samples, analyse):
    result = analyse(repetition_by_energy, samples=joint_samples["left_to_right"], examples=4)
    table = pq.read_table(f"{joint_samples['left_to_right']}/samples.parquet").to_pylist()
    rows = {row["text"]: row for row in result["rows"]}
    for text, column in (("real", "real"), ("best", "best"), ("joint", "chosen"), ("base", "base"), ("worst", "worst")):
        for n in (2, 3, 4):
            expected = np.mean([repeated(row[column], n) for row in table])
            assert rows[text][f"repeated_{n}_grams"] == pytest.approx(expected)
    assert rows["best"]["energy"] <= rows["joint"]["energy"] <= rows["worst"]["energy"]
    assert rows["real"]["energy"] == pytest.approx(np.mean([row["real_energy"] for row in table]))
    difference = [repeated(row["worst"], 2) - repeated(row["best"], 2) for row in table]
    assert rows["worst - best"]["repeated_2_grams"] == pytest.approx(np.mean(difference))
    assert rows["worst - best"]["repeated_2_grams_error"] == pytest.approx(np.std(difference, ddof=1) / np.sqrt(60))
    highest = sorted((max(row["energies"]) for row in table), reverse=True)[:4]
    assert [one["worst_energy"] for one in result["examples"]] == highest
    assert all(one["best_energy"] < one["worst_energy"] for one in result["examples"])


def test_the_first_repetition_by_hand():
    context, completion = np.array([1, 2, 3]), np.array([4, 5, 2, 9, 9])
    assert first_repetition(context, completion, near=1) == 7  # 9 9
    assert first_repetition(context, completion, near=4) == 5  # 2, four tokens after the other one
    assert first_repetition(context, completion, near=3) == 7
    assert first_repetition(np.array([], int), np.array([1, 2, 3]), near=3) is None


@pytest.fixture(scope="module")
def letters(world, tmp_path_factory) -> str:
    output = str(tmp_path_factory.mktemp("letters") / "samples")
    given = f"--energy {world.folder}/energy --generator {world.folder}/lm0 --windows {world.folder}/windows"
    flags = f"--context_length {CONTEXT} --samples 10 --sampling temperature --output {output}"
    assert sample_joint.main([*given.split(), *flags.split()]) == 0
    return output


def test_next_tokens_have_the_probabilities_of_both_distributions(world, letters, analyse):
    result = analyse(
        repetition_next_token,
        energy=f"{world.folder}/energy",
        generator=f"{world.folder}/lm0",
        samples=letters,
        points=4,
        near=2,
        words=5,
        completions=1500,
        top=3,
    )
    rows = {row["window_id"]: row for row in pq.read_table(f"{letters}/samples.parquet").to_pylist()}
    exact = truth(world)
    assert len(result["examples"]) == 4
    means = {"base": [], "joint": []}
    for one in result["examples"]:
        window = rows[one["window_id"]]["context"] + rows[one["window_id"]]["base"]
        place = one["position"] - 1
        assert window[place] in window[place - 2 : place]
        assert all(window[t] not in window[t - 2 : t] for t in range(CONTEXT, place))
        log_p, energy, _ = exact[one["window_id"]]
        prefix = tuple(window[CONTEXT:place])
        for name, weights in (("base", np.exp(log_p)), ("joint", np.exp(log_p - energy))):
            mass = np.zeros(5)
            for weight, text in zip(weights, TEXTS, strict=True):
                if text[: len(prefix)] == prefix:
                    mass[text[len(prefix)]] += weight
            mass /= mass.sum()
            expected = mass[list(set(window[place - 2 : place]))].sum()
            assert one[f"{name}_repeats"] == pytest.approx(expected, abs=1e-4 if name == "base" else 0.03)
            best = np.sort(mass)[::-1][:3]
            shown = [candidate["probability"] for candidate in one[name]]
            assert shown == pytest.approx(best / best.sum(), abs=1e-4 if name == "base" else 0.04)
            means[name].append(one[f"{name}_repeats"])
    found = {row["model"]: row["repeats"] for row in result["rows"]}
    assert found["base"] == pytest.approx(np.mean(means["base"]))
    assert found["joint - base"] == pytest.approx(np.mean(means["joint"]) - np.mean(means["base"]))


def test_right_to_left_a_repetition_comes_before_what_it_repeats(joint_samples, models, generators, analyse, tmp_path):
    options = {"points": 3, "near": 3, "words": 4, "completions": 5}
    given = {"energy": models["bit-nano"], "generator": generators["right_to_left"]}
    result = analyse(repetition_next_token, samples=joint_samples["right_to_left"], **given, **options)
    rows = {
        row["window_id"]: row for row in pq.read_table(f"{joint_samples['right_to_left']}/samples.parquet").to_pylist()
    }
    for one in result["examples"]:
        window = rows[one["window_id"]]["base_text"] + rows[one["window_id"]]["context_text"]
        assert window.endswith(one["token"] + one["context"])
        if "<" not in one["context"]:
            assert one["token"] in one["context"][:3]
    kept = json.loads((tmp_path / "repetition_next_token/points.json").read_text())
    assert len(kept) == 3
    assert analyse(repetition_next_token, samples=joint_samples["right_to_left"], **given, **options) == result


def test_bad_input_is_named(world, letters, tmp_path):
    good = {"energy": f"{world.folder}/energy", "generator": f"{world.folder}/lm0", "samples": letters}
    cases = [
        ({"samples": f"{tmp_path}/none"}, "no samples of a joint model there: python evaluation/sample_joint.py"),
        (
            {"energy": f"{world.folder}/constant"},
            f"--energy {world.folder}/constant: the samples of {letters} are another",
        ),
        ({"generator": f"{world.folder}/lm1"}, f"--generator {world.folder}/lm1: the samples of {letters} are another"),
        ({"near": "0"}, "--near 0: at least 1"),
    ]
    for change, message in cases:
        with pytest.raises(UserError) as error:
            repetition_next_token.main(
                [f"--{name}={value}" for name, value in (good | {"output": f"{tmp_path}/out"} | change).items()]
            )
        assert message in str(error.value), change
    with pytest.raises(UserError, match="fewer than 4 tokens have no 4-grams"):
        repetition_by_energy.main([f"--samples={letters}", f"--output={tmp_path}/out"])
