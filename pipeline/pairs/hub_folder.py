"""A data set of pairs on the hub: made in a folder here, sent whole.

The hub has no temporary names to rename, and a commit for every file would show a data set that is not finished. So
files are made here first, where a killed run finds them again, and arrive in one commit.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pipeline.runtime import files
from pipeline.runtime.digests import digest_of
from pipeline.runtime.errors import UserError
from pipeline.runtime.hub import HUB, is_hub
from pipeline.runtime.hub_upload import DATA_SET, Upload, check_repo, check_token, is_there
from pipeline.runtime.lock import writing
from pipeline.runtime.private import private_folder

PLACE = f"{HUB}datasets/"


def repo_of(url: str) -> str:
    """`user/name` of hf://datasets/user/name; a data set is a whole repository, on its main branch."""
    repo = url.rstrip("/").removeprefix(PLACE)
    if not url.startswith(PLACE) or repo.count("/") != 1:
        raise UserError(f"--output {url}: a data set's repository is needed: {PLACE}user/name")
    check_repo(repo)
    return repo


def shown_name(output: str) -> str:
    """What `load_dataset` opens it by."""
    return repo_of(output) if is_hub(output) else output


@dataclass(frozen=True)
class HubFolder:
    """A repository, and the folder here in which its next state is made."""

    url: str
    folder: str

    @classmethod
    @contextmanager
    def of(cls, url: str, settings: object) -> Iterator["HubFolder"]:
        """For one run at a time with these settings; the next finds what a killed one has made."""
        check_token(repo_of(url))  # before hours of work, not after them
        folder = os.path.join(private_folder("exports"), digest_of([url, settings])[:32])
        with writing(folder):
            yield cls(url, folder)

    def fetch(self, notes: str, data: str, own: str) -> None:
        """What the repository says of its other splits, and of this one if none of its files was made here yet."""
        if not files.names_in(os.path.join(self.folder, data)):  # a run that was refused left what it had read
            files.remove(self.folder)
        if not is_there(repo_of(self.url), DATA_SET):
            return
        for name in files.names_in(files.join(self.url, notes)):
            here = os.path.join(self.folder, notes, name)
            if name.endswith(".json") and not (name == f"{own}.json" and os.path.isfile(here)):
                files.copy(files.join(self.url, notes, name), here)

    def send(self, split: str, folders: tuple[str, ...], private: bool) -> str:
        """Sends all that is here; files of this split in these folders that are not here any more go."""
        own = tuple(f"{name}/{split}-" for name in folders)
        found = {name: os.path.join(self.folder, name) for name in files.names_below(self.folder)}
        upload = Upload(repo_of(self.url), DATA_SET, found, lambda name: name.startswith(own))
        address = upload.send(private, f"Export the split {split}")
        files.remove(self.folder)
        return address
