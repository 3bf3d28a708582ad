"""The images cannot be built here; what can be checked is that they agree with pyproject.toml and with the tree."""

import re
import shlex
import tomllib
from fnmatch import fnmatch
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

import pytest

from evaluation.score import ScoreSettings
from pipeline.mining.settings import MiningSettings
from pipeline.runtime.beam import beam_options
from pipeline.runtime.settings import read_known_settings
from tests.helpers.commands import ROOT
from tests.helpers.project import load, locked

DOCKERFILES = sorted((ROOT / "docker").glob("*.Dockerfile"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = PROJECT["project"]["optional-dependencies"]


README = (ROOT / "docker/README.md").read_text()
WORKERS = ["mining", "mining-cpu", "evaluation"]  # which Dataflow starts


def instructions(path) -> list[list[str]]:
    text = re.sub(r"\\\n", " ", path.read_text())
    return [shlex.split(line) for line in text.splitlines() if line.strip() and not line.startswith("#")]


def extras_of(lines: list[list[str]]) -> set[str]:
    (install,) = [line for line in lines if "requirements/install.py" in line]
    return set(load("install").parse(install[3:]).extras.split(","))


def test_there_is_an_image_for_every_stage():
    assert [path.stem for path in DOCKERFILES] == ["evaluation", "mining-cpu", "mining", "training"]


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.stem)
def test_everything_that_is_copied_exists_and_all_packages_are(path):
    sources = [
        word for line in instructions(path) if line[0] == "COPY" and "--from" not in line[1] for word in line[1:-1]
    ]
    assert all((ROOT / source).exists() for source in sources)
    packages = {name.rstrip("*") for name in PROJECT["tool"]["setuptools"]["packages"]["find"]["include"]}
    assert packages | {"requirements"} <= set(sources)


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.stem)
def test_images_install_from_the_lock_that_the_suite_ran_with(path):
    """By the installer alone, with extras that exist; nothing else names a version, but for Beam's own worker."""
    text = path.read_text()
    (install,) = [line for line in instructions(path) if "requirements/install.py" in line]
    assert install[:4] == ["RUN", "python", "requirements/install.py", "--system"]
    options = load("install").parse(install[3:])
    assert set(options.extras.split(",")) <= set(EXTRAS)
    assert (ROOT / f"requirements/{options.accelerator}.txt").exists()
    assert not re.search(r"pip install|==", text)
    assert set(re.findall(r"beam_python[\d.]+_sdk:([\d.]+)", text)) <= {locked(options.accelerator)["apache-beam"]}
    assert set(re.findall(r"python:?(3\.\d+)", text)) == {"3.11"}


@pytest.mark.parametrize("name", WORKERS)
def test_images_of_workers_start_beams_worker_and_can_reach_buckets(name):
    lines = instructions(ROOT / f"docker/{name}.Dockerfile")
    assert lines[-1] == ["ENTRYPOINT", "[/opt/apache/beam/boot]"]
    assert ["/opt/apache/beam", "/opt/apache/beam"] in [line[-2:] for line in lines if line[0] == "COPY"]
    assert "dataflow" in extras_of(lines)
    assert "apache-beam" in " ".join(EXTRAS["dataflow"])


def test_what_a_stage_needs_is_in_its_image():
    installed = {path.stem: extras_of(instructions(path)) for path in DOCKERFILES}
    for image, extra in (("mining", "mining-gpu"), ("mining-cpu", "mining-cpu"), ("training", "training")):
        assert extra in installed[image]
    assert {"evaluation", "windows"} <= installed["evaluation"]


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.stem)
def test_nobody_has_to_be_root(path):
    """There is a user, and a home that all can write to. Beam's worker alone starts as root, as Dataflow wants."""
    lines = instructions(path)
    (made,) = [place for place, line in enumerate(lines) if line[:2] == ["RUN", "useradd"]]
    assert lines[made][-3:] == ["chmod", "1777", "/home/ebm"]
    assert lines[made + 1] == ["ENV", "HOME=/home/ebm", "USER=ebm"]
    (installed,) = [place for place, line in enumerate(lines) if "requirements/install.py" in line]
    assert installed < made  # by root, or it could not be
    users = [line[1] for line in lines if line[0] == "USER"]
    assert users == ([] if path.stem in WORKERS else ["ebm"])


def test_vllm_is_told_to_sample_with_what_it_would_take_anyway():
    """The variable is one that this vLLM reads; its other sampler has no seeds a request, and compiles what it runs."""
    said = [word for line in instructions(ROOT / "docker/mining.Dockerfile") if line[0] == "ENV" for word in line[1:]]
    assert "VLLM_USE_FLASHINFER_SAMPLER=0" in said
    vllm = find_spec("vllm")
    if vllm is None or vllm.origin is None:
        pytest.skip("vLLM has no build for this machine")
    source = (Path(vllm.origin).parent / "v1/sample/ops/topk_topp_sampler.py").read_text()
    assert "if not envs.VLLM_USE_FLASHINFER_SAMPLER:" in source
    assert "if (k is None and p is None) or generators:" in source


def test_nothing_goes_to_the_builder_but_what_is_copied():
    patterns = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    for path in DOCKERFILES:
        for line in instructions(path):
            if line[0] == "COPY" and "--from" not in line[1]:
                assert [word for word in line[1:-1] if is_ignored(word, patterns)] == []
    for name in (".git", ".venv", "demo", "stores", "tests", "pipeline/__pycache__", "evaluation/human/__pycache__"):
        assert is_ignored(name, patterns), name
    assert is_ignored("residual_ebm.egg-info", patterns)


def is_ignored(name: str, patterns: list[str]) -> bool:
    """As Docker reads its file: the last pattern that fits a path, or a folder above it, decides."""
    above = [str(folder) for folder in (Path(name), *Path(name).parents) if str(folder) != "."]
    ignored = False
    for pattern in patterns:
        wanted = pattern.removeprefix("!")
        fits = [
            one
            for one in above
            if fnmatch(Path(one).name if wanted.startswith("**/") else one, wanted.removeprefix("**/"))
        ]
        if fits:
            ignored = not pattern.startswith("!")
    return ignored


def test_several_machines_need_no_ssh():
    """torchrun is torch's; the training image has nothing to log in with or to."""
    (torchrun,) = entry_points(group="console_scripts", name="torchrun")
    assert torchrun.dist is not None
    assert torchrun.dist.name == "torch"
    text = (ROOT / "docker/training.Dockerfile").read_text()
    assert "openssh" not in text
    assert "pdsh" not in text
    assert "--entrypoint torchrun" in README


@pytest.mark.parametrize(
    ("script", "settings"), [("pipeline/mine_negatives.py", MiningSettings), ("evaluation/score.py", ScoreSettings)]
)
def test_the_readmes_fleets_have_gpus_where_networks_run_and_nowhere_else(script, settings):
    (command,) = [
        block for block in re.findall(r"```\n(.*?)```", README, re.DOTALL) if block.startswith(f"python {script}")
    ]
    given, rest = read_known_settings(settings, shlex.split(command.replace("\\\n", " "))[2:], None)
    parts = dict(part.split(":", 1) for part in given.accelerator.split(";"))
    assert parts.keys() == {"type", "count", "machine_type", "install-nvidia-driver"}
    options = beam_options(rest).get_all_options()
    assert options["machine_type"] != parts["machine_type"]
    image = "mining" if script.startswith("pipeline") else "evaluation"
    assert options["sdk_container_image"] == f"$REGISTRY/{image}:{PROJECT['project']['version']}"
    assert image in WORKERS


def test_the_readme_builds_with_files_that_exist_and_the_projects_version():
    text = README
    assert set(re.findall(r"docker/([\w-]+)\.Dockerfile", text)) <= {path.stem for path in DOCKERFILES}
    assert set(re.findall(r"/[\w-]+:(\d+\.\d+\.\d+)", text)) == {PROJECT["project"]["version"]}
    for script in re.findall(r"(?:pipeline|training|evaluation)/\w+\.py", text):
        assert (ROOT / script).exists()
