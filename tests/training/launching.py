"""The trainers as users start them, and what they log."""

import csv
import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT, Stores, free_port

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
    return subprocess.run(train_command(*arguments, **options), capture_output=True, text=True, timeout=300)


def losses(output: Path) -> list[float]:
    """The training loss at every step, as logged."""
    with (output / "logs/csv/train_loss.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["step", "loss"]
    assert [int(step) for step, _ in rows] == list(range(1, len(rows) + 1))
    return [float(loss) for _, loss in rows]
