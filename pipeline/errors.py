"""Errors that are the user's to mend, and how a command ends with them."""

import re
import sys
from collections.abc import Callable

MOST_CHARACTERS = 1000


class UserError(Exception):
    """Bad input: one line that names the file or the flag and the way out. Ends a command with exit code 2."""

    def __init__(self, message: str):
        line = " ".join(message.encode("utf-8", "backslashreplace").decode().split())
        super().__init__(line if len(line) <= MOST_CHARACTERS else f"{line[:MOST_CHARACTERS]} …")


class Obstructed(UserError):
    """The machine stood in the way (disk full, read-only, …): what was done is kept, the same command continues."""

    def __init__(self, message: str):
        super().__init__(f"{message}: mend that, then run the same command again")


# The last line of a traceback, as runners print it: a UserError, or the operating system's own words (disk full,
# read-only, …), which say what and where better than we could.
_LAST_LINE = re.compile(
    r"(?:(?P<ours>pipeline\.errors\.UserError): |\w*Error: (?=\[Errno \d+\]))(?P<line>.+?)(?: \[while running|\n|$)"
)


def user_error_in(error: BaseException) -> UserError | None:
    """What a Beam worker found wrong, found again in the text of the runner's own exception."""
    text = str(error).partition(" [while running")[0]
    if isinstance(error, UserError):
        return UserError(text)
    if isinstance(error, OSError):
        return Obstructed(text)
    if (found := _LAST_LINE.search(str(error))) is not None:
        return UserError(found["line"]) if found["ours"] else Obstructed(found["line"])
    if "Channel closed prematurely" in text:
        return Obstructed("a worker process died, perhaps for want of memory")
    return None


def first_line(error: BaseException) -> str:
    """What a library's error says, without its advice of many lines."""
    return next(iter(str(error).splitlines()), type(error).__name__)


def exit_with(main: Callable[[], int | None]) -> None:
    """Runs a command's main and turns its outcome into an exit code: 2 and one line for a UserError."""
    try:
        sys.exit(main() or 0)
    except (UserError, OSError) as error:
        print(f"error: {user_error_in(error)}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("interrupted: run the same command again to continue", file=sys.stderr)
        sys.exit(130)
