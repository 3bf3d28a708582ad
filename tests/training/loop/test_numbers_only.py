"""Checkpoints from strangers: numbers are read from them, nothing in them runs."""

import os
from pathlib import Path

import pytest
import torch

from pipeline.runtime.errors import UserError
from tests.helpers.commands import ROOT
from tests.training.loop.test_trainer import prepare
from training.loop import checkpoints
from training.loop.numbers_only import FORCE, OPPOSITE, numbers_only
from training.loop.trainer import Trainer


class Evil:
    """What runs when it is unpickled."""

    def __init__(self, mark: Path):
        self.mark = str(mark)

    def __reduce__(self):
        return os.mkdir, (self.mark,)


def begun(stores, output: Path, stage: str, precision: str = "fp32"):
    """A run that has stopped with a checkpoint of step 2 on the disk, and how to go on with it."""
    changes = {"deepspeed_config": str(ROOT / f"training/zero/{stage}.json"), "precision": precision}
    task, plan = prepare(stores, output, **changes)
    trainer = Trainer(task, plan)
    for batch in trainer.batches(2):
        trainer._train_on(batch)
        trainer.step += 1
    trainer._save()
    return lambda: Trainer(*prepare(stores, output, **changes))


def spoil(path: Path, mark: Path) -> None:
    torch.save(torch.load(path, weights_only=False) | {"evil": Evil(mark)}, path)


@pytest.mark.parametrize(
    ("stage", "precision"),
    [("stage0", "fp32"), *((f"stage{stage}", precision) for stage in (1, 2, 3) for precision in ("fp32", "bf16"))],
)
def test_all_that_deepspeed_writes_is_read_and_a_program_in_it_is_not_run(stores, tmp_path, stage, precision):
    go_on = begun(stores, tmp_path / "model", stage, precision)
    assert go_on().engine.global_steps == 2
    for path in sorted((tmp_path / "model/checkpoints/step-000002").rglob("*.pt")):
        sound = path.read_bytes()
        spoil(path, tmp_path / "ran")
        with pytest.raises(UserError, match=r"step-000002: there is more than numbers in this checkpoint"):
            go_on()
        assert not (tmp_path / "ran").exists(), path
        path.write_bytes(sound)
    assert go_on().engine.global_steps == 2


@pytest.mark.parametrize("stage", ["stage1", "stage3"])
def test_converting_for_another_number_of_ranks_runs_nothing_either(stores, tmp_path, stage):
    output = str(tmp_path / "model")
    begun(stores, Path(output), stage)
    mark = checkpoints.newest(output)
    assert mark is not None
    for path in sorted((tmp_path / "model/checkpoints/step-000002").rglob("*.pt")):
        sound = path.read_bytes()
        spoil(path, tmp_path / "ran")
        with pytest.raises(UserError, match=r"step-000002: there is more than numbers in this checkpoint"):
            checkpoints.as_universal(output, mark)
        assert not (tmp_path / "ran").exists(), path
        path.write_bytes(sound)
    assert checkpoints.as_universal(output, mark) == "step-000002-universal"


def test_torch_reads_as_before_afterwards(tmp_path, monkeypatch):
    monkeypatch.setenv(OPPOSITE, "1")
    with numbers_only():
        assert os.environ[FORCE] == "1"
        assert OPPOSITE not in os.environ
    assert os.environ[OPPOSITE] == "1"
    assert FORCE not in os.environ
