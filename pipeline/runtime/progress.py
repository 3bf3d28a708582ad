"""A live display of work that other processes do: workers leave notes in the work folder, one bar reads them."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tqdm import tqdm

from pipeline.runtime import files

NOTES = "progress"
SECONDS = 0.5


def note(work: str, what: str, worker: int, amount: int) -> None:
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

    Nothing is shown where standard error is not a terminal.
    """
    with tqdm(unit=unit, unit_scale=True, disable=None if on else True, leave=False, dynamic_ncols=True) as bar:
        if bar.disable:
            yield
            return
        ended = threading.Event()

        def watch() -> None:
            while not ended.wait(SECONDS):
                try:
                    (stage, done, total), more = poll(), details()
                except OSError:
                    continue  # a folder that a worker is just removing
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
