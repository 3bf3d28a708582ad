"""A live display of work that other processes do: workers leave notes in the work folder, one bar or log reads them."""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tqdm import tqdm

from pipeline.runtime import files

NOTES = "progress"
SECONDS = 0.5
LINE_SECONDS = 60.0


def note(work: str, what: str, worker: int | str, amount: int) -> None:
    """Leaves word of how much a worker has done; on local filesystems only, where looking is cheap."""
    if files.is_local(work):
        folder = os.path.join(files.resolve(work)[1], NOTES, what)
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, str(worker)), "w") as file:
            file.write(str(amount))


def noted(work: str, what: str) -> int:
    """The sum of what all workers noted."""
    folder = os.path.join(files.resolve(work)[1], NOTES, what)
    amounts = []
    for name in os.listdir(folder) if os.path.isdir(folder) else []:
        with open(os.path.join(folder, name)) as file:
            amounts.append(int(file.read() or 0))  # empty while it is being written
    return sum(amounts)


@contextmanager
def showing(
    poll: Callable[[], tuple[str, int, int | None]],
    unit: str,
    on: bool = True,
    details: Callable[[], str] = lambda: "",
) -> Iterator[None]:
    """Shows `poll()`, (what is being done, how much is done, of how much), and `details()` until the block ends.

    A bar on a terminal; elsewhere a line at once and then one a minute, none with RESIDUAL_EBM_PROGRESS=0.
    """
    with tqdm(unit=unit, unit_scale=True, disable=None if on else True, leave=False, dynamic_ncols=True) as bar:
        lines = Lines(unit) if bar.disable and on and wants_lines() else None
        if bar.disable and lines is None:
            yield
            return
        ended = threading.Event()

        def watch() -> None:
            while not ended.wait(SECONDS):
                try:
                    (stage, done, total), more = poll(), details()
                except OSError:
                    continue  # a folder that a worker is just removing
                if lines is not None:
                    lines.show(stage, done, total, more)
                    continue
                if stage != bar.desc:
                    bar.reset(total)
                    bar.set_description_str(stage, refresh=False)
                bar.total, bar.n = total, done
                bar.set_postfix_str(more, refresh=False)
                bar.refresh()

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()


def wants_lines() -> bool:
    """Whether logs are to say how far work is, where there is no terminal."""
    return os.environ.get("RESIDUAL_EBM_PROGRESS") != "0"


class Bar(tqdm):
    """tqdm's bar of work in this process, which becomes lines where there is no terminal: see `showing`.

    `hidden` shows nothing anywhere, for all ranks but the first.
    """

    def __init__(self, *given: Any, hidden: bool = False, **options: Any):
        super().__init__(*given, **{"dynamic_ncols": True} | options, disable=True if hidden else None)
        wanted = self.disable and not hidden and wants_lines()
        self.lines = Lines(str(options.get("unit", ""))) if wanted else None
        self.stage, self.done, self.more = str(options.get("desc") or "at work"), int(options.get("initial", 0)), ""
        self._show()

    def __iter__(self) -> Iterator[Any]:
        if self.lines is None:
            yield from super().__iter__()
            return
        for item in self.iterable:
            yield item
            self.update()

    def update(self, n: float | None = 1) -> bool | None:
        self.done += int(n or 0)
        self._show()
        return super().update(n)

    def set_description(self, desc: str | None = None, refresh: bool | None = True) -> None:
        if not self.disable:
            super().set_description(desc, refresh)

    def set_postfix(self, ordered_dict: Any = None, refresh: bool | None = True, **more: Any) -> None:
        self.more = ", ".join(f"{name} {value}" for name, value in (dict(ordered_dict or {}) | more).items())
        if not self.disable:
            super().set_postfix(ordered_dict, refresh, **more)

    @property
    def rate(self) -> float | None:
        """A second, of late on a terminal, of the whole elsewhere; none before it is known."""
        return self.format_dict["rate"] if self.lines is None else self.lines.rate(self.done)

    def _show(self) -> None:
        if self.lines is not None:
            self.lines.show(self.stage, self.done, None if self.total is None else int(self.total), self.more)


class Lines:
    """Progress as plain lines on standard error, for logs: one at once, one whenever something new begins, and then
    one a minute."""

    def __init__(self, unit: str, every: float = LINE_SECONDS):
        self.unit, self.every = unit.strip(), every
        self.stage, self.next = "", 0.0
        self.begun = (0.0, 0)  # when the stage began, and what was done then

    def show(self, stage: str, done: int, total: int | None, more: str = "") -> None:
        now = time.monotonic()
        if stage != self.stage:
            self.stage, self.next, self.begun = stage, now, (now, done)
        if now >= self.next:
            self.next = now + self.every
            print(self.line(now, done, total, more), file=sys.stderr, flush=True)

    def rate(self, done: int) -> float | None:
        """What was done a second since the stage began."""
        seconds, made = time.monotonic() - self.begun[0], done - self.begun[1]
        return made / seconds if made > 0 and seconds > 0 else None

    def line(self, now: float, done: int, total: int | None, more: str = "") -> str:
        amount = f"{done:,}" + (f" of {total:,}" if total else "") + (f" {self.unit}" if self.unit else "")
        parts = [self.stage + (f": {amount}" if total or done else "")]
        seconds, made = now - self.begun[0], done - self.begun[1]
        if total and made > 0 and seconds > 0 and " left" not in more:
            parts.append(f"{in_time(seconds * (total - done) / made)} left")
        return ", ".join([*parts, *([more] if more else [])])


def in_time(seconds: float) -> str:
    """`45 s`, `12 min`, `3 h 5 min`."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
