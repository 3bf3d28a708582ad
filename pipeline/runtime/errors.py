"""Errors that are the user's to mend, and how a command ends with them."""

import re
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

MOST_CHARACTERS = 1000


class UserError(Exception):
    """Bad input: one line that names the file or the flag and the way out. Ends a command with exit code 2."""

    def __init__(self, message: str):
        line = " ".join(message.encode("utf-8", "backslashreplace").decode().split())
        # What a stranger's file says may be shown, but must not steer the terminal.
        line = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in line)
        super().__init__(line if len(line) <= MOST_CHARACTERS else f"{line[:MOST_CHARACTERS]} …")


class ResumableError(UserError):
    """A run cannot go on for a reason outside of it (disk full, a worker died, a file of its own was damaged).

    What was done is kept, and the same command continues.
    """

    def __init__(self, message: str, way_out: str = "mend that, then run the same command again"):
        super().__init__(f"{message}: {way_out}")


# The operating system's own words (disk full, read-only, …) say what and where better than we could.
_SYSTEM = re.compile(r"\w*Error: (\[Errno \d+\].+?)(?: \[while running|\n|$)")


def user_error_in(error: BaseException) -> UserError | None:
    """What a Beam worker found wrong, found again in the text of the runner's own exception."""
    text = str(error).partition(" [while running")[0]
    if isinstance(error, UserError):
        return _as_it_was_said(type(error), text)
    if isinstance(error, OSError):
        return ResumableError(text)
    if (ours := _raised_elsewhere(str(error))) is not None:
        return ours
    if (found := _SYSTEM.search(str(error))) is not None:
        return ResumableError(found[1])
    if "Channel closed prematurely" in text:
        return ResumableError("a worker process died, perhaps for want of memory")
    return None


def _raised_elsewhere(traceback: str) -> UserError | None:
    """A UserError of any kind, from the last line of a traceback as runners print it: its class, and what it says."""
    kinds = {f"{kind.__module__}.{kind.__qualname__}": kind for kind in _kinds_of(UserError)}
    names = "|".join(map(re.escape, kinds))
    found = re.search(rf"(?<![\w.])(?P<kind>{names}): (?P<line>.+?)(?: \[while running|\n|$)", traceback)
    if found is None:
        return None
    return _as_it_was_said(kinds[found["kind"]], found["line"])


def _as_it_was_said(kind: type[UserError], line: str) -> UserError:
    """An error with a whole message: a kind may add to its own when it is made."""
    error = kind.__new__(kind)
    Exception.__init__(error, line)
    return error


def _kinds_of(kind: type[UserError]) -> list[type[UserError]]:
    return [kind, *(inner for below in kind.__subclasses__() for inner in _kinds_of(below))]


def first_line(error: BaseException) -> str:
    """What a library's error says, without its advice of many lines."""
    return next(iter(str(error).splitlines()), type(error).__name__)


class Terminated(BaseException):
    """Asked to end, by SIGTERM: a scheduler's way, and `kill`'s. As with Ctrl-C, what is at work is closed first."""


def exit_with(main: Callable[[], int | None]) -> None:
    """Runs a command's main and turns its outcome into an exit code: 2 and one line for a UserError."""
    with suppress(ValueError):  # in a thread, signals are somebody else's
        signal.signal(signal.SIGTERM, _terminated)
    try:
        sys.exit(main() or 0)
    except (UserError, OSError) as error:
        print(f"error: {user_error_in(error)}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("interrupted: run the same command again to continue", file=sys.stderr)
        sys.exit(130)
    except Terminated:
        print("ended by SIGTERM: run the same command again to continue", file=sys.stderr)
        sys.exit(143)


def _terminated(*_: Any) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # who asks twice does not wait
    raise Terminated
