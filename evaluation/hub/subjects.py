"""What can be sent to the hub, from the files in a folder: a language model, an energy model, a store."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cached_property

from pipeline.models.file_digests import DIGESTS, known_digests
from pipeline.models.language_model import LanguageModelFolder
from pipeline.models.model_folder import WEIGHTS
from pipeline.runtime import files
from pipeline.runtime.errors import UserError
from pipeline.runtime.hub_upload import CARD
from pipeline.stores.manifest import MANIFEST, RECORD
from pipeline.stores.reader import Store
from pipeline.stores.shards import SHARDS, TOKENIZER_FILES, TOKENIZER_FOLDER
from pipeline.verify_store import STRAY, verify
from training.energy.folder import EnergyModelFolder, open_either

# Of a model from elsewhere, which has no list of its own files. What can run is not among them.
MODEL_FILES = ("*.safetensors", "*.safetensors.index.json", "*.json", "*.txt", "*.model", "*.jinja")


@dataclass(frozen=True)
class ModelSubject:
    """A model, its weights whole and what their training wrote."""

    model: LanguageModelFolder | EnergyModelFolder

    @property
    def is_energy(self) -> bool:
        return isinstance(self.model, EnergyModelFolder)

    @property
    def what(self) -> str:
        return "energy model" if self.is_energy else "language model"

    @cached_property
    def files(self) -> list[str]:
        """Those that are the model, by their names in its folder: no checkpoints, no logs, no records of commands."""
        folder = self.model.folder
        known = known_digests(folder)
        if known:
            return sorted([DIGESTS, *known.keys() - {CARD}])
        there = sorted(name for name in os.listdir(folder) if os.path.isfile(os.path.join(folder, name)))
        return [name for name in there if name != RECORD and any(fnmatch(name, kind) for kind in MODEL_FILES)]

    @contextmanager
    def local(self) -> Iterator[dict[str, str]]:
        yield {name: os.path.join(self.model.folder, name) for name in self.files}

    @staticmethod
    def is_ours(name: str) -> bool:
        """Weights beside those that are sent would be read with them."""
        return "/" not in name and name.endswith((WEIGHTS, f"{WEIGHTS}.index.json"))


@dataclass(frozen=True)
class StoreSubject:
    """A store, every shard as its manifest says."""

    store: Store

    @property
    def what(self) -> str:
        return f"store of {self.store.manifest.kind}"

    @cached_property
    def files(self) -> list[str]:
        """Those that its manifest vouches for, with the manifest and the record that it repeats."""
        tokenizer = [f"{TOKENIZER_FOLDER}/{name}" for name in TOKENIZER_FILES]
        return [MANIFEST, RECORD, *tokenizer, *(shard.file for shard in self.store.manifest.shards)]

    @contextmanager
    def local(self) -> Iterator[dict[str, str]]:
        """Where its files are on this machine; those of a bucket are copied for as long as the block runs."""
        path = self.store.path
        if files.is_local(path):
            yield {name: files.join(path, name) for name in self.files}
            return
        with tempfile.TemporaryDirectory() as folder:
            for name in self.files:
                files.copy(files.join(path, name), files.join(folder, name))
            yield {name: files.join(folder, name) for name in self.files}

    @staticmethod
    def is_ours(name: str) -> bool:
        return name.startswith(f"{SHARDS}/")


def find_subject(folder: str) -> ModelSubject | StoreSubject:
    """What is in a folder, every byte of it compared with its digests: nothing damaged is handed on."""
    if not files.exists(folder):
        raise UserError(f"{folder}: there is no such folder: check the path")
    if files.is_file(files.join(folder, MANIFEST)):
        if bad := [one for one in verify(folder) if one.what != STRAY]:
            raise UserError(
                f"{files.join(folder, bad[0].file)}: {bad[0].what}: run pipeline/verify_store.py {folder} --repair"
            )
        return StoreSubject(Store(folder))
    model = open_either(folder)
    model.check_weights()
    return ModelSubject(model)
