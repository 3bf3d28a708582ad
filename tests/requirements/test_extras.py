"""Each extra alone: a wheel of the project in an empty environment, and the smallest job of the extra's stage there.

Nothing may import what its extra does not bring. What one stage makes is the next one's input, as for users.
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.commands import ROOT
from tests.helpers.processes import run_group
from tests.helpers.project import copy_project

pytestmark = pytest.mark.slow

Command = Callable[..., str]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    project = copy_project(folder / "project")
    command = [sys.executable, "-m", "uv", "build", "--quiet", "--wheel", "--out-dir", str(folder), str(project)]
    assert run_group(command, cold=True).returncode == 0
    (found,) = folder.glob("residual_ebm-*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Command]:
    """An environment with one extra, as a function that runs a command there, far from the project's own files.

    All are made and used at the same place, one at a time, so that a library that several have is compiled once.
    """
    folder = tmp_path_factory.mktemp("extras")
    place = folder / "env"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")

    def install(extra: str) -> Command:
        script = [sys.executable, str(ROOT / "requirements/install.py"), "--venv", str(place)]
        options = ["--package", str(wheel), "--accelerator", "cpu", "--extras", extra]
        ended = run_group([*script, *options], cold=True)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        aside = place.rename(folder / f"env-{extra}")

        def run(*arguments: str | Path) -> str:
            # As on a machine with nothing else: only this environment's own commands are found.
            program, *rest = map(str, arguments)
            aside.rename(place)
            ended = run_group([str(place / "bin" / program), *rest], cwd=folder, env=environment)
            place.rename(aside)
            assert ended.returncode == 0, ended.stdout + ended.stderr
            return ended.stdout

        return run

    return install


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("results")


@pytest.fixture(scope="module")
def windows(installed: Callable[[str], Command], results: Path) -> Path:
    output = ("--split", "train", "--output", results / "windows")
    installed("windows")("residual-ebm", "make-windows", "--input", "builtin:sums:lines=60", *output)
    return results / "windows"


@pytest.fixture(scope="module")
def training(installed: Callable[[str], Command]) -> Command:
    return installed("training")


@pytest.fixture(scope="module")
def language_model(training: Command, windows: Path, results: Path) -> Path:
    flags = ("--max_steps", "2", "--batch_size", "4", "--train", windows, "--valid", windows)
    training("residual-ebm", "train-lm", "--preset", "transf-nano", *flags, "--output", results / "models/lm")
    return results / "models/lm"


@pytest.fixture(scope="module")
def negatives(installed: Callable[[str], Command], windows: Path, language_model: Path, results: Path) -> Path:
    flags = ("--windows", windows, "--generator", language_model, "--context_lengths", "5", "--negatives", "4")
    installed("mining-cpu")("residual-ebm", "mine-negatives", *flags, "--output", results / "negatives")
    manifest = json.loads((results / "negatives/manifest.json").read_text())
    assert manifest["settings"]["engine"] == "vllm"
    return results / "negatives"


@pytest.fixture(scope="module")
def energy_model(training: Command, negatives: Path, results: Path) -> Path:
    """By DeepSpeed's own launcher, which finds the script as a module of the package."""
    flags = ("--max_steps", "2", "--batch_size", "4", "--train", negatives, "--valid", negatives)
    output = ("--preset", "linear-tiny", "--output", results / "models/energy")
    training("deepspeed", "--log_level", "error", "--module", "training.train_energy", *flags, *output)
    return results / "models/energy"


def test_reading_and_checking_a_store_needs_no_extra(installed, windows):
    run = installed("")
    assert "all as written" in run("residual-ebm", "verify-store", windows)
    assert "mine-negatives" in run("residual-ebm")


def test_evaluation_needs_its_extra_alone(installed, windows, language_model, negatives, energy_model, results):
    run = installed("evaluation")
    energies = results / "energies"
    run("residual-ebm", "score", "--energy", energy_model, "--store", negatives, "--output", energies)
    bounds = ("--negatives", negatives, "--energies", energies, "--output", results / "bounds")
    run("residual-ebm", "perplexity-bounds", *bounds)
    joint = ("--energy", energy_model, "--generator", language_model, "--windows", windows, "--limit", "8")
    run(
        "residual-ebm",
        "sample-joint",
        *joint,
        "--context_length",
        "5",
        "--samples",
        "20",
        "--output",
        results / "samples",
    )
    run("residual-ebm", "analyses", "ngrams", "--samples", results / "samples", "--output", results / "ngrams")
    run("residual-ebm", "report", "--input", results, "--output", results / "report.html")
    found = json.loads((results / "bounds/bounds.json").read_text())
    assert found["joint_perplexity"]["lower"] < found["joint_perplexity"]["upper"]
    assert "Test perplexity" in (results / "report.html").read_text()


def test_a_human_study_needs_its_extra_alone(installed, results):
    run = installed("human")
    for script in ("serve", "import-votes"):
        assert "usage" in run("residual-ebm", "human", script, "--help")
    compared = ("--a", f"{results}/samples:base", "--b", f"{results}/samples:chosen", "--gold", results / "samples")
    sizes = ("--items", "6", "--qualification_items", "0", "--raters", "2")
    run("residual-ebm", "human", "prepare", *compared, *sizes, "--output", results / "study.db")
    run("residual-ebm", "human", "invite", "--study", results / "study.db", "--raters", "1")
    run("residual-ebm", "human", "export", "--study", results / "study.db", "--votes", results / "votes.csv")


def test_running_studies_needs_their_extra_alone(installed, results):
    run = installed("study")
    said = run("residual-ebm", "run-study", "--study", "demo", "--output", results / "demo", "--dry_run")
    assert len(said.splitlines()) == 30
