"""Who may write a store: one run, or the parts of one, which may be many."""

import errno
import fcntl
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import IO, Any

from pipeline.runtime import files
from pipeline.runtime.errors import ResumableError, UserError

LEASE = 60.0  # seconds; what a killed run on an object store makes the next one wait at most
SETTLE = 1.0  # seconds after which the last of several who wrote a lease at once is seen by all


@contextmanager
def writing(store: str, run: str | None = None) -> Iterator[None]:
    """Holds a store for this process alone; a second writer's error names it.

    On local filesystems the operating system drops the lock with the process, so a killed run never blocks the next.
    Elsewhere it is a lease that is renewed while the process lives, and expires when it does not. A `run` whose workers
    are on other machines has a lease wherever the store is: they renew it too (`renewing`), so that it is held for as
    long as they work, whatever becomes of the process that started them.
    """
    with ExitStack() as held:
        if files.is_local(store):
            held.enter_context(_locked(store, fcntl.LOCK_EX))
            _check_free(store)
        if run is not None or not files.is_local(store):
            held.enter_context(_leased(store, run or uuid.uuid4().hex))
        yield


@contextmanager
def sharing(store: str) -> Iterator[None]:
    """Holds a store beside other parts of the same run: only those who want it alone are kept out, or keep it out."""
    with ExitStack() as held:
        if files.is_local(store):
            held.enter_context(_locked(store, fcntl.LOCK_SH))
            _check_free(store)
        else:
            _check_free(store)
            held.enter_context(_renewed(files.join(_parts_of(store), f"{uuid.uuid4().hex}.lease"), "a part"))
        yield


@contextmanager
def renewing(stores: Sequence[str], run: str) -> Iterator[None]:
    """Keeps a run's leases from ending while a worker of its works; ends the work if somebody else has taken over."""

    def renew(store: str) -> None:
        if (there := _read_lease(_lease_of(store))) is not None and there["token"] != run and _holds(there):
            raise ResumableError(f"{store}: {there['holder']} has taken over from this run, which stops here")
        _write_lease(_lease_of(store), run, f"a worker of run {run[:8]}, {_myself()},")

    with ExitStack() as held:
        for store in stores:
            renew(store)
            held.enter_context(_repeating(partial(renew, store)))
        yield


@contextmanager
def _locked(store: str, mode: int) -> Iterator[None]:
    folder, name = os.path.split(files.identity(store))
    path = os.path.join(folder, f".{name}.lock")  # beside the store, so that a refused run leaves no folder behind
    made = _missing_folders(folder)
    try:
        os.makedirs(folder, exist_ok=True)
        open(path, "a").close()
    except OSError as error:
        if error.errno not in (errno.EROFS, errno.EACCES):
            raise
        yield  # nothing can be written here, by nobody
        return
    while True:
        with open(path, "a+") as file:
            if not _taken(file, mode):
                file.seek(0)
                holder = file.read().strip() or "another process"
                raise UserError(f"{store}: {holder} is writing it: wait until it ends, or end it")
            if not _is_at(path, file.fileno()):
                continue  # its last holder removed the file between our open and our lock
            file.truncate(0)
            file.write(_myself())
            file.flush()
            try:
                yield
            finally:
                if mode == fcntl.LOCK_EX or _taken(file, fcntl.LOCK_EX):  # the last of those who shared it
                    os.unlink(path)
                    for empty in made:
                        with suppress(OSError):  # not empty: the store was made
                            os.rmdir(empty)
            return


def _taken(file: IO[str], mode: int) -> bool:
    try:
        fcntl.flock(file, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def _leased(store: str, token: str) -> Iterator[None]:
    url = _lease_of(store)
    _check_free(store)
    for name in files.names_in(_parts_of(store)):
        _check_lease(store, files.join(_parts_of(store), name))
    with _renewed(url, "", token):
        time.sleep(SETTLE)
        if (there := _read_lease(url)) is None or there["token"] != token:
            raise UserError(
                f"{store}: {there['holder'] if there else 'another process'} began to write it at the same time"
            )
        yield


@contextmanager
def _renewed(url: str, role: str, token: str | None = None) -> Iterator[None]:
    """A lease that is ours until the block ends; one that somebody else has overwritten stays theirs."""
    token = token or uuid.uuid4().hex
    holder = f"{role}, {_myself()}" if role else _myself()
    _write_lease(url, token, holder)

    def renew() -> None:
        if (there := _read_lease(url)) is None or there["token"] == token:
            _write_lease(url, token, holder)

    try:
        with _repeating(renew):
            yield
    finally:
        if (there := _read_lease(url)) is not None and there["token"] == token:
            files.remove(url)


@contextmanager
def _repeating(renew: Callable[[], None]) -> Iterator[None]:
    """Renews a lease three times as often as it must be: a passing failure does no harm."""
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(LEASE / 3):
            with suppress(OSError, UserError):  # who has lost it learns of that before the next shard
                renew()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _check_free(store: str) -> None:
    _check_lease(store, _lease_of(store))


def _check_lease(store: str, url: str) -> None:
    if (there := _read_lease(url)) is not None and _holds(there):
        left = there["until"] - time.time()
        raise UserError(
            f"{store}: {there['holder']} is writing it: wait until it ends (at most {left:.0f} s if it died)"
        )


def _holds(lease: dict[str, Any]) -> bool:
    return bool(lease["until"] > time.time())


def _lease_of(store: str) -> str:
    return f"{_beside(store)}.lease"


def _parts_of(store: str) -> str:
    return f"{_beside(store)}.parts"


def _beside(store: str) -> str:
    folder, _, name = (files.identity(store) if files.is_local(store) else store.rstrip("/")).rpartition("/")
    return f"{folder}/.{name}"


def _write_lease(url: str, token: str, holder: str) -> None:
    lease = {"token": token, "holder": holder, "until": time.time() + LEASE}
    files.put(url, json.dumps(lease).encode())


def _read_lease(url: str) -> dict[str, Any] | None:
    try:
        lease = json.loads(files.read(url))
        return {"token": str(lease["token"]), "holder": str(lease["holder"]), "until": float(lease["until"])}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _myself() -> str:
    return f"process {os.getpid()} on {socket.gethostname()}"


def _missing_folders(folder: str) -> list[str]:
    """A folder and those above it that do not exist, the deepest first."""
    missing = []
    while not os.path.exists(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    return missing


def _is_at(path: str, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False
