"""Trackers of experiments, offline: each where it is installed, and a stand-in that only counts for what is ours."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline.runtime.errors import UserError
from tests.helpers.commands import ROOT
from training.loop import log as log_module
from training.loop.log import RunLog
from training.loop.trackers import TRACKERS, Wandb, check_installed, open_tracker, remembered
from training.train_lm import LanguageModelSettings


class Counting:
    def __init__(self) -> None:
        self.written: list[tuple[int, dict[str, float]]] = []
        self.closed = 0

    def write(self, values: Any, step: int) -> None:
        self.written.append((step, dict(values)))

    def close(self) -> None:
        self.closed += 1


def test_a_tracker_gets_what_the_logs_get_step_by_step(tmp_path, monkeypatch):
    monkeypatch.setattr(log_module.ranks, "is_first", lambda: False)  # DeepSpeed's monitor needs a run of DeepSpeed's
    log = RunLog(str(tmp_path), 0)
    log.tracker = counting = Counting()
    log.write({"train/loss": 2.0, "train/lr": 0.1}, 1)
    log.write({"train/loss": 1.0, "train/lr": 0.2}, 2)
    log.write({"valid/loss": 1.5}, 2)
    log.close()
    assert counting.written == [
        (1, {"train/loss": 2.0, "train/lr": 0.1}),
        (2, {"train/loss": 1.0, "train/lr": 0.2, "valid/loss": 1.5}),
    ]
    assert counting.closed == 1


def test_a_continued_run_goes_on_in_the_same_place(tmp_path):
    """The library is a stand-in: it notes what it was asked for."""

    asked: list[dict[str, Any]] = []
    library = SimpleNamespace(init=lambda **options: asked.append(options))
    for _ in range(2):
        Wandb(library, tmp_path / "logs", "run", {"seed": 3})
    first, second = asked
    assert first["id"] == second["id"]
    assert first["resume"] == "allow"
    assert first["config"] == {"seed": 3}
    assert remembered(tmp_path / "logs/wandb.id", lambda: "another") == first["id"]


def test_one_that_is_not_installed_is_named_with_the_way_to_it(monkeypatch):
    monkeypatch.setattr("training.loop.trackers.find_spec", lambda name: None)
    for name in TRACKERS:
        with pytest.raises(UserError, match=f"--tracker {name}: it is not installed: pip install {name}"):
            check_installed(name)
    with pytest.raises(UserError, match="pip install wandb"):
        LanguageModelSettings(preset="transf-nano", train="t", valid="v", output="o", tracker="wandb")


def test_nothing_of_them_is_imported_unless_it_is_asked_for():
    code = f"import sys; import training.train_lm, training.loop.trainer; print(set({TRACKERS!r}) & set(sys.modules))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert ended.stdout.strip() == "set()"


def offline(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their own variables, which keep them on this machine."""
    for variable, value in {
        "WANDB_MODE": "offline",
        "WANDB_SILENT": "true",
        "MLFLOW_TRACKING_URI": f"file://{folder}/mlruns",  # its smallest build has no database
        "MLFLOW_ALLOW_FILE_STORE": "true",
        "TRACKIO_DIR": str(folder / "trackio"),
    }.items():
        monkeypatch.setenv(variable, value)
    pytest.importorskip(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", TRACKERS)
def test_each_takes_numbers_offline_and_goes_on_after_a_kill(tmp_path, monkeypatch, name):
    offline(name, tmp_path, monkeypatch)
    for steps in ((1, 2), (3,)):
        tracker = open_tracker(name, str(tmp_path / "logs"), "run", {"seed": 3, "stores": [{"a": 1}]})
        for step in steps:
            tracker.write({"train/loss": 1.0 / step}, step)
        tracker.close()
    if name == "mlflow":
        import mlflow

        run = (tmp_path / "logs/mlflow.id").read_text()
        history = mlflow.MlflowClient().get_metric_history(run, "train/loss")
        assert [(point.step, point.value) for point in history] == [(1, 1.0), (2, 0.5), (3, 1 / 3)]
    else:
        assert (tmp_path / f"logs/{name}.id").is_file()
    if name == "wandb":
        assert list((tmp_path / "logs/wandb").glob("offline-run-*"))
