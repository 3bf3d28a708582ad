"""Processes and their ends: commands that leave nothing behind, and kills of a whole tree, as a crash does."""

import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psutil

PATIENCE = 600  # seconds; a loaded machine is slow, what hangs is not waited for forever


def kill_after(command: list[str], seconds: float) -> bool:
    """Starts a command and kills it and all its descendants after a while; False if it ended before."""
    process = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        process.wait(timeout=seconds)
        return False
    except subprocess.TimeoutExpired:
        kill_family(process)
        return True


def kill_family(process: subprocess.Popen) -> None:
    """Kills a process and all its descendants, and waits until they are gone."""
    family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    for member in family:
        member.kill()
    psutil.wait_procs(family, timeout=10)
    process.wait()


def storm(command: list[str], kills: int, seconds: float, seed: int) -> None:
    """Kills a command at random moments of the `seconds` that it takes undisturbed, then lets it finish."""
    rng = random.Random(seed)
    for _ in range(kills):
        kill_after(command, rng.uniform(0.1, 1.0) * seconds)
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


def timed(command: list[str]) -> float:
    start = time.monotonic()
    subprocess.run(command, check=True, capture_output=True)
    return time.monotonic() - start


def run_group(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end and returns what it said; however this ends, no process of its stays behind."""
    wanted = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | options
    with started(command, **wanted) as process:
        output, errors = process.communicate(timeout=PATIENCE)
        return subprocess.CompletedProcess(command, process.returncode, output, errors)


@contextmanager
def started(command: list[str], **options: Any) -> Iterator[subprocess.Popen]:
    """A command and all that it starts, ranks included: one group of processes, killed when the block ends."""
    process = subprocess.Popen(command, start_new_session=True, **options)
    try:
        yield process
    finally:
        members = group(process.pid)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        psutil.wait_procs(members, timeout=10)  # what they had open is free again


def group(leader: int) -> list[psutil.Process]:
    """The processes that a leader started, also those whose parents have gone."""
    found = []
    for process in psutil.process_iter():
        with suppress(ProcessLookupError):
            if os.getpgid(process.pid) == leader and process.pid != leader:
                found.append(process)
    return found
