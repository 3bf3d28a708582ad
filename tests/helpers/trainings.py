"""The trainers as users start them, and what they log."""

import csv
import subprocess
import sys
import time
from pathlib import Path

from tests.helpers.commands import ROOT, Stores, free_port
from tests.helpers.processes import PATIENCE, run_group, started

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
