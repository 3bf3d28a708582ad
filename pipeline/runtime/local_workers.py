"""The worker processes of a Beam graph on this machine: they end with their run, and it ends with them.

Beam waits for its workers, whatever happens: for one that knows nothing of a signal to the run's first process, and for
the answer of one that was killed. So a folder stands for the run: workers look for it, and end when it is gone.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from grpc import RpcError  # type: ignore[import-untyped]

from pipeline.runtime.errors import ResumableError

OF_A_WORKER = "run_worker"  # Beam's name for the threads that each wait for a worker's process
DEATH = signal.SIGUSR1


@contextmanager
def ending_together(end_workers: Callable[[], None]) -> Iterator[None]:
    """Ends all workers before SIGTERM and SIGINT do what they do; and the block, if a worker dies."""
    if threading.current_thread() is not threading.main_thread():  # signals are somebody else's
        yield
        return
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, DEATH)}
    hook = threading.excepthook

    def handle(number: int, frame: FrameType | None) -> None:
        end_workers()
        if number == DEATH:
            raise ResumableError("a worker process died, perhaps for want of memory")
        then = kept[signal.Signals(number)]
        if callable(then):
            then(number, frame)

    def notice(found: threading.ExceptHookArgs) -> None:
        """Of a thread that fails: one whose worker died, or that spoke with such a one, says nothing itself."""
        if found.thread is not None and found.thread.name == OF_A_WORKER:
            os.kill(os.getpid(), DEATH)
        elif found.exc_type is not RpcError:
            hook(found)

    for number, handler in kept.items():
        if number == DEATH or callable(handler):
            signal.signal(number, handle)
    threading.excepthook = notice
    try:
        yield
    finally:
        threading.excepthook = hook
        for number, handler in kept.items():
            if signal.getsignal(number) is handle:
                signal.signal(number, handler)
