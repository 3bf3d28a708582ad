"""Trackers of experiments, beside TensorBoard and CSV: each is imported only when it is asked for.

What they need to know (an account, a server, offline or not) they read from their own environment variables. A run that
is continued goes on in the same place: the tracker's id of it is kept beside the logs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from pipeline.runtime.errors import ResumableError, UserError, first_line

WANDB, MLFLOW, TRACKIO = TRACKERS = ("wandb", "mlflow", "trackio")
PROJECT = "residual-ebm"


class Tracker(Protocol):
    """Where the numbers of a run go."""

    def write(self, values: Mapping[str, float], step: int) -> None: ...

    def close(self) -> None: ...


def check_installed(name: str) -> None:
    if find_spec(name) is None:
        raise UserError(f"--tracker {name}: it is not installed: pip install {name}")


def open_tracker(name: str, folder: str, run: str, settings: Mapping[str, Any]) -> Tracker:
    """Begins a run, or goes on with the one that `folder` remembers."""
    try:
        return OPENERS[name](import_module(name), Path(folder), run, settings)
    except Exception as error:  # an account, a server, a version: theirs to say
        raise ResumableError(f"--tracker {name}: it cannot be reached ({first_line(error)})") from error


class Wandb:
    def __init__(self, library: Any, folder: Path, run: str, settings: Mapping[str, Any]):
        own = remembered(folder / "wandb.id", lambda: os.urandom(4).hex())
        project = os.environ.get("WANDB_PROJECT", PROJECT)
        folder.mkdir(parents=True, exist_ok=True)
        options = {"dir": str(folder), "config": dict(settings), "resume": "allow", "id": own}
        self.run = library.init(project=project, name=run, **options)

    def write(self, values: Mapping[str, float], step: int) -> None:
        self.run.log(dict(values), step=step)

    def close(self) -> None:
        self.run.finish()


class Mlflow:
    def __init__(self, library: Any, folder: Path, run: str, settings: Mapping[str, Any]):
        self.library = library
        library.set_experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT))
        known = folder / "mlflow.id"
        if known.is_file():
            library.start_run(run_id=known.read_text())
            return
        begun = library.start_run(run_name=run)
        remembered(known, lambda: str(begun.info.run_id))
        library.log_params({name: str(value)[:500] for name, value in settings.items()})

    def write(self, values: Mapping[str, float], step: int) -> None:
        self.library.log_metrics(dict(values), step=step)

    def close(self) -> None:
        self.library.end_run()


class Trackio:
    def __init__(self, library: Any, folder: Path, run: str, settings: Mapping[str, Any]):
        self.library = library
        name = remembered(folder / "trackio.id", lambda: f"{run}-{os.urandom(3).hex()}")
        plain = {key: value if isinstance(value, str | int | float) else str(value) for key, value in settings.items()}
        project = os.environ.get("TRACKIO_PROJECT", PROJECT)
        library.init(project=project, name=name, config=plain, resume="allow", embed=False)

    def write(self, values: Mapping[str, float], step: int) -> None:
        self.library.log(dict(values), step=step)

    def close(self) -> None:
        self.library.finish()


OPENERS: dict[str, Callable[[Any, Path, str, Mapping[str, Any]], Tracker]] = {
    WANDB: Wandb,
    MLFLOW: Mlflow,
    TRACKIO: Trackio,
}


def remembered(path: Path, make: Callable[[], str]) -> str:
    """What the file says, which is made if it is not there."""
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(make())
    return path.read_text()
