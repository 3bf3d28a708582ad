"""What a third detector makes of samples, against the detector itself."""

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from evaluation import sample_joint
from evaluation.analyses import third_detector
from evaluation.analyses.third_detector import chance_doubt, rows_of
from pipeline.runtime.errors import UserError
from training.energy.folder import open_energy_model


@torch.no_grad()
@pytest.mark.parametrize("direction", ["left_to_right", "right_to_left"])
def test_shares_are_those_of_the_windows(direction, joint_samples, models, analyse):
    result = analyse(third_detector, samples=joint_samples[direction], detector=models["other"])
    table = pq.read_table(f"{joint_samples[direction]}/samples.parquet").to_pylist()
    model = open_energy_model(models["other"]).load()
    shares = {}
    for text, column in (("real", "real"), ("base", "base"), ("joint", "chosen")):
        windows = [
            row["context"] + row[column] if direction == "left_to_right" else row[column] + row["context"]
            for row in table
        ]
        shares[text] = (model(torch.tensor(windows)) < 0).double().mean().item()
    rows = {row["text"]: row for row in result["rows"]}
    for text, share in shares.items():
        assert rows[text]["called_real"] == pytest.approx(share)
        assert rows[text]["low"] <= share <= rows[text]["high"]
        assert rows[text]["windows"] == 60
    assert rows["joint - base"]["called_real"] == pytest.approx(shares["joint"] - shares["base"])
    for text in ("base", "joint"):
        assert rows[text]["accuracy"] == pytest.approx((shares["real"] + 1 - shares[text]) / 2)
    assert len(set(shares.values())) > 1
    low = rows["base"]["accuracy_low"]
    assert low < rows["base"]["accuracy"] < rows["base"]["accuracy_high"]
    assert bool(result["warnings"]) == (low < 0.55)


def test_the_energy_that_chose_is_no_third_detector(joint_samples, models, analyse):
    result = analyse(third_detector, samples=joint_samples["left_to_right"], detector=models["bit-nano"])
    assert "is the energy model that chose the samples" in result["warnings"][0]
    rows = {row["text"]: row["called_real"] for row in result["rows"]}
    assert rows["joint"] > rows["base"]  # it takes what it chose for real more often


def test_the_difference_is_paired():
    base, joint = np.array([True, False] * 50), np.array([True, False] * 49 + [True, True])
    *_, row = rows_of({"base": base, "joint": joint})
    assert row["called_real"] == pytest.approx(0.01)
    assert -0.1 < row["low"] < 0.01 < row["high"] < 0.1  # far less than two shares of 100 would leave open


@pytest.mark.parametrize(("called_generated", "at_chance"), [(0.502, True), (0.58, True), (0.9, False)])
def test_a_detector_at_chance_is_no_evidence(called_generated, at_chance):
    """On 1,000 contexts: half of the real windows, or nearly all, are called real."""
    ranks = np.arange(1000) / 1000
    real = ranks < (0.5 if at_chance else 0.9)
    base = np.random.default_rng(0).permutation(ranks) >= called_generated
    rows = rows_of({"real": real, "base": base, "joint": base})
    said = chance_doubt(rows)
    assert bool(said) == at_chance
    if called_generated == 0.502:
        assert "calls 50.1% by their name" in said[0]
    assert chance_doubt(rows_of({"base": base, "joint": base})) == []  # not known, which is said elsewhere


def test_bad_input_is_named(joint_samples, models, world, generators, tmp_path):
    good = {"samples": joint_samples["left_to_right"], "detector": models["other"], "output": f"{tmp_path}/out"}
    cases = [
        ({"detector": f"{world.folder}/energy"}, "have different vocabularies"),
        ({"detector": generators["left_to_right"]}, "not an energy model"),
        ({"detector": f"{tmp_path}/none"}, "deepspeed training/train_energy.py"),
        ({"samples": f"{tmp_path}/none"}, "python evaluation/sample_joint.py"),
    ]
    for change, message in cases:
        with pytest.raises(UserError) as error:
            third_detector.main([f"--{name}={value}" for name, value in (good | change).items()])
        assert message in str(error.value), change


def test_prompts_alone(world, tmp_path, analyse):
    (tmp_path / "prompts.txt").write_text("ab\nabc\n")
    sample_joint.main(
        f"--energy {world.folder}/energy --generator {world.folder}/lm0 --prompts {tmp_path}/prompts.txt --tokens 2 "
        f"--samples 5 --output {tmp_path}/samples".split()
    )
    result = analyse(third_detector, samples=f"{tmp_path}/samples", detector=f"{world.folder}/constant")
    assert [row["called_real"] for row in result["rows"]] == [0, 0, 0]
    assert "accuracy is not known" in result["warnings"][0]
