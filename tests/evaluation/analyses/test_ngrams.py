"""Unique n-grams, by hand and over a job's samples."""

import math

import numpy as np
import pyarrow.parquet as pq
import pytest

from evaluation import sample_joint
from evaluation.analyses import ngrams
from evaluation.analyses.ngrams import shares, unique_share
from pipeline.runtime.errors import UserError
from tests.helpers.commands import run


def test_shares_by_hand():
    assert unique_share([1, 2, 1, 2, 1], 2) == 2 / 4  # 12 21 12 21
    assert unique_share([1, 2, 1, 2, 1], 3) == 2 / 3  # 121 212 121
    assert unique_share([1, 2, 1, 2, 1], 4) == 1
    assert unique_share([7, 7, 7, 7], 1) == 1 / 4
    assert math.isnan(unique_share([1, 2, 3], 4))
    rows = shares("real", [[1, 1, 1, 1, 1], [1, 2, 3, 4, 5]])
    assert [(row["n"], row["unique"]) for row in rows] == [(2, 0.625), (3, 2 / 3), (4, 0.75)]
    assert rows[0]["standard_error"] == pytest.approx(0.375)  # of 1/4 and 1


def test_every_completion_counts_once(joint_samples, analyse):
    result = analyse(ngrams, samples=joint_samples["left_to_right"])
    table = pq.read_table(f"{joint_samples['left_to_right']}/samples.parquet").to_pylist()
    found = {(row["text"], row["n"]): row for row in result["rows"]}
    for text, column in (("real", "real"), ("base", "base"), ("joint", "chosen")):
        for n in (2, 3, 4):
            own = [
                len({str(row[column][k : k + n]) for k in range(9 - n)}) / (9 - n) for row in table
            ]  # completions of 8 tokens
            assert found[text, n]["unique"] == pytest.approx(np.mean(own))
            assert found[text, n]["completions"] == 60
    assert len({row["unique"] for row in result["rows"]}) > 6
    for n in (2, 3, 4):
        pairs = [[unique_share(row[column], n) for column in ("chosen", "base")] for row in table]
        apart = np.subtract(*np.transpose(pairs))
        assert found["joint - base", n]["unique"] == pytest.approx(apart.mean(), abs=1e-12)
        assert found["joint - base", n]["standard_error"] == pytest.approx(apart.std(ddof=1) / np.sqrt(60))


def test_prompts_have_no_real_completions(world, tmp_path, analyse):
    (tmp_path / "prompts.txt").write_text("ab\nd\n")
    sample_joint.main(
        f"--energy {world.folder}/energy --generator {world.folder}/lm0 --prompts {tmp_path}/prompts.txt --tokens 4 "
        f"--samples 5 --output {tmp_path}/samples".split()
    )
    result = analyse(ngrams, samples=f"{tmp_path}/samples")
    assert {row["text"] for row in result["rows"]} == {"base", "joint", "joint - base"}
    assert "no real completions" in result["warnings"][0]


def test_samples_of_a_language_model_alone_have_no_joint_completions(world, tmp_path, analyse):
    flags = f"--generator {world.folder}/lm0 --windows {world.folder}/windows --context_length 2 --limit 5"
    sample_joint.main([*flags.split(), "--output", f"{tmp_path}/samples"])
    with pytest.raises(UserError, match="'chosen' completions are not there: sample with --energy MODEL"):
        analyse(ngrams, samples=f"{tmp_path}/samples")


@pytest.mark.slow
def test_bad_input_is_named(world, tmp_path):
    flags = f"--energy {world.folder}/energy --generator {world.folder}/lm0 --windows {world.folder}/windows"
    sample_joint.main([*flags.split(), *f"--context_length 2 --samples 3 --output {tmp_path}/short".split()])
    with pytest.raises(UserError, match="fewer than 4 tokens have no 4-grams: sample longer ones"):
        ngrams.main([f"--samples={tmp_path}/short", f"--output={tmp_path}/out"])
    ended = run("evaluation/analyses/ngrams.py", "--samples", tmp_path / "nowhere", "--output", tmp_path / "out")
    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1
    assert f"{tmp_path}/nowhere: no samples of a joint model there: python evaluation/sample_joint.py" in ended.stderr
    assert not (tmp_path / "out").exists()
    old = pq.read_table(tmp_path / "short/samples.parquet").drop_columns(["base", "base_text", "base_energy"])
    pq.write_table(old, tmp_path / "short/samples.parquet")
    with pytest.raises(UserError, match="made before the base model's samples were kept"):
        ngrams.main([f"--samples={tmp_path}/short", f"--output={tmp_path}/out"])
