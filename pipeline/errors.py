"""Errors that are the user's to mend, and how a command ends with them."""

import re
import sys
from collections.abc import Callable


class UserError(Exception):
    """Bad input: one line that names the file or the flag and the way out. Ends a command with exit code 2."""

    def __init__(self, message: str):
        super().__init__(" ".join(message.split()))


class Obstructed(UserError):
    """The machine stood in the way (disk full, read-only, …): what was done is kept, the same command continues."""

    def __init__(self, message: str):
        super().__init__(f"{message}: mend that, then run the same command again")


# The last line of a traceback, as runners print it: a UserError, or the operating system's own words (disk full,
# read-only, …), which say what and where better than we could.
_LAST_LINE = re.compile(
    r"(?:(pipeline\.errors\.UserError): |\w*Error: (?=\[Errno \d+\]))(.+?)(?: \[while running|\n|\\n|$)"
)


def user_error_in(error: BaseException) -> UserError | None:
    """What a Beam worker found wrong, found again in the text of the runner's own exception."""
    if isinstance(error, UserError):
        return UserError(str(error).partition(" [while running")[0])
    if isinstance(error, OSError):
        return Obstructed(str(error).partition(" [while running")[0])
    if (found := _LAST_LINE.search(str(error))) is None:
        return None
    return UserError(found.group(2)) if found.group(1) else Obstructed(found.group(2))


def exit_with(main: Callable[[], int | None]) -> None:
    """Runs a command's main and turns its outcome into an exit code: 2 and one line for a UserError."""
    try:
        sys.exit(main() or 0)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except OSError as error:
        print(f"error: {Obstructed(str(error))}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("interrupted: run the same command again to continue", file=sys.stderr)
        sys.exit(130)
