"""Says what this machine can do: engines, devices, memory, disk, versions, and which commands will work.

  python studies/doctor.py
  python studies/doctor.py --bucket gs://bucket/stores --start_engines

Nothing is installed or changed, but for a small file that is written to every --bucket and removed again. What it
prints is what a report of a bug should contain: paste it whole. It ends with 1 if something will not work (!!).
"""

import os
import platform
import re
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from pipeline.runtime import files
from pipeline.runtime.errors import exit_with, first_line
from pipeline.runtime.provenance import code_version, processor
from pipeline.runtime.settings import Settings, read_settings, setting
from studies.orchestration.study import ROOT

GOOD, BAD, NOTE = "ok", "!!", "--"
PACKAGE = "residual-ebm"
LEAST_DISK, LEAST_MEMORY = 10, 8  # GiB, for the demo and the suite
# What each extra is for: the commands that work with it.
STAGES = {
    "windows": "pipeline/make_windows.py, split_texts.py, import_texts.py, verify_store.py",
    "mining-cpu": "pipeline/mine_negatives.py, vLLM's CPU build (or --engine torch)",
    "mining-gpu": "pipeline/mine_negatives.py on GPUs",
    "dataflow": "--runner DataflowRunner",
    "training": "training/train_lm.py, train_energy.py",
    "evaluation": "evaluation/*.py: scores, bounds, grids, samples, analyses, report",
    "harness": "evaluation/run_lm_eval.py: tasks of lm-evaluation-harness",
    "human": "evaluation/human/*.py: the rating site and its votes",
    "study": "studies/run_study.py, make demo",
    "dev": "make test, make lint",
}
NOT_LOCKED = {"harness"}  # make install leaves it to who wants it
ONE_OF = ({"mining-cpu", "mining-gpu"},)
PROGRAMS = {
    "g++": "vLLM's sampler and DeepSpeed's operators are compiled with it; without one both do without, slower",
    "nvidia-smi": "a GPU's driver",
    "sbatch": "--executor slurm",
    "docker": "building the images of docker/",
    "chromium": "the tests that look at pages",
}
STARTS = {
    "torch": "import torch; print(torch.__version__, 'with CUDA' if torch.cuda.is_available() else 'on CPUs')",
    "vLLM": "import vllm; from vllm import LLM; print(vllm.__version__)",
    "DeepSpeed": "import deepspeed; print(deepspeed.__version__)",
    "Beam": "import apache_beam; print(apache_beam.__version__)",
}


@dataclass(frozen=True, kw_only=True)
class DoctorSettings(Settings):
    """What is looked at beside the machine itself."""

    bucket: tuple[str, ...] = setting(
        (), metavar="URL", help="a place that stores are to be written to: tries it. May be given several times"
    )
    start_engines: bool = setting(
        False, help="import torch, vLLM, DeepSpeed and Beam, each in a process of its own: half a minute"
    )


@dataclass(frozen=True)
class Line:
    """One thing that was looked at: how it is, and what to do about it."""

    mark: str
    what: str
    found: str


def main(arguments: Sequence[str] | None = None) -> int:
    settings = read_settings(DoctorSettings, sys.argv[1:] if arguments is None else arguments, __doc__)
    lines = list(examine(settings))
    for line in lines:
        print(f"{line.mark}  {line.what:<14} {line.found}", flush=True)
    return 1 if any(line.mark == BAD for line in lines) else 0


def examine(settings: DoctorSettings) -> Iterator[Line]:
    """Everything that there is to say, in the order in which it is read."""
    yield Line(NOTE, PACKAGE, f"{code_version()}, in {ROOT}")
    yield from machine_lines()
    yield from device_lines()
    yield from stage_lines()
    yield from version_lines()
    for name, use in PROGRAMS.items():
        place = shutil.which(name)
        yield Line(GOOD if place else NOTE, name, place or f"not here ({use})")
    if settings.start_engines:
        yield from map(start, STARTS)
    yield from map(try_bucket, settings.bucket)


def machine_lines() -> Iterator[Line]:
    python = platform.python_version()
    fits = (3, 11) <= sys.version_info[:2] < (3, 14)
    yield Line(GOOD if fits else BAD, "Python", f"{python}" + ("" if fits else ": 3.11 to 3.13 are needed"))
    yield Line(NOTE, "system", f"{platform.platform()}, {processor()}, {os.cpu_count()} cores")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    yield enough("memory", memory, LEAST_MEMORY)
    yield enough("free disk", shutil.disk_usage(os.getcwd()).free / 2**30, LEAST_DISK)


def enough(what: str, there: float, least: float) -> Line:
    few = there < least
    return Line(BAD if few else GOOD, what, f"{there:.0f} GiB" + (f": the demo needs about {least}" if few else ""))


def device_lines() -> Iterator[Line]:
    """The GPUs, with their driver: CUDA 13, which torch 2.13 is built for, needs one of 580 or newer."""
    if shutil.which("nvidia-smi") is None:
        yield Line(NOTE, "GPU", "none: CPU builds, fp32, small models")
        return
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    try:
        said = subprocess.run(query, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        yield Line(BAD, "GPU", f"nvidia-smi does not answer ({first_line(error)})")
        return
    for gpu in filter(None, said.stdout.splitlines()):
        old = int((re.findall(r"\d+", gpu.rpartition(",")[2]) or ["0"])[0]) < 580
        yield Line(BAD if old else GOOD, "GPU", gpu + (": CUDA 13 needs a driver of 580 or newer" if old else ""))
    if said.returncode:
        yield Line(BAD, "GPU", f"nvidia-smi: {(said.stderr or said.stdout).strip()[:200]}")


def stage_lines() -> Iterator[Line]:
    """Which commands have all that they need, and what to install for the others."""
    lacking = {extra: missing_of(extra) for extra in STAGES}
    for extra, use in STAGES.items():
        others = next((group - {extra} for group in ONE_OF if extra in group), set())
        if not lacking[extra]:
            yield Line(GOOD, extra, use)
        elif not any(lacking[other] == [] for other in others):
            names = ", ".join(lacking[extra][:4]) + (", …" if len(lacking[extra]) > 4 else "")
            way_out = ("" if extra in NOT_LOCKED else "make install, or ") + f"pip install '{PACKAGE}[{extra}]'"
            yield Line(NOTE, extra, f"{use}: not installed ({names}): {way_out}")


def missing_of(extra: str) -> list[str]:
    """The packages of an extra that are not installed; those of extras that it is made of among them."""
    names = []
    for requirement in metadata.requires(PACKAGE) or []:
        if re.search(rf"""extra == ['"]{re.escape(extra)}['"]""", requirement) is None:
            continue
        if "sys_platform == " in requirement and f"'{sys.platform}'" not in requirement.replace('"', "'"):
            continue
        name = re.split(r"[^A-Za-z0-9._-]", requirement.partition("[")[0], maxsplit=1)[0]
        inner = re.match(r"[^\[]*\[([^\]]*)\]", requirement.partition(";")[0])
        if name == PACKAGE and inner:
            names += missing_of(inner[1])
        elif version_of(name) is None:
            names.append(name)
    return names


def version_of(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def version_lines() -> Iterator[Line]:
    """What is installed in other versions than those that the suite ran with."""
    kind = "gpu" if version_of("vllm") else "cpu"
    lock = Path(ROOT, "requirements", f"{kind}.txt")
    if not lock.is_file():
        yield Line(NOTE, "versions", "no lock file here to compare with: this is not a checkout")
        return
    pins: dict[str, list[str]] = {}  # some packages have one for each Python
    for line in lock.read_text().splitlines():
        name, _, pin = line.partition(";")[0].strip().partition("==")
        pins.setdefault(name, []).append(pin.partition("+")[0])
    differ = [
        f"{name} {there} ({' or '.join(versions)})"
        for name, versions in pins.items()
        if (there := version_of(name)) is not None and there.partition("+")[0] not in versions
    ]
    if differ:
        names = ", ".join(differ[:8]) + (f" and {len(differ) - 8} more" if len(differ) > 8 else "")
        yield Line(NOTE, "versions", f"other than in requirements/{kind}.txt: {names}: make install brings those")
    else:
        yield Line(GOOD, "versions", f"those of requirements/{kind}.txt")


def start(name: str) -> Line:
    """Imports a library in a process of its own: what is installed may still fail to load."""
    try:
        ended = subprocess.run([sys.executable, "-c", STARTS[name]], capture_output=True, text=True, timeout=300)
    except subprocess.TimeoutExpired:
        return Line(BAD, name, "cannot be imported within five minutes")
    if ended.returncode:
        reason = (ended.stderr.strip().splitlines() or [f"it ended with {ended.returncode}"])[-1]
        absent = "No module named" in reason
        return Line(NOTE if absent else BAD, name, f"cannot be imported ({reason[:300]})")
    return Line(GOOD, name, f"{ended.stdout.strip().splitlines()[-1]}: can be imported")


def try_bucket(url: str) -> Line:
    """Writes a small file there, reads it, and removes it."""
    probe = files.join(url, f".doctor-{uuid.uuid4().hex}")
    try:
        files.put(probe, b"residual-ebm")
        read = files.read(probe)
        files.remove(probe)
    except Exception as error:  # of whichever filesystem
        return Line(BAD, url, f"cannot be written ({type(error).__name__}: {first_line(error)[:300]})")
    return Line(GOOD if read == b"residual-ebm" else BAD, url, "can be written, read and cleared")


if __name__ == "__main__":
    exit_with(main)
