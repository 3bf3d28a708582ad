"""The trainers as users start them, and what they log."""

import csv
import subprocess
import sys
from pathlib import Path

from tests.helpers.commands import ROOT, Stores, free_port
from tests.helpers.processes import await_sign, run_group, started

# At a rate at which the rounding of another order of additions stays small over twenty steps.
SMALLEST = {"train_lm": "transf-nano", "train_energy": "bit-nano --max_lr 1e-3"}


def train_command(
    stores: Stores,
    output: Path,
    flags: str = "",
    ranks: int = 1,
    stage: int = 1,
    script: str = "train_lm",
    launcher: bool = False,
) -> list[str]:
    """Twenty steps of the smallest model; several ranks by DeepSpeed's own launcher, or by a quicker one."""
    port = str(free_port())
    if launcher:
        start = [
            str(Path(sys.executable).parent / "deepspeed"),
            "--num_accelerators",
            str(ranks),
            "--master_port",
            port,
        ]
    elif ranks > 1:
        start = [sys.executable, str(ROOT / "tests/helpers/ranks.py"), str(ranks), port]
    else:
        start = [sys.executable]
    given = f"--preset {SMALLEST[script]} --max_steps 20 --batch_size 24 --micro_batch_size 6 {flags}".split()
    given += ["--train", stores.train.path, "--valid", stores.valid.path, "--output", str(output)]
    given += ["--deepspeed_config", str(ROOT / f"training/zero/stage{stage}.json")]
    return [*start, str(ROOT / f"training/{script}.py"), *given]


def train(*arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
    """Runs a training to its end."""
    return run_group(train_command(*arguments, **options))


def kill_at_step(command: list[str], output: Path, step: int) -> None:
    """Kills a training and all its processes as soon as the checkpoint of a step is whole."""
    mark = output / f"checkpoints/step-{step:06d}/whole.json"
    with started(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        await_sign(process, mark.exists)


def losses(output: Path) -> list[float]:
    """The training loss at every step, as logged."""
    with (output / "logs/csv/train_loss.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["step", "loss"]
    assert [int(step) for step, _ in rows] == list(range(1, len(rows) + 1))
    return [float(loss) for _, loss in rows]
