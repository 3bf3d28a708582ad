"""The Hugging Face hub: read as a filesystem, and what is wrong with it in one line.

`hf://datasets/user/name` is a repository of data, `hf://user/name` one of a model, with `@REVISION` one state of it.
Tokens are huggingface_hub's own business: HF_TOKEN, or what `hf auth login` keeps. Nothing here looks at one.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import fsspec
import pyarrow as pa
from pyarrow import fs

from pipeline.runtime.errors import UserError, first_line

HUB = "hf://"
LOG_IN = "log in with `hf auth login`, or set HF_TOKEN"


def is_hub(url: str) -> bool:
    return url.startswith(HUB)


def filesystem(url: str) -> tuple[fs.FileSystem, str]:
    """The hub as a filesystem that is only read, and the path on it; refused where there is no such repository."""
    try:
        with reaching(url):
            system, path = fsspec.core.url_to_fs(url)
            system.resolve_path(path)  # asks the hub once, and remembers
    except (ValueError, NotImplementedError, ImportError) as error:
        raise UserError(f"{url}: no place on the hub ({first_line(error)}): {HUB}datasets/user/name") from None
    return fs.PyFileSystem(HubHandler(system)), path


class HubHandler(fs.FSSpecHandler):
    """fsspec's filesystem for pyarrow, whose errors name the file and the way out. Nothing is written by it."""

    def get_file_info(self, paths: list[str]) -> Any:
        with reaching(f"{HUB}{paths[0]}"):
            return super().get_file_info(paths)

    def get_file_info_selector(self, selector: Any) -> Any:
        with reaching(f"{HUB}{selector.base_dir}"):
            return super().get_file_info_selector(selector)

    def open_input_file(self, path: str) -> Any:
        with reaching(f"{HUB}{path}"):
            if not self.fs.isfile(path):
                raise FileNotFoundError(f"{HUB}{path}")
            return pa.PythonFile(HubFile(self.fs.open(path, mode="rb"), f"{HUB}{path}"), mode="r")

    def open_input_stream(self, path: str) -> Any:
        return self.open_input_file(path)

    def refuse(self, path: str, *_: Any) -> NoReturn:
        raise UserError(
            f"{HUB}{path}: the hub is not written file by file: write to a folder, then send it whole with "
            f"evaluation/push_to_hub.py"
        )

    create_dir = delete_dir = delete_file = move = copy_file = open_output_stream = open_append_stream = refuse


class HubFile:
    """A file on the hub: a connection that is lost in the middle of it is said in one line too."""

    def __init__(self, file: Any, url: str):
        self.file, self.url = file, url

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def read(self, *size: int) -> bytes:
        with reaching(self.url):
            return bytes(self.file.read(*size))


@contextmanager
def reaching(what: str) -> Iterator[None]:
    """What the hub's client raises in the block becomes one line about `what`; all else is left as it is."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if (why := reason(error)) is None:
            raise
        raise UserError(f"{what}: {why}") from None


def reason(error: BaseException) -> str | None:
    """What is wrong with the hub and the way out; None where it is not the hub that is wrong."""
    from huggingface_hub import constants, errors

    # What its client for HTTP raises where there is no answer at all; which client that is changes with its versions.
    (no_answer, *_) = errors.HfHubHTTPError.__bases__
    match error:
        case errors.GatedRepoError():
            return f"its owners want to be asked: ask for access on its page on the hub, then {LOG_IN}"
        case errors.RepositoryNotFoundError():
            return f"the hub has no such repository, or it is private: check the name, or {LOG_IN}"
        case errors.RevisionNotFoundError():
            return "the repository has no such revision: check what follows the @"
        case errors.HFValidationError():
            return f"not a name of the hub ({first_line(error)}): it is user/name"
        case errors.LocalTokenNotFoundError():
            return f"no token of the hub is known: {LOG_IN}"
        case errors.OfflineModeIsEnabled():
            return "HF_HUB_OFFLINE is set, and the hub is not asked: unset it"
        case errors.LocalEntryNotFoundError():  # neither on the hub nor in the cache of it
            return (error.__cause__ and reason(error.__cause__)) or first_line(error)
        case errors.EntryNotFoundError():
            return "the repository has no such file"
        case errors.HfHubHTTPError():
            return _refusal(error)
        case no_answer():
            return f"{constants.ENDPOINT} does not answer ({first_line(error)}): check the network, and HF_ENDPOINT"
    # The client wraps what happens in its threads, and what its filesystem does not find.
    return reason(error.__cause__) if isinstance(error, OSError | RuntimeError) and error.__cause__ else None


def _refusal(error: Any) -> str:
    status, said = error.response.status_code, error.server_message or first_line(error)
    if status == 401:
        return f"the hub does not accept the token ({said}): {LOG_IN}"
    if status == 403:
        return f"the token has no leave for this ({said}): make one with it on the hub, then {LOG_IN}"
    if status in (409, 412):
        return f"somebody else wrote there at the same time ({said}): run the same command again"
    return f"the hub answers with {status} ({said}): try again later"
