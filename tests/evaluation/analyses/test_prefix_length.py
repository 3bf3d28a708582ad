"""Accuracy at every length of context, counted once more."""

import json

import numpy as np
import pytest

from evaluation import score
from evaluation.analyses import prefix_length
from pipeline.runtime.errors import UserError
from pipeline.stores.reader import Store


@pytest.fixture(scope="module")
def scored(models, negatives, tmp_path_factory) -> list[str]:
    folder = tmp_path_factory.mktemp("scored")
    for kind in ("unit-nano", "bit-nano", "other"):
        score.main(["--energy", models[kind], "--store", negatives.valid.path, "--output", str(folder / kind)])
    return [str(folder / kind) for kind in ("unit-nano", "bit-nano", "other")]


def test_a_line_for_each_model_a_point_for_each_length(scored, tmp_path):
    assert prefix_length.main(["--energies", *scored[:2], "--output", str(tmp_path / "out")]) == 0
    result = json.loads((tmp_path / "out/analysis.json").read_text())
    found = {(row["energy"], row["context_length"]): row for row in result["rows"]}
    assert found.keys() == {(kind, length) for kind in ("unit", "bit") for length in (5, 8)}
    assert result["settings"]["trained_lengths"] == {"unit": None, "bit": None}  # nobody trained them
    for kind, store in (("unit", scored[0]), ("bit", scored[1])):
        rows = Store(store).take(range(len(Store(store)))).to_pylist()
        for length in (5, 8):
            real = np.array([r["energy"] < 0 for r in rows if r["context_length"] == length and r["sample"] == -1])
            other = np.array([r["energy"] >= 0 for r in rows if r["context_length"] == length and r["sample"] >= 0])
            row = found[kind, length]
            assert row["accuracy"] == pytest.approx((real.mean() + other.mean()) / 2)
            assert row["low"] <= row["accuracy"] <= row["high"]
            assert row["ratio"] == pytest.approx(length / 13)
            assert row["windows"] == len(real)
            assert len(other) == 3 * len(real)
    assert result["warnings"] == []


def test_models_of_one_kind_are_distinguished_by_their_paths(scored, models, tmp_path):
    assert prefix_length.main(["--energies", *scored[1:], "--output", str(tmp_path / "out")]) == 0
    result = json.loads((tmp_path / "out/analysis.json").read_text())
    assert {row["energy"] for row in result["rows"]} == {f"bit, {models[kind]}" for kind in ("bit-nano", "other")}


def test_one_length_and_likelihoods_are_warned_of(world, analyse):
    assert "only one length of context" in analyse(prefix_length, energies=world.energies)["warnings"][0]
    likelihood = world.score("lm1", world.samples)
    assert any("no threshold at 0" in line for line in analyse(prefix_length, energies=likelihood)["warnings"])


def test_bad_input_is_named(scored, negatives, tmp_path):
    cases = [
        ([f"{tmp_path}/none"], "no finished store of energies there: python evaluation/score.py"),
        ([negatives.valid.path], "a store of negatives, but one of energies is needed here"),
        ([scored[0], scored[0]], "energies of the same model"),
    ]
    for stores, message in cases:
        with pytest.raises(UserError) as error:
            prefix_length.main(["--energies", *stores, "--output", f"{tmp_path}/out"])
        assert message in str(error.value), stores
