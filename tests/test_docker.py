"""The images cannot be built here; what can be checked is that they agree with pyproject.toml and with the tree."""

import re
import shlex
import tomllib

import pytest

from tests.helpers.commands import ROOT
from tests.helpers.project import load, locked

DOCKERFILES = sorted((ROOT / "docker").glob("*.Dockerfile"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = PROJECT["project"]["optional-dependencies"]


def instructions(path) -> list[list[str]]:
    text = re.sub(r"\\\n", " ", path.read_text())
    return [shlex.split(line) for line in text.splitlines() if line.strip() and not line.startswith("#")]


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


@pytest.mark.parametrize("name", ["mining", "mining-cpu"])
def test_mining_images_start_beams_worker(name):
    assert instructions(ROOT / f"docker/{name}.Dockerfile")[-1] == ["ENTRYPOINT", "[/opt/apache/beam/boot]"]


def test_the_readme_builds_with_files_that_exist_and_the_projects_version():
    text = (ROOT / "docker/README.md").read_text()
    assert set(re.findall(r"docker/([\w-]+)\.Dockerfile", text)) <= {path.stem for path in DOCKERFILES}
    assert set(re.findall(r"/[\w-]+:(\d+\.\d+\.\d+)", text)) == {PROJECT["project"]["version"]}
    for script in re.findall(r"(?:pipeline|training)/\w+\.py", text):
        assert (ROOT / script).exists()
