"""Installs this project with the versions that its lock files name: `make install`, and the Docker images.

  python requirements/install.py --venv .venv                          # everything, for this kind of machine
  python requirements/install.py --venv env --extras evaluation        # what one stage needs
  python requirements/install.py --system --extras mining-gpu --accelerator gpu

Needs Python and pip alone. uv, which pip installs first, does the rest: from wherever pip is configured to look, with
one exception. vLLM's CPU build wants PyTorch's CPU build, which PyPI does not have: if pip's places do not have it
either, --torch_index is asked, for that package only; if that cannot be reached, PyPI's CUDA build does as well.
"""

import argparse
import ast
import os
import platform
import re
import shutil
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent
EVERYTHING = "training,evaluation,human,study,dev"
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
# pip's settings that say where packages come from, with uv's flag for each; values are separated by white space.
PLACES = {
    "index-url": "--default-index",
    "extra-index-url": "--index",
    "find-links": "--find-links",
    "trusted-host": "--allow-insecure-host",
}
CONNECTION = {"cert": "SSL_CERT_FILE", "client-cert": "SSL_CLIENT_CERT", "proxy": "ALL_PROXY"}
STATE = ".residual-ebm"  # a file in the environment: which kind is installed there, and whether wholly


class CannotInstall(Exception):
    """One line that says what is missing and what to do."""


def main(arguments: Sequence[str] | None = None) -> int:
    if not (3, 11) <= sys.version_info < (3, 14):
        print(f"error: Python 3.11, 3.12 or 3.13 is needed, this is {platform.python_version()}: make PYTHON=...")
        return 1
    try:
        install(parse(arguments))
    except CannotInstall as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted: the same command starts the installation again", file=sys.stderr)
        return 130
    return 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--venv", metavar="DIR", help="a virtual environment, made if it is not there")
    where.add_argument("--system", action="store_true", help="the Python that runs this, as in a container")
    parser.add_argument("--extras", metavar="A,B", help=f"of pyproject.toml (default: mining-KIND,{EVERYTHING})")
    parser.add_argument("--accelerator", choices=("auto", "cpu", "gpu"), default="auto", help="(default: what is here)")
    parser.add_argument(
        "--torch_index", default=TORCH_INDEX, metavar="URL", help="an index with the CPU build of torch"
    )
    parser.add_argument(
        "--package", default=str(PROJECT), metavar="PATH", help="this project (default), or a wheel of it"
    )
    parser.add_argument("--editable", action="store_true", help="leave the project's files where they are")
    return parser.parse_args(arguments)


def install(options: argparse.Namespace) -> None:
    start = time.monotonic()
    kind, reason = kind_of_machine(options.accelerator)
    extras = f"mining-{kind},{EVERYTHING}" if options.extras is None else options.extras
    lock = HERE / f"{kind}.txt"
    say(f"{kind.upper()} builds, because {reason}")
    python = sys.executable if options.system else environment(Path(options.venv), kind)
    install_uv(python, lock)
    uv = Uv.as_pip_is_configured(python)
    flags = ["--constraint", str(lock), "--build-constraint", str(lock)]
    if kind == "cpu":
        flags += ["--override", str(HERE / "cpu-overrides.txt")]
        if any(requirement.startswith("torch==") for requirement in requirements_of(filter(None, extras.split(",")))):
            install_torch(uv, pinned(lock, "torch"), options.torch_index)
    flags += ["--editable"] if options.editable else []
    said = uv.install(
        f"the packages of requirements/{lock.name}",
        *flags,
        f"{options.package}[{extras}]" if extras else options.package,
    )
    if said is not None:
        raise CannotInstall(f"{extras} cannot be installed with the versions of requirements/{lock.name}: {said}")
    if not options.system:
        (Path(options.venv) / STATE).write_text(kind)
    say(f"{extras}, with the versions of requirements/{lock.name}: {time.monotonic() - start:.0f} s in all")


def kind_of_machine(accelerator: str) -> tuple[str, str]:
    """Which lock, and why."""
    if accelerator != "auto":
        return accelerator, "ACCELERATOR asks for them"
    if platform.system() != "Linux":
        return "cpu", f"this is {platform.system()}, for which there is no vLLM: the torch engine takes its place"
    if shutil.which("nvidia-smi") and subprocess.run(["nvidia-smi", "-L"], capture_output=True).returncode == 0:
        return "gpu", "there is an NVIDIA GPU (ACCELERATOR=cpu for the others)"
    return "cpu", "no NVIDIA GPU is here (ACCELERATOR=gpu for the others)"


def environment(folder: Path, kind: str) -> str:
    """The Python of a virtual environment: a new one, unless the one that is there is whole and of this kind."""
    state, python = folder / STATE, folder / "bin" / "python"
    if not (state.is_file() and state.read_text() == kind and python.exists()):
        made = subprocess.run([sys.executable, "-m", "venv", "--clear", folder], capture_output=True, text=True)
        if made.returncode:
            raise CannotInstall(
                f"{folder}: no virtual environment ({last_line(made.stdout + made.stderr)}): Debian's is in the "
                f"package python3-venv"
            )
    state.write_text(f"{kind}, unfinished")
    return str(python)


def install_uv(python: str, lock: Path) -> None:
    command = [
        python,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--constraint",
        str(lock),
        "uv",
    ]
    with waiting("uv"):
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR: ")]
        raise CannotInstall(f"pip cannot install uv: {errors[0] if errors else last_line(done.stderr)}")


@dataclass(frozen=True)
class Uv:
    """uv, for one environment, with pip's own places to look for packages."""

    python: str
    places: list[str]
    variables: dict[str, str]

    @classmethod
    def as_pip_is_configured(cls, python: str) -> "Uv":
        """uv does not read pip's configuration, and whoever has a mirror or a folder of wheels said so to pip."""
        listed = subprocess.run([python, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True)
        found: dict[str, str] = {}
        # Variables come first in the list, and before files in pip's eyes.
        for line in listed.stdout.splitlines():
            name, _, value = line.partition("=")
            section, _, key = name.rpartition(".")
            if section in (":env:", "global", "install"):
                found.setdefault(key, str(ast.literal_eval(value)))
        places = [
            word for key, flag in PLACES.items() for value in found.get(key, "").split() for word in (flag, value)
        ]
        if found.get("no-index", "").lower() in ("1", "true", "yes", "on"):
            places.append("--no-index")
        variables = {name: found[key] for key, name in CONNECTION.items() if found.get(key)}
        return cls(python, places, variables | os.environ)

    def install(self, what: str, *arguments: str, places: list[str] | None = None) -> str | None:
        """Installs; returns None, or why it did not work."""
        command = [self.python, "-m", "uv", "pip", "install", "--quiet", "--no-config", "--python", self.python]
        # As pip does, the best version wins, wherever it is; and files are linked from uv's cache where that can be.
        command += ["--index-strategy", "unsafe-best-match", *(self.places if places is None else places), *arguments]
        with waiting(what):
            done = subprocess.run(command, capture_output=True, text=True, env=self.variables)
        return reason_in(done.stderr) if done.returncode else None


def install_torch(uv: Uv, version: str, index: str) -> None:
    """The CPU build from pip's places or from its own index, else the build that PyPI has."""
    if platform.system() == "Linux":
        cpu = f"torch=={version}+cpu"
        if uv.install("torch's CPU build", "--no-deps", cpu) is None:
            return say(f"torch {version}+cpu, from where pip looks")
        why = uv.install(f"torch's CPU build from {index}", "--no-deps", cpu, places=["--default-index", index])
        if why is None:
            return say(f"torch {version}+cpu, from {index}")
        other = (
            f"torch {version} with CUDA's libraries, 3 GB more: the CPU build is not where pip looks, nor at {index}"
        )
    else:
        why, other = "", f"torch {version}"
    if uv.install(f"torch {version}", "--no-deps", f"torch=={version}") is not None:
        raise CannotInstall(
            f"torch {version} is not where pip looks, nor is its CPU build at {index} ({why}): make TORCH_INDEX=... "
            f"names another index"
        )
    return say(other)


def requirements_of(extras: Iterable[str]) -> Iterator[str]:
    """What extras of the project ask for, those that they include among them."""
    known = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extra in extras:
        if extra not in known:
            raise CannotInstall(f"--extras {extra}: pyproject.toml has {', '.join(known)}")
        for requirement in known[extra]:
            inner = re.fullmatch(r"residual-ebm\[(.+)\]", requirement)
            yield from requirements_of(inner[1].split(",")) if inner else [requirement]


def pinned(lock: Path, package: str) -> str:
    found = re.search(rf"^{package}==([\w.]+)", lock.read_text(), re.MULTILINE)
    if found is None:
        raise CannotInstall(f"{lock} does not name {package}: make lock")
    return found[1]


def reason_in(text: str) -> str:
    """What uv's error says, on one line: its causes, without what it advises."""
    body = re.split(r"\n\s*hint:", text.strip())[0]
    return re.sub(r"\s+", " ", re.sub(r"[×╰─▶│├]|^error:", " ", body)).strip()[:600] or "uv did not say why"


def last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no reason was given")


def say(line: str) -> None:
    print(f"install: {line}", flush=True)


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """On a terminal, what is being installed and for how long, on a line that goes away."""
    start, over = time.monotonic(), threading.Event()

    def count() -> None:
        while not over.wait(0.5):
            print(f"\rinstall: {what} … {time.monotonic() - start:.0f} s", end="", file=sys.stderr, flush=True)
        print("\r\033[K", end="", file=sys.stderr, flush=True)

    thread = threading.Thread(target=count) if sys.stderr.isatty() else None
    if thread is not None:
        thread.start()
    try:
        yield
    finally:
        over.set()
        if thread is not None:
            thread.join()


if __name__ == "__main__":
    sys.exit(main())
