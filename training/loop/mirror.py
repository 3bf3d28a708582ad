"""A run whose output is in a bucket: it works in a folder of this machine, and what counts is copied.

The bucket alone counts. A run begins with an empty folder and fetches the last whole checkpoint, so it makes no
difference whether it is on the machine that it was on before. Every machine uploads the parts of a checkpoint that its
ranks wrote: machines need no disk in common. Where the output is a folder here, the two are the same, and nothing is
copied.
"""

import hashlib
import os
import socket

from pipeline.runtime import files
from pipeline.runtime.errors import ResumableError, first_line
from pipeline.runtime.private import leave_private_folder, private_folder

LOGS = "logs"


def working_folder(output: str) -> str:
    """Where a run with this output writes: there, or, if that is a bucket, in this user's own one below TMPDIR."""
    if files.is_local(output):
        return output
    # Its name is this machine's, where several have one disk after all.
    name = hashlib.sha256(f"{os.getuid()} {socket.gethostname()} {output}".encode()).hexdigest()[:32]
    return os.path.join(private_folder(), f"run-{name}")


def start_empty(output: str) -> None:
    """Nothing that an earlier run left on this machine is taken for what is in the bucket."""
    if not files.is_local(output):
        files.remove(working_folder(output))
        leave_private_folder()


def fetch(output: str, *names: str) -> None:
    """Copies folders of the output to this machine."""
    if not files.is_local(output):
        for name in names:
            _copy_folder(output, working_folder(output), name)


def upload(output: str, *names: str) -> None:
    """Copies folders of this machine to the output."""
    if not files.is_local(output):
        for name in names:
            _copy_folder(working_folder(output), output, name)


def _copy_folder(source: str, target: str, name: str) -> None:
    try:
        files.copy_folder(files.join(source, name), files.join(target, name))
    except OSError as error:
        raise ResumableError(f"{source}/{name}: it cannot be copied to {target} ({first_line(error)})") from None
