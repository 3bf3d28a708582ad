"""Writing a store: the one class that owns the life of its folder.

A run first works in `.work` inside the folder. Nothing else there is touched until the run knows that it will succeed:
it then claims the folder, and from that moment the folder is its own. So input that turns out to be bad harms no store
that was there before, and leaves nothing where there was none; and what a killed run had finished is found by the next.

    writer = StoreWriter(output, record, "negatives")
    with writer.held():
        if (manifest := writer.made_before(overwrite)) is None:
            with writer.making():
                writer.claim(tokenizer)
                there = writer.shard_files()
                shards = [writer.shard(there.get(number, ()), digest) or writer.write(number, rows, digest) for …]
                writer.finish(shards, tokenizer=…, parent=…, seed=…, counts=…)
"""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pipeline.runtime import files
from pipeline.runtime.errors import ResumableError, UserError
from pipeline.runtime.lock import sharing, writing
from pipeline.stores.manifest import (
    MANIFEST,
    Manifest,
    Record,
    read_manifest,
    read_record,
    write_manifest,
    write_record,
)
from pipeline.stores.shards import (
    SHARDS,
    TOKENIZER_FILES,
    TOKENIZER_FOLDER,
    Shard,
    finished_shard,
    remove_others,
    shard_files,
    write_shard,
)

WORK = ".work"
REJECTS = "rejects"


@dataclass(frozen=True)
class OutputFolder:
    """A folder that one run at a time writes to, and the record that says what is made there."""

    output: str
    record: Record

    def held(self, run: str | None = None) -> AbstractContextManager[None]:
        """Keeps all others from writing here while the block runs; their error names this one.

        A `run` whose workers are elsewhere is held by them too: see `pipeline.runtime.lock`.
        """
        return writing(self.output, run)

    def shared(self) -> AbstractContextManager[None]:
        """Keeps all others from writing here but parts of the same run."""
        return sharing(self.output)

    def check_owner(self, there: Record | None, replace: bool, way_out: str) -> None:
        """Refuses a folder with something else in it, and one that was made with other settings unless it may go."""
        if there is None:
            kept = [name for name in files.names_in(self.output) if name != WORK and not name.endswith(".tmp")]
            if kept:
                mend = "repair it with pipeline/verify_store.py" if MANIFEST in kept else "choose another one"
                raise UserError(f"--output {self.output}: there is something else in this folder ({kept[0]}): {mend}")
        elif there.settings != self.record.settings and not replace:
            differ = differences(there.settings, self.record.settings)
            raise UserError(f"--output {self.output}: it was made with other settings ({differ}): {way_out}")


@dataclass(frozen=True)
class StoreWriter(OutputFolder):
    """The life of a store's folder. It can be pickled: workers write shards with it, whoever started them holds it."""

    kind: str

    @property
    def work(self) -> str:
        return files.join(self.output, WORK)

    def made_before(self, overwrite: bool, changed: Callable[[Manifest], str | None] | None = None) -> Manifest | None:
        """The manifest if this store was made before with the same settings, is whole, and its input has not changed.

        `changed` looks at the input: it returns what has changed since, in a line, or None. A folder of something
        else is refused, and one of other settings or changed input too, unless it may be overwritten.
        """
        manifest = self.there(overwrite)
        if manifest is None:
            return None
        if changed is not None and (what := changed(manifest)) is not None:
            if not overwrite:
                raise UserError(f"{what}: see --overwrite")
            return None
        if not is_whole(self.output, manifest):
            return None
        with suppress(OSError):  # a part that came too late may be at work there
            files.remove(self.output, WORK)  # left if the last run was killed in its last moment
        return manifest

    def there(self, overwrite: bool) -> Manifest | None:
        """The manifest of the store that these settings made in this folder, whole or not; None where there is none."""
        begun, made = read_record(self.work), read_record(self.output)
        self.check_owner(begun or made, overwrite, "choose another folder, or replace it with --overwrite")
        if made is None or made.settings != self.record.settings:
            return None
        return read_manifest(self.output) if files.is_file(files.join(self.output, MANIFEST)) else None

    @contextmanager
    def making(self) -> Iterator[None]:
        """Prepares the work folder for what the block makes; afterwards the folder is whole, resumable, or as it was.

        Bad input (a UserError) that comes up before anything was finished leaves the folder as it was. After a crash,
        a kill or a ResumableError everything is kept, and the next run continues.
        """
        existed = files.exists(self.output)
        self._begin()
        try:
            yield
        except ResumableError:
            raise
        except UserError:
            self._abandon(existed)
            raise

    def join(self) -> None:
        """Prepares the work folder as one of several parts: what others have begun stays."""
        there = read_record(self.work)
        if there is None or there.settings != self.record.settings:
            files.remove(self.output, WORK)
            write_record(self.work, self.record)

    def _begin(self) -> None:
        """What killed runs left half-written goes, their finished work stays."""
        files.remove_temporaries(self.output)
        there = read_record(self.work)
        if there is None or there.settings != self.record.settings:
            files.remove(self.output, WORK)
        files.remove(self.output, WORK, "progress")
        write_record(self.work, self.record)

    def _abandon(self, existed: bool) -> None:
        if self.is_claimed and files.names_in(files.join(self.output, SHARDS)):
            return
        files.remove(self.output, WORK)
        if not existed:
            files.remove(self.output)

    @property
    def is_claimed(self) -> bool:
        """Whether the folder is that of a run with these settings."""
        there = read_record(self.output)
        return there is not None and there.settings == self.record.settings

    @property
    def is_finished(self) -> bool:
        """Whether there is a manifest: this run's, or that of another part, which was faster."""
        return self.is_claimed and files.is_file(files.join(self.output, MANIFEST))

    def claim(self, tokenizer: str) -> None:
        """Makes the folder this run's. Shards of another run are replaced one by one; its manifest goes first."""
        files.remove(self.output, MANIFEST)
        files.remove(self.output, REJECTS)
        for name in TOKENIZER_FILES:
            files.put(files.join(self.output, TOKENIZER_FOLDER, name), files.read(files.join(tokenizer, name)))
        write_record(self.output, self.record)

    def shard_files(self) -> dict[int, list[str]]:
        """The files that may be shards, by number: listed once for many, as listing a bucket takes its time."""
        return shard_files(self.output)

    def shard(self, names: Iterable[str], settings_digest: str) -> Shard | None:
        """The first of these files that was written with these settings, and whose every row is as it was written."""
        return finished_shard(self.output, names, self.kind, settings_digest)

    def write(self, number: int, rows: pa.Table, settings_digest: str) -> Shard:
        """Writes shard `number`, whole or not at all; why it could not be made before is forgotten."""
        shard = write_shard(self.output, number, rows, settings_digest)
        files.remove(self.output, REJECTS, reject_name(number))
        return shard

    def reject_shard(self, number: int, why: dict[str, Any]) -> None:
        """Puts a shard that cannot be made aside, with the reason."""
        files.put(self._reject(number), json.dumps({"shard": f"{SHARDS}/{number:05d}"} | why, indent=1).encode())

    @property
    def rejects(self) -> str:
        """Where the reasons are kept why something could not be used or made."""
        return files.join(self.output, REJECTS)

    def _reject(self, number: int) -> str:
        return files.join(self.rejects, reject_name(number))

    def reject_files(self) -> list[str]:
        """The files that say which shards were put aside."""
        return [name for name in files.names_in(self.rejects) if name.startswith("shard-")]

    def rejected_shards(self) -> list[tuple[str, dict[str, Any]]]:
        """The shards that were put aside: of each the file that says so, and what is in it."""
        names = [files.join(self.rejects, name) for name in self.reject_files()]
        return [(name, json.loads(files.read(name))) for name in names]

    def list_rejects(self, rejects: Iterable[dict[str, Any]]) -> None:
        """Leaves a list of the documents that could not be used, a line each; none where all could."""
        if lines := "".join(json.dumps(reject) + "\n" for reject in rejects):
            files.put(files.join(self.rejects, "documents.jsonl"), lines.encode())

    def finish(
        self,
        shards: Iterable[Shard],
        *,
        tokenizer: dict[str, Any],
        parent: dict[str, str] | None,
        seed: int,
        counts: dict[str, int],
        inputs: list[dict[str, Any]] | None = None,
        generator: dict[str, Any] | None = None,
        sampling: dict[str, Any] | None = None,
    ) -> Manifest:
        """Writes the manifest, and with it the store is finished; shards of earlier runs and the work folder go."""
        manifest = Manifest(
            kind=self.kind,
            shards=sorted(shards, key=lambda shard: (len(shard.file), shard.file)),  # 100000 comes after 99999
            settings=self.record.settings,
            tokenizer=tokenizer,
            parent=parent,
            seed=seed,
            command=self.record.command,
            directory=self.record.directory,
            call=self.record.call,
            counts=counts,
            inputs=inputs or [],
            generator=generator,
            sampling=sampling,
        )
        write_manifest(self.output, manifest)
        remove_others(self.output, manifest.shards)
        with suppress(OSError):
            files.remove(self.output, WORK)
        return manifest


def reject_name(number: int) -> str:
    """Of the file that says why a shard was put aside."""
    return f"shard-{number:05d}.json"


def is_whole(output: str, manifest: Manifest) -> bool:
    """Whether every file of a finished store is there, by name and size."""
    tokenizer = [files.join(output, TOKENIZER_FOLDER, name) for name in TOKENIZER_FILES]
    sizes = {files.join(output, shard.file): shard.bytes for shard in manifest.shards}
    return all(map(files.is_file, tokenizer)) and all(files.info(url).size == size for url, size in sizes.items())


def differences(there: dict[str, Any], here: dict[str, Any]) -> str:
    """The settings that are not the same, each with both values."""
    names = sorted(there.keys() | here.keys())
    pairs = [(name, there.get(name), here.get(name)) for name in names]
    return "; ".join(f"{name} {str(old)[:80]}, now {str(new)[:80]}" for name, old, new in pairs if old != new)
