"""Folders of this user's alone below the temporary directory, where everybody else can put things too."""

import os
import secrets
import stat
import tempfile
from contextlib import suppress

from pipeline.runtime.errors import UserError

KEY = "key"


def private_folder(name: str = "") -> str:
    """A folder that nobody else can read or write, made if it is not there; with a name, one inside of it."""
    folder = _own(os.path.join(tempfile.gettempdir(), f"residual-ebm-{os.getuid()}"))
    return _own(os.path.join(folder, name)) if name else folder


def leave_private_folder() -> None:
    """Removes this user's folder if nothing is in it any more."""
    with suppress(OSError):
        os.rmdir(os.path.join(tempfile.gettempdir(), f"residual-ebm-{os.getuid()}"))


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
