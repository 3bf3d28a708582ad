"""Runs whose output is in a bucket: what counts is there, and a machine that is lost costs what came after it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from pipeline.models.language_model import open_language_model
from pipeline.runtime import files
from tests.helpers.commands import free_port, serving
from tests.helpers.processes import await_sign, run_group, started
from tests.helpers.trainings import train, train_command
from tests.training.loop.test_checkpoints import write_model
from training.loop import checkpoints, mirror
from training.loop.checkpoints import Mark


@pytest.fixture
def bucket(tmp_path, monkeypatch):
    """A bucket in this process's memory; the machine's own disk is a folder of the test's."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    url = f"memory://{tmp_path.name}/model"
    yield url
    files.remove(url)


def write_parts(output: str, step: int, rank: int = 0) -> None:
    folder = Path(checkpoints.folder_of(output, checkpoints.name_of(step)))
    (folder / "parts").mkdir(parents=True, exist_ok=True)
    (folder / f"parts/rank-{rank}.pt").write_bytes(b"weights")


def save(output: str, step: int, best: int | None) -> Mark:
    write_parts(output, step)
    mark = Mark(step, ranks=1, stage=1, best_step=best, best_value=None if best is None else 3.5)
    checkpoints.upload_parts(output, step)
    checkpoints.finish(output, mark)
    return mark


def test_a_folder_here_is_its_own_mirror(tmp_path):
    output = str(tmp_path / "model")
    assert mirror.working_folder(output) == output
    save(output, 3, None)
    mirror.start_empty(output)
    assert checkpoints.newest(output).step == 3


def test_a_checkpoint_in_a_bucket_counts_when_its_mark_is_there_which_comes_last(bucket, monkeypatch):
    uploaded: list[str] = []
    copy, put = files.copy, files.put
    monkeypatch.setattr(files, "copy", lambda source, target: (uploaded.append(target), copy(source, target)))
    monkeypatch.setattr(files, "put", lambda url, data: (uploaded.append(url), put(url, data)))
    checkpoints.save_best(bucket, 3, write_model)
    write_parts(bucket, 4)
    checkpoints.upload_parts(bucket, 4)
    assert checkpoints.newest(bucket) is None
    assert not os.path.exists(checkpoints.folder_of(bucket, "step-000004"))  # the disk is for the next one
    mark = save(bucket, 4, best=3)
    assert uploaded[-1] == f"{bucket}/checkpoints/step-000004/whole.json"
    assert sum(url.endswith("best-000003/model.safetensors") for url in uploaded) == 1
    assert checkpoints.newest(bucket) == mark
    save(bucket, 6, best=3)
    assert sum(url.endswith("best-000003/model.safetensors") for url in uploaded) == 1  # it was there


def test_another_machine_finds_the_checkpoint_the_best_model_and_the_logs(bucket):
    logs = Path(mirror.working_folder(bucket), "logs/csv")
    logs.mkdir(parents=True)
    (logs / "train_loss.csv").write_text("step,loss\n1,2.5\n")
    checkpoints.save_best(bucket, 3, write_model)
    mark = save(bucket, 4, best=3)
    files.put(f"{bucket}/checkpoints/step-000006/parts/rank-0.pt", b"weig")  # a killed run's
    shutil.rmtree(mirror.working_folder(bucket))
    checkpoints.keep_only(bucket, mark)
    checkpoints.fetch(bucket, mark, best=False)
    assert files.names_below(mirror.working_folder(bucket)) == [
        "checkpoints/step-000004/parts/rank-0.pt",
        "checkpoints/step-000004/whole.json",
    ]
    checkpoints.fetch(bucket, mark, best=True)
    assert (logs / "train_loss.csv").read_text() == "step,loss\n1,2.5\n"
    checkpoints.publish_best(bucket, 3)
    assert checkpoints.is_finished(bucket)
    assert files.names_in(f"{bucket}/checkpoints") == ["step-000004"]
    assert {"config.json", "model.safetensors", "tokenizer.json"} < set(files.names_in(bucket))
    checkpoints.start_over(bucket)
    assert not checkpoints.is_finished(bucket)
    assert files.names_in(bucket) == ["digests.json", "model.safetensors", "tokenizer.json"]


TRAINED = """
import sys, tempfile
from pipeline.runtime import lock
from training import train_lm
from training.loop import ranks

lock.LEASE, tempfile.tempdir = 3, sys.argv.pop(1)
ranks.exit_all_with(train_lm.main)
"""


@pytest.mark.slow
def test_a_run_that_is_killed_continues_from_the_bucket_on_an_empty_disk_to_the_very_weights(
    stores, tmp_path, monkeypatch
):
    undisturbed = tmp_path / "undisturbed"
    ended = train(stores, undisturbed, "--save_every 3 --validate_every 4")
    assert ended.returncode == 0, ended.stderr
    port = free_port()
    monkeypatch.setenv("CLOUD_STORAGE_EMULATOR_ENDPOINT", f"http://localhost:{port}")
    server = [sys.executable, "-m", "gcp_storage_emulator", "start", "--in-memory", "--default-bucket=models"]
    output, disk = "gs://anonymous@models/books/lm", tmp_path / "disk"
    _, *flags = train_command(stores, output, "--save_every 3 --validate_every 4")[1:]
    command = [sys.executable, "-c", TRAINED, str(disk), *flags]
    with serving([*server, f"--port={port}"], port):
        disk.mkdir()
        mark = f"{output}/checkpoints/step-000009/whole.json"
        with started(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            await_sign(process, lambda: files.is_file(mark))
        assert list(disk.iterdir())
        shutil.rmtree(disk)
        disk.mkdir()
        assert not checkpoints.is_finished(output)
        while (ended := run_group(command)).returncode == 2 and "if it died" in ended.stderr:
            pass  # the killed run's lease
        assert ended.returncode == 0, ended.stderr
        assert ", from step " in ended.stdout
        assert list(disk.iterdir()) == []
        weights = open_language_model(output).load().state_dict()
        expected = AutoModelForCausalLM.from_pretrained(undisturbed).state_dict()
        assert weights.keys() == expected.keys()
        assert all(torch.equal(weights[name], expected[name]) for name in expected)
        curves = [
            files.read(files.join(folder, "logs/csv/train_loss.csv")).decode().split()
            for folder in (output, str(undisturbed))
        ]
        assert curves[0] == curves[1]
        assert json.loads(files.read(f"{output}/checkpoints/step-000020/whole.json"))["step"] == 20
