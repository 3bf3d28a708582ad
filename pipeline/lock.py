"""One writer a store."""

import errno
import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from pipeline import files
from pipeline.errors import UserError


@contextmanager
def writing(store: str) -> Iterator[None]:
    """Holds a local store for this process; a second writer is told who the first is.

    The operating system drops the lock with the process, so a killed run never blocks the next.
    """
    if not files.is_local(store):
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
            file.write(f"process {os.getpid()} on {socket.gethostname()}")
            file.flush()
            try:
                yield
            finally:
                os.unlink(path)
                for empty in made:
                    with suppress(OSError):  # not empty: the store was made
                        os.rmdir(empty)
            return


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
