"""The images cannot be built here; what can be checked is that they agree with pyproject.toml and with the tree."""

import re
import shlex
import tomllib

import pytest

from tests.conftest import ROOT

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
    assert {name.partition(".")[0] for name in PROJECT["tool"]["setuptools"]["packages"]} <= set(sources)


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.stem)
def test_versions_are_those_of_the_project(path):
    text = path.read_text()
    (beam,) = {
        requirement.partition("==")[2] for requirement in EXTRAS["windows"] if requirement.startswith("apache-beam")
    }
    assert set(re.findall(r"apache-beam\[gcp\]==([\d.]+)|beam_python[\d.]+_sdk:([\d.]+)", text)) <= {
        (beam, ""),
        ("", beam),
    }
    extras = set(re.findall(r"'\.\[([\w,-]+)\]'", text))
    assert extras
    assert {name for names in extras for name in names.split(",")} <= set(EXTRAS)
    pythons = set(re.findall(r"python:?(3\.\d+)", text))
    assert pythons == {"3.11"}
    pins = re.findall(r"[\w-]+==[\d.]+", text)
    assert all(pin.startswith("apache-beam") or pin.endswith(beam) for pin in pins)


@pytest.mark.parametrize("name", ["mining", "mining-cpu"])
def test_mining_images_start_beams_worker(name):
    assert instructions(ROOT / f"docker/{name}.Dockerfile")[-1] == ["ENTRYPOINT", "[/opt/apache/beam/boot]"]


def test_the_readme_builds_with_files_that_exist_and_the_projects_version():
    text = (ROOT / "docker/README.md").read_text()
    assert set(re.findall(r"docker/([\w-]+)\.Dockerfile", text)) <= {path.stem for path in DOCKERFILES}
    assert set(re.findall(r"/[\w-]+:(\d+\.\d+\.\d+)", text)) == {PROJECT["project"]["version"]}
    for script in re.findall(r"(?:pipeline|training)/\w+\.py", text):
        assert (ROOT / script).exists()
