"""Processes and their ends: commands that leave nothing behind, and kills of a whole tree, as a crash does."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

import psutil

from tests.helpers.warm import WarmProcess, Zygote

PATIENCE = 600  # seconds in which what does not hang does something: a loaded machine is slow, but it is not still

Process = subprocess.Popen | WarmProcess


@cache
def zygote() -> Zygote:
    return Zygote()


def start(command: list[str], cold: bool = False, **options: Any) -> Process:
    """Starts a command in a session of its own: Python from a warm process, unless its start is what is tested."""
    warm = not cold and command[0] == sys.executable and sys.platform == "linux"
    if warm and zygote().suits(options.get("env") or os.environ):
        return zygote().start(command[1:], **options)
    return subprocess.Popen(command, start_new_session=True, **options)


def hears_interrupts() -> None:
    """In a new process: what a shell starts in the background does not, and neither would its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def kill_after(command: list[str], seconds: float) -> bool:
    """Starts a command and kills it and all its descendants after a while; False if it ended before."""
    process = start(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        process.wait(timeout=seconds)
        return False
    except subprocess.TimeoutExpired:
        kill_family(process)
        return True


def kill_family(process: Process) -> None:
    """Kills a process and all its descendants, and waits until they are gone."""
    with suppress(psutil.NoSuchProcess):  # it may end by itself just now
        family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
        for member in family:
            with suppress(psutil.NoSuchProcess):
                member.kill()
        process.wait()
        await_ends(family)
    process.wait()


def await_ends(killed: list[psutil.Process]) -> None:
    """Waits until nothing of these processes is left but, at most, their exit codes."""
    for process in killed:
        with suppress(psutil.NoSuchProcess):
            while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                time.sleep(0.01)


def storm(command: list[str], kills: int, seconds: float, seed: int) -> None:
    """Kills a command at random moments of the `seconds` that it takes undisturbed, then lets it finish.

    The last one starts as it does for users, and with another order of sets and hashes than those that were killed.
    """
    rng = random.Random(seed)
    for _ in range(kills):
        kill_after(command, rng.uniform(0.1, 1.0) * seconds)
    ended = run_group(command, cold=True)
    assert ended.returncode == 0, ended.stderr


def timed(command: list[str]) -> float:
    start = time.monotonic()
    ended = run_group(command)
    assert ended.returncode == 0, ended.stderr
    return time.monotonic() - start


def run_group(command: list[str], cold: bool = False, **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end and returns what it said; however this ends, no process of its stays behind."""
    wanted = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | options
    with started(command, cold, **wanted) as process:
        output, errors = await_end(process)
        return subprocess.CompletedProcess(command, process.returncode or 0, output, errors)


def await_end(process: Process) -> tuple[Any, Any]:
    """What a process says until it ends; one that has done nothing for long hangs, and is not waited for."""
    while True:
        before = processor_seconds(process.pid)
        try:
            return process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            if abs(processor_seconds(process.pid) - before) < 1:
                raise


def await_sign(process: Process, sign: Callable[[], bool]) -> None:
    """Waits for a sign that a process is to give, as long as it lives and does something."""
    before, since = processor_seconds(process.pid), time.monotonic()
    while not sign():
        assert process.poll() is None, f"{process.args} ended with {process.returncode} before its time"
        if time.monotonic() - since > PATIENCE:
            now = processor_seconds(process.pid)
            assert abs(now - before) >= 1, f"{process.args} does nothing"
            before, since = now, time.monotonic()
        time.sleep(0.01)


def processor_seconds(leader: int) -> float:
    """What a group of processes has used of the machine so far."""
    found = 0.0
    for process in group(leader):
        with suppress(psutil.NoSuchProcess):
            found += sum(process.cpu_times()[:2])
    return found


@contextmanager
def started(command: list[str], cold: bool = False, **options: Any) -> Iterator[Process]:
    """A command and all that it starts, ranks included: one group of processes, killed when the block ends."""
    process = start(command, cold, **options)
    try:
        yield process
    finally:
        members = group(process.pid)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        await_ends(members)  # what they had open is free again


def group(leader: int) -> list[psutil.Process]:
    """The processes of a leader's group, also those whose parents have gone."""
    found = []
    for process in psutil.process_iter():
        with suppress(ProcessLookupError):
            if os.getpgid(process.pid) == leader:
                found.append(process)
    return found
