"""Studies on a cluster: what their jobs need, stores made in parts, and a real Slurm that runs one to its end."""

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from pipeline.runtime.errors import UserError
from pipeline.stores.manifest import read_manifest
from studies import run_study
from studies.orchestration.study import Study
from studies.run_study import cluster_resources, executor_options
from tests.helpers import slurm
from tests.helpers.commands import command
from tests.helpers.mining import mine, save_generator

WINDOWS = {"train": {"input": "builtin:sums:lines=120", "split": "train", "shards": 6}}


def saved(folder: Path, **content: object) -> str:
    path = folder / "study.yaml"
    path.write_text(yaml.safe_dump({"windows": WINDOWS} | content, sort_keys=False))
    return str(path)


def mined(generator: str, **more: object) -> dict:
    return {"windows": "train", "generator": generator, "context_lengths": [5, 8], "engine": "torch"} | more


def test_a_store_in_parts_is_a_job_a_part_and_one_that_finishes(tmp_path):
    jobs = Study(saved(tmp_path, negatives={"mined": mined("lm", parts=3)}), "out").jobs()
    found = {job.name: job for job in jobs}
    parts = [f"negatives/mined.part{number}" for number in (1, 2, 3)]
    assert list(found) == ["windows/train", *parts, "negatives/mined", "findings", "report"]
    assert [found[name].command[-2:] for name in parts] == [["--part", f"{number}/3"] for number in (1, 2, 3)]
    assert all(found[name].needs == ["windows/train"] for name in parts)
    assert found["negatives/mined"].command[-1] == "--finish"
    assert set(found["negatives/mined"].needs) == {"windows/train", *parts}


def test_what_jobs_need_is_said_in_one_place(tmp_path):
    study = saved(
        tmp_path,
        negatives={"mined": mined("lm", parts=2), "other": mined("lm")},
        energy_models={"unit": {"preset": "unit-tiny", "train": ["mined"], "valid": ["other"]}},
        resources={
            "negatives": {"gpus": 1, "memory": 32, "hours": 4},
            "negatives/other": {"hours": 1.5},
            "energy_models": {"gpus": 8, "nodes": 2, "cores": 16},
        },
    )
    found = {job.name: job for job in Study(study, "out").jobs()}
    assert found["negatives/mined.part2"].resources == {"gpus": 1, "memory": 32, "hours": 4}
    assert found["negatives/mined"].resources == {"memory": 32, "hours": 4}  # finishing needs no GPU
    assert found["negatives/other"].resources == {"gpus": 1, "memory": 32, "hours": 1.5}
    assert found["energy_models/unit"].command[:4] == ["srun", "--nodes=2", "--ntasks-per-node=8", "python"]
    assert found["windows/train"].resources == {}
    assert cluster_resources({"gpus": 1, "memory": 32, "hours": 1.5}) == {
        "gres": "gpu:1",
        "mem_mb": 32000,
        "runtime": 90,
    }
    assert cluster_resources(found["energy_models/unit"].resources)["tasks"] == 16
    with pytest.raises(UserError, match=r"resources.negatives: Additional properties .*disks"):
        Study(saved(tmp_path, resources={"negatives": {"disks": 3}}), "out")


def test_without_accounting_slurms_executor_asks_the_queue(monkeypatch):
    monkeypatch.setattr(run_study.shutil, "which", lambda name: None)
    assert executor_options(["--executor", "slurm", "--jobs", "4"]) == ["--slurm-status-command", "squeue"]
    assert executor_options(["--executor=slurm", "--slurm-status-command", "sacct"]) == []
    assert executor_options(["--keep-going"]) == []


@pytest.mark.slow
@pytest.mark.skipif(slurm.why_not() is not None, reason=str(slurm.why_not()))
def test_slurm_runs_a_study_to_its_end_and_a_job_that_fails_is_named(tmp_path):
    generator = save_generator(tmp_path / "lm")
    bad = {"bad": {"input": str(tmp_path / "nothing-*.txt"), "corpus": "none", "split": "train"}}
    study = saved(tmp_path, windows=WINDOWS | bad, negatives={"mined": mined(generator, parts=2)})
    words = ["--study", study, "--output", str(tmp_path / "out"), "--executor", "slurm", "--jobs", "2", "--keep-going"]
    words += ["--slurm-init-seconds-before-status-checks", "2", "--seconds-between-status-checks", "2"]
    given = command("studies/run_study.py", *words)
    with slurm.cluster(tmp_path / "slurm") as environment:
        environment |= {"RESIDUAL_EBM_PROGRESS": "0", "PYTHONPATH": os.getcwd()}
        failed = subprocess.run(given, env=environment, capture_output=True, text=True, cwd=tmp_path)
        assert failed.returncode == 2, failed.stderr
        assert "windows/bad did not end well" in failed.stderr
        assert "error: --tokenizer: name one" in failed.stderr  # the last words of the job
        assert (tmp_path / "out/negatives/mined/manifest.json").exists(), failed.stderr
        saved(tmp_path, negatives={"mined": mined(generator, parts=2)})
        ended = subprocess.run(given, env=environment, capture_output=True, text=True, cwd=tmp_path)
        assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "out/report.html").exists()
    windows = str(tmp_path / "out/windows/train")
    assert mine(windows, generator, tmp_path / "here", flags="--context_lengths=5,8") == 0
    assert read_manifest(str(tmp_path / "out/negatives/mined")).digest == read_manifest(str(tmp_path / "here")).digest
