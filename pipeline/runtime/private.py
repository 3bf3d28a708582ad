"""Folders of this user's alone below the temporary directory, where everybody else can put things too."""

import fcntl
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from pipeline.runtime.errors import UserError

KEY, HELD = "key", "held"

_meetings: dict[str, int] = {}  # of this process: folders, and the files by which it holds them


def private_folder(name: str = "") -> str:
    """A folder that nobody else can read or write, made if it is not there; with a name, one inside of it."""
    folder = _own(os.path.join(tempfile.gettempdir(), f"residual-ebm-{os.getuid()}"))
    return _own(os.path.join(folder, name)) if name else folder


def leave_private_folder() -> None:
    """Removes this user's folder if nothing is in it any more."""
    with suppress(OSError):
        os.rmdir(os.path.join(tempfile.gettempdir(), f"residual-ebm-{os.getuid()}"))


def meeting_folder(kind: str, run: str) -> str:
    """A private folder in which the processes of a run find each other, there as long as one of them lives.

    Folders of runs whose processes were all killed are removed by whoever comes next.
    """
    folder = _meeting(kind, run)
    while folder not in _meetings:
        with suppress(FileNotFoundError), _turn(own := private_folder()):  # another run may have left it just now
            for name in os.listdir(own):
                if name.startswith(f"{kind}-") and not _is_held(left := os.path.join(own, name)):
                    shutil.rmtree(left, ignore_errors=True)
            held = os.open(os.path.join(_own(folder), HELD), os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(held, fcntl.LOCK_SH)
            _meetings[folder] = held
    return folder


def leave_meeting(kind: str, run: str) -> None:
    """Removes the folder: the run is over."""
    folder = _meeting(kind, run)
    shutil.rmtree(folder, ignore_errors=True)
    if (held := _meetings.pop(folder, None)) is not None:
        os.close(held)
    leave_private_folder()


def _meeting(kind: str, run: str) -> str:
    return os.path.join(tempfile.gettempdir(), f"residual-ebm-{os.getuid()}", f"{kind}-{run}")


def _is_held(folder: str) -> bool:
    try:
        with open(os.path.join(folder, HELD), "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


@contextmanager
def _turn(own: str) -> Iterator[None]:
    """One process after the other: none removes what another has just made, and does not hold yet."""
    folder = os.open(own, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def private_key(folder: str) -> bytes:
    """A random key for those who can read this private folder: the first who asks makes it, all get the same."""
    path = os.path.join(folder, KEY)
    if not os.path.lexists(path):
        # Of mode 0600; and somebody else of this run may be faster.
        with tempfile.NamedTemporaryFile(dir=folder) as made, suppress(FileExistsError):
            made.write(secrets.token_bytes(32))
            made.flush()
            os.link(made.name, path)  # whole or not at all
    with open(path, "rb") as file:
        return file.read()


def _own(folder: str) -> str:
    with suppress(FileExistsError):
        os.mkdir(folder, mode=0o700)
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise UserError(f"{folder}: somebody else's, or others can write in it: remove it, or set TMPDIR elsewhere")
    return folder
