"""The trainers as users start them, and what they log."""

import csv
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from tests.conftest import ROOT, Stores, free_port

PATIENCE = 600  # seconds; a loaded machine is slow, a training that hangs is not waited for forever
# At a rate at which the rounding of another order of additions stays small over twenty steps.
SMALLEST = {"train_lm": "transf-nano", "train_energy": "bit-nano --max_lr 1e-3"}


def train_command(
    stores: Stores, output: Path, flags: str = "", ranks: int = 1, stage: int = 1, script: str = "train_lm"
) -> list[str]:
    """Twenty steps of the smallest model; on one rank without the launcher, on more with it."""
    launcher = [sys.executable, "-m", "deepspeed.launcher.runner", "--num_accelerators", str(ranks)]
    launcher += ["--master_port", str(free_port())]
    given = f"--preset {SMALLEST[script]} --max_steps 20 --batch_size 24 --micro_batch_size 6 {flags}".split()
    given += ["--train", stores.train.path, "--valid", stores.valid.path, "--output", str(output)]
    given += ["--deepspeed_config", str(ROOT / f"training/zero/stage{stage}.json")]
    return [*(launcher if ranks > 1 else [sys.executable]), str(ROOT / f"training/{script}.py"), *given]


def train(*arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
    """Runs a training to its end."""
    return run_group(train_command(*arguments, **options))


def run_group(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end and returns what it said; however this ends, no process of its stays behind."""
    with started(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
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


def kill_at_step(command: list[str], output: Path, step: int) -> None:
    """Kills a training and all its processes as soon as the checkpoint of a step is whole."""
    mark = output / f"checkpoints/step-{step:06d}/whole.json"
    deadline = time.monotonic() + PATIENCE
    with started(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while not mark.exists():
            assert process.poll() is None, "it ended before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(0.01)


def losses(output: Path) -> list[float]:
    """The training loss at every step, as logged."""
    with (output / "logs/csv/train_loss.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["step", "loss"]
    assert [int(step) for step, _ in rows] == list(range(1, len(rows) + 1))
    return [float(loss) for _, loss in rows]
