"""Sending files to the hub: all of them in one commit, which is there whole or not at all.

What is large goes ahead of the commit, and is known there by its digest: a run that was killed sends the rest.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pipeline.runtime.errors import UserError, first_line
from pipeline.runtime.hub import LOG_IN, reaching
from pipeline.runtime.progress import wants_lines

MODEL, DATA_SET = "model", "dataset"
CARD = "README.md"
REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[\w-][\w.-]*", re.ASCII)
TOKEN = re.compile(rb"\bhf_[A-Za-z0-9]{16,}")
DATA = (".parquet", ".safetensors")  # in which chance could spell a token; nobody writes one there


@dataclass(frozen=True)
class Upload:
    """What a repository of the hub is to hold: its files, each the path of one here or the bytes themselves.

    `is_ours` says which other files are what an earlier upload left, and go. Everything else there stays.
    """

    repo: str
    kind: str
    files: Mapping[str, str | bytes]
    is_ours: Callable[[str], bool]

    def check(self) -> None:
        """Refuses a name that the hub would not have, and files in which there is a token: a hub never forgets."""
        check_repo(self.repo)
        from huggingface_hub import get_token

        own = (get_token() or "").encode()
        for name, content in self.files.items():
            if name.endswith(DATA):
                continue
            data = content if isinstance(content, bytes) else _read(content)
            if TOKEN.search(data) or (own and own in data):
                raise UserError(f"{name}: there is a token of the hub in it: nothing was sent, take it out")

    def send(self, private: bool, message: str) -> str:
        """Makes the repository if there is none, and commits; the commit's address."""
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi

        self.check()
        check_token(self.repo)
        api = HfApi()
        with reaching(self.repo), quiet():
            api.create_repo(self.repo, repo_type=self.kind, private=private or None, exist_ok=True)
            there = api.repo_info(self.repo, repo_type=self.kind)
            if private and not there.private:
                raise UserError(f"--private: {self.repo} is there and is public: make it private on its page first")
            known = api.list_repo_files(self.repo, repo_type=self.kind, revision=there.sha)
            operations: list[Any] = [CommitOperationAdd(name, content) for name, content in self.files.items()]
            old = [name for name in known if name not in self.files and self.is_ours(name)]
            operations += [CommitOperationDelete(name) for name in old]
            try:
                # On top of what was seen: somebody else's commit in between is refused, not undone.
                made = api.create_commit(
                    self.repo, operations, commit_message=message, repo_type=self.kind, parent_commit=there.sha
                )
            except ValueError as error:  # of the page's head, and of what the hub's answers do not hold
                raise UserError(f"{self.repo}: the hub refuses this ({' '.join(str(error).split())})") from None
        forget_listings()
        return str(made.commit_url)


def check_repo(repo: str) -> None:
    if not REPOSITORY.fullmatch(repo):
        raise UserError(f"{repo}: not a name of the hub: it is user/name, of letters, digits, - _ and .")


def check_token(repo: str) -> None:
    """Whether it may write there is for the hub to say; without one nobody may."""
    from huggingface_hub import get_token

    if get_token() is None:
        raise UserError(f"{repo}: no token of the hub is known, and nobody writes there without: {LOG_IN}")


def is_there(repo: str, kind: str) -> bool:
    from huggingface_hub import HfApi

    with reaching(repo):
        return bool(HfApi().repo_exists(repo, repo_type=kind))


def forget_listings() -> None:
    """What this process has read of the hub may have changed."""
    import fsspec

    fsspec.filesystem("hf").invalidate_cache()


@contextmanager
def quiet() -> Iterator[None]:
    """No bars of the hub's where ours are not wanted either, and no warning that nothing has changed."""
    from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars, logging

    level, hidden = logging.get_verbosity(), are_progress_bars_disabled()
    logging.set_verbosity_error()
    if not wants_lines():
        disable_progress_bars()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if not hidden:
            enable_progress_bars()


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise UserError(f"{path}: it cannot be read ({first_line(error)})") from None
