"""One writer a store."""

import errno
import fcntl
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from pipeline.runtime import files
from pipeline.runtime.errors import UserError

LEASE = 60.0  # seconds; what a killed run on an object store makes the next one wait at most
SETTLE = 1.0  # seconds after which the last of several who wrote a lease at once is seen by all


@contextmanager
def writing(store: str) -> Iterator[None]:
    """Holds a store for this process; a second writer's error names it.

    On local filesystems the operating system drops the lock with the process, so a killed run never blocks the next.
    Elsewhere it is a lease that is renewed while the process lives, and expires when it does not.
    """
    if not files.is_local(store):
        with _leased(store):
            yield
        return
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
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                holder = file.read().strip() or "another process"
                raise UserError(f"{store}: {holder} is writing it: wait until it ends, or end it") from None
            if not _is_at(path, file.fileno()):
                continue  # its last holder removed the file between our open and our lock
            file.truncate(0)
            file.write(_myself())
            file.flush()
            try:
                yield
            finally:
                os.unlink(path)
                for empty in made:
                    with suppress(OSError):  # not empty: the store was made
                        os.rmdir(empty)
            return


@contextmanager
def _leased(store: str) -> Iterator[None]:
    folder, _, name = store.rstrip("/").rpartition("/")
    url, token = f"{folder}/.{name}.lease", uuid.uuid4().hex

    def write() -> None:
        lease = {"token": token, "holder": _myself(), "until": time.time() + LEASE}
        files.put(url, json.dumps(lease).encode())

    if (there := _read_lease(url)) and there["until"] > time.time():
        left = there["until"] - time.time()
        raise UserError(
            f"{store}: {there['holder']} is writing it: wait until it ends (at most {left:.0f} s if it died)"
        )
    write()
    time.sleep(SETTLE)
    if (there := _read_lease(url)) is None or there["token"] != token:
        raise UserError(
            f"{store}: {there['holder'] if there else 'another process'} began to write it at the same time"
        )
    ended = threading.Event()

    def renew() -> None:
        while not ended.wait(LEASE / 3):
            with suppress(OSError):  # a passing failure: there are two more chances before it expires
                write()

    renewer = threading.Thread(target=renew, daemon=True)
    renewer.start()
    try:
        yield
    finally:
        ended.set()
        renewer.join()
        files.remove(url)


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
