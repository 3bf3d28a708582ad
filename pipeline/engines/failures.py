"""Whose fault a failure is: the device's or its driver's, or something that another attempt may mend."""

import logging
import os
import re
import subprocess

from pipeline.runtime.errors import ResumableError, first_line

BROKEN_DEVICE = 70  # the exit code of a process whose device is broken

# What CUDA, its libraries and vLLM say when nothing more can be had from a device, whoever raises it.
BROKEN = re.compile(
    r"CUDA error|CUDA driver|uncorrectable|\bECC\b|device-side assert|illegal memory access|unspecified launch failure"
    r"|cuBLAS|CUBLAS_STATUS|CUDNN_STATUS|NCCL error|\bXid\b|GPU is lost|no CUDA-capable device",
    re.IGNORECASE,
)
BROKEN_KINDS = {"AcceleratorError", "EngineDeadError"}  # torch's and vLLM's, by name: neither need be installed


def is_broken_device(error: BaseException) -> bool:
    """Whether a device or an engine is broken for good: in this process nothing on it will work again."""
    import torch

    while True:
        if isinstance(error, torch.OutOfMemoryError):
            return False  # another engine, or a smaller shard, may well fit
        if type(error).__name__ in BROKEN_KINDS or BROKEN.search(str(error)):
            return True
        if (cause := error.__cause__ or error.__context__) is None:
            return False
        error = cause


def end_if_broken(error: Exception, replaced: bool) -> None:
    """A broken device takes its process with it where a runner has that `replaced`; elsewhere it ends the run."""
    if not is_broken_device(error):
        return
    logging.getLogger(__name__).critical("ending this worker, whose device is broken: %s", error)
    if replaced:
        os._exit(BROKEN_DEVICE)
    raise ResumableError(f"the device or its engine is broken ({first_line(error)})") from error


def missing_accelerator(wanted: str) -> str | None:
    """Why there is no device where one was asked for; None where there is one."""
    import torch

    if torch.cuda.is_available():
        return None
    built = f"PyTorch {torch.__version__} is built for CUDA {torch.version.cuda or '(none: a CPU build)'}"
    return (
        f"--accelerator {wanted}: this worker sees no CUDA device: {built}, the driver is {driver_version()}: CUDA 13 "
        f"needs a driver of 580 or newer; leave the option out to run on CPUs"
    )


def driver_version() -> str:
    """What nvidia-smi says of the driver, or that there is none."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return "not there (no nvidia-smi)"
    return said.stdout.strip().partition("\n")[0] or f"not at work ({said.stderr.strip()[:200]})"
