"""Killing a command's whole process tree, as a crash or a preempted machine does."""

import random
import subprocess
import time

import psutil


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
