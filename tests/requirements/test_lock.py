"""The lock files: they agree with pyproject.toml, cover what is installed, and name no place."""

import importlib.util
import re
import tomllib
from importlib import metadata

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.helpers.commands import ROOT
from tests.helpers.project import load, locked

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NOT_LOCKED = "harness"  # which `make install` leaves to who wants it
KIND = "gpu" if importlib.util.find_spec("torchvision") else "cpu"


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_every_requirement_of_the_project_is_pinned_to_a_version_that_it_allows(kind):
    pins, other = locked(kind), {"cpu": "mining-gpu", "gpu": "mining-cpu"}[kind]
    extras = [name for name in PROJECT["optional-dependencies"] if name not in (other, NOT_LOCKED)]
    listed = [*PROJECT["dependencies"], *load("install").requirements_of(extras)]
    for requirement in map(Requirement, listed):
        if requirement.marker is None or requirement.marker.evaluate():
            assert requirement.specifier.contains(pins[canonicalize_name(requirement.name)]), requirement


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_a_lock_names_packages_and_versions_and_no_place(kind):
    lines = (ROOT / f"requirements/{kind}.txt").read_text().splitlines()
    assert lines == sorted(lines, key=lambda line: line.partition("==")[0])
    assert [line for line in lines if not re.fullmatch(r"[a-z0-9-]+==[\w.]+( ; [\w ='.()]+)?", line)] == []


def test_what_is_installed_is_what_the_lock_names():
    """All that this environment has on the project's account, down to the last dependency."""
    pins, waiting, seen = (
        locked(KIND),
        [Requirement(f"residual-ebm[mining-{KIND},training,evaluation,human,study,dev]")],
        set(),
    )
    different = {}
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if (name, *sorted(requirement.extras)) in seen or name in ("torchvision", "torchaudio", "torchcodec"):
            continue
        seen.add((name, *sorted(requirement.extras)))
        version = Version(metadata.version(name)).public
        if name != "residual-ebm" and pins.get(name) != version:
            different[name] = (version, pins.get(name))
        for inner in map(Requirement, metadata.requires(name) or []):
            wanted = [{"extra": extra} for extra in (*requirement.extras, "")]
            if inner.marker is None or any(inner.marker.evaluate(extra) for extra in wanted):
                waiting.append(inner)
    assert len(seen) > 250
    assert different == {}


def test_versions_that_differ_between_systems_have_a_line_each():
    versions = {
        ("3.11", "x86_64-manylinux_2_28"): {"a": "1", "b": "1", "c": "1"},
        ("3.12", "x86_64-manylinux_2_28"): {"a": "1", "b": "2", "c": "1"},
        ("3.12", "aarch64-apple-darwin"): {"a": "1", "b": "2", "c": "2", "d": "4"},
    }
    assert load("lock").merged(versions) == [
        "a==1",
        "b==1 ; python_version == '3.11'",
        "b==2 ; python_version == '3.12'",
        "c==1 ; python_version == '3.11' and sys_platform == 'linux' and platform_machine == 'x86_64'",
        "c==1 ; python_version == '3.12' and sys_platform == 'linux' and platform_machine == 'x86_64'",
        "c==2 ; python_version == '3.12' and sys_platform == 'darwin'",
        "d==4",
    ]
