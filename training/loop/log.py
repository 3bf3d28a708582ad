"""The numbers of a run, step by step, as TensorBoard events and CSV files (DeepSpeed's monitor), and in a tracker."""

import csv
import os
import time
from collections.abc import Callable
from itertools import groupby
from pathlib import Path

from training.loop import ranks
from training.loop.trackers import Tracker


class RunLog:
    """Writes `logs/tensorboard` and `logs/csv/NAME.csv`; a continued run goes on at its checkpoint's step."""

    def __init__(self, folder: str, step: int, tracker: Callable[[], Tracker] | None = None):
        self.monitor = self.tracker = None
        self.waiting: list[tuple[str, float, int]] = []
        self.flushed = time.monotonic()
        if not ranks.is_first():
            return
        from deepspeed.monitor.config import DeepSpeedMonitorConfig
        from deepspeed.monitor.monitor import MonitorMaster

        self.tracker = tracker() if tracker else None
        there = forget_after(Path(folder, "csv"), step)
        place = {"enabled": True, "output_path": folder}
        self.monitor = MonitorMaster(
            DeepSpeedMonitorConfig(
                tensorboard={**place, "job_name": "tensorboard"},
                csv_monitor={**place, "job_name": "csv"},
            )
        )
        self.monitor.csv_monitor.filenames.extend(there)  # these have their header

    def write(self, values: dict[str, float], step: int) -> None:
        """Notes numbers of a step; they reach the disk within a second or so, not step by step, which would cost."""
        self.waiting.extend((name, value, step) for name, value in values.items())
        if time.monotonic() - self.flushed > 1:
            self.flush()

    def flush(self) -> None:
        if self.monitor is not None and self.waiting:
            self.monitor.write_events(self.waiting)
        if self.tracker is not None:
            for step, values in groupby(self.waiting, key=lambda event: event[2]):
                self.tracker.write({name: value for name, value, _ in values}, step)
        self.waiting, self.flushed = [], time.monotonic()

    def close(self) -> None:
        self.flush()
        if self.tracker is not None:
            self.tracker.close()
            self.tracker = None


def forget_after(folder: Path, step: int) -> list[str]:
    """Drops what a killed run logged after its last checkpoint: those steps are made again. Returns the logs' names."""
    names = []
    for path in sorted(folder.glob("*.csv")) if folder.is_dir() else []:
        with path.open(newline="") as file:
            header, *rows = list(csv.reader(file)) or [[]]
        kept = [row for row in rows if len(row) == len(header) and row[0].isdigit() and int(row[0]) <= step]
        temporary = path.with_suffix(".tmp")
        with temporary.open("w", newline="") as file:
            csv.writer(file).writerows([header, *kept])
        os.replace(temporary, path)
        names.append(path.stem)
    return names
