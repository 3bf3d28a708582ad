"""Re-reads every shard of a store against its manifest, and names each one that is not as it was written.

python pipeline/verify_store.py STORE            exit code 0 if all is well, 1 if not
python pipeline/verify_store.py STORE --repair   removes what is bad and calls the stage that made the store again, with
                                                 the settings that it recorded: it makes exactly that again. What it
                                                 reads or writes outside of the store is shown, and needs --trust.
                                                 Every further option is Beam's, if a runner is to do it
"""

import hashlib
import io
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import schemas
from pipeline.runtime import files
from pipeline.runtime.errors import UserError, exit_with
from pipeline.runtime.hub import is_hub
from pipeline.runtime.lock import writing
from pipeline.runtime.progress import Bar
from pipeline.runtime.settings import Settings, read_known_settings, setting
from pipeline.stores.manifest import MANIFEST, RECORD, Manifest, Record, read_manifest, read_record, write_record
from pipeline.stores.shards import SHARDS, TOKENIZER_FOLDER, Shard, digest_of_rows, is_copy, number_of
from pipeline.text.tokenizer import load_tokenizer

STRAY = "not in the manifest"
STAGES = (
    *("pipeline/make_windows.py", "pipeline/mine_negatives.py", "pipeline/import_texts.py"),
    *("pipeline/import_pairs.py", "evaluation/score.py"),
)
# Settings that are texts and no places: names, formats, choices. Every other text is taken for one.
NO_PLACES = {
    *("corpus", "split", "format", "text_field", "encoding", "documents", "sampling", "context_lengths", "positives"),
    *("engine", "accelerator", "precision", "architecture", "surplus", "part", "prompt", "better", "others"),
}


@dataclass(frozen=True, kw_only=True)
class VerifySettings(Settings):
    """Which store is verified, and whether what is bad is made again."""

    store: str = setting(metavar="STORE", help="the store's folder, on any filesystem", positional=True)
    repair: bool = setting(False, help="remove what is bad and make it again")
    trust: bool = setting(False, help="let a repair read and write the places outside of the store that it names")

    def check(self) -> None:
        if self.repair and is_hub(self.store):
            raise UserError(f"--repair: {self.store} is on the hub: repair the folder that was sent, and send it again")


@dataclass(frozen=True)
class Problem:
    """A file of the store, and what is wrong with it."""

    file: str
    what: str


def main(arguments: Sequence[str] | None = None) -> int:
    words = sys.argv[1:] if arguments is None else arguments
    settings, beam = read_known_settings(VerifySettings, words, __doc__)
    if beam and not settings.repair:
        raise UserError(f"unrecognized arguments: {' '.join(beam)[:200]}: see --help")
    problems = verify_store(settings, beam)
    report(settings.store, problems)
    return 1 if problems else 0


def verify_store(settings: VerifySettings, beam: Sequence[str] = ()) -> list[Problem]:
    """What is wrong with a store; if it is to be repaired, what still is. `beam` are Beam's options, for a repair."""
    problems = verify(settings.store)
    if problems and settings.repair:
        report(settings.store, problems)
        problems = repair(settings.store, problems, beam, settings.trust)
    return problems


def verify(store: str) -> list[Problem]:
    """Everything in the store that is not as its manifest says."""
    if not files.exists(files.join(store, MANIFEST)) and read_record(store) is None:
        raise UserError(f"{store}: not a store, there is neither {MANIFEST} nor {RECORD} in it")
    try:
        manifest = read_manifest(store)
    except UserError as error:
        return [Problem(MANIFEST, str(error).removeprefix(f"{files.join(store, MANIFEST)}: "))]
    problems = [] if read_record(store) == recorded_in(manifest) else [Problem(RECORD, "not what the manifest says")]
    problems += tokenizer_problems(store, manifest)
    for shard in Bar(manifest.shards, desc="verifying", unit=" shards", leave=False):
        if (what := shard_problem(store, shard, manifest.kind)) is not None:
            problems.append(Problem(shard.file, what))
    return problems + [Problem(file, STRAY) for file in strays(store, manifest)]


def strays(store: str, manifest: Manifest) -> list[str]:
    """Files beside the shards, except unfinished ones and second makings of a shard, too late to be chosen."""
    known = {shard.file for shard in manifest.shards}
    by_number = {number_of(shard.file): shard for shard in manifest.shards}
    names = [name for name in files.names_in(files.join(store, SHARDS)) if not files.is_temporary(name)]
    found = [f"{SHARDS}/{name}" for name in names]
    return [file for file in found if file not in known and not is_late_copy(store, file, by_number)]


def is_late_copy(store: str, file: str, shards: dict[int | None, Shard]) -> bool:
    shard = shards.get(number_of(file))
    return shard is not None and is_copy(store, file, shard)


def tokenizer_problems(store: str, manifest: Manifest) -> list[Problem]:
    folder = files.join(store, TOKENIZER_FOLDER)
    if not files.is_file(files.join(folder, "tokenizer.json")):
        return [Problem(TOKENIZER_FOLDER, "missing")]
    try:
        same = load_tokenizer(folder).description == manifest.tokenizer
    except UserError as error:
        return [Problem(TOKENIZER_FOLDER, f"unreadable ({error})")]
    return [] if same else [Problem(TOKENIZER_FOLDER, "not the tokenizer that the manifest names")]


def shard_problem(store: str, shard: Shard, kind: str) -> str | None:
    """What is wrong with a shard, if anything: its bytes, then its rows."""
    url = files.join(store, shard.file)
    if not files.is_file(url):
        return "missing"
    try:
        data = files.read(url)
    except OSError as error:
        return f"unreadable ({error})"
    if len(data) != shard.bytes:
        return f"{len(data)} bytes instead of {shard.bytes}"
    if hashlib.sha256(data).hexdigest() != shard.file_digest:
        return "its bytes have changed (SHA-256 differs)"
    try:
        table = pq.read_table(io.BytesIO(data))
    except (pa.ArrowException, OSError) as error:
        return f"not Parquet ({error})"
    if not table.schema.equals(schemas.SCHEMAS[kind]):
        return f"its columns are not those of {kind}"
    if len(table) != shard.rows or digest_of_rows(table) != shard.rows_digest:
        return "its rows are not those of the manifest"
    return None


def report(store: str, problems: list[Problem]) -> None:
    for problem in problems:
        print(f"{files.join(store, problem.file)}: {problem.what}")
    if problems:
        print(f"{store}: {len(problems)} {'thing is' if len(problems) == 1 else 'things are'} wrong")
    else:
        manifest = read_manifest(store)
        print(f"{store}: {len(manifest.shards):,} shards, {manifest.rows:,} rows, all as written")


def recorded_in(manifest: Manifest) -> Record:
    return Record(manifest.command, manifest.directory, manifest.settings, manifest.call)


def places_outside(store: str, settings: Any, directory: str, name: str = "") -> list[str]:
    """Where settings lead to, files, folders, buckets and names of a hub, other than into the store itself."""
    if isinstance(settings, dict):
        inner = [(str(key), value) for key, value in settings.items() if key not in NO_PLACES]
        return [place for key, value in inner for place in places_outside(store, value, directory, key)]
    if isinstance(settings, list):
        return [place for value in settings for place in places_outside(store, value, directory, name)]
    if not isinstance(settings, str) or settings.startswith("builtin:"):
        return []
    if not files.is_local(settings) or settings.startswith("hf:"):
        inside = settings.startswith(f"{store.rstrip('/')}/") and ".." not in settings
        return [] if inside else [settings]
    place = files.identity(os.path.join(directory, settings) if "://" not in settings else settings)
    own = files.identity(store) if files.is_local(store) else None
    return [] if own is not None and os.path.commonpath([place, own]) == own else [place]


def repair(store: str, problems: list[Problem], beam: Sequence[str] = (), trust: bool = False) -> list[Problem]:
    """Removes what is bad, calls the stage that made it again, and verifies; returns what is still wrong.

    A store may come from a stranger, and so do the settings in it: what they name outside of it needs leave.
    """
    try:
        manifest: Manifest | None = read_manifest(store)
    except UserError:
        manifest = None
    record = recorded_in(manifest) if manifest else read_record(store)
    if record is None or record.call is None:
        raise UserError(f"{store}: neither {MANIFEST} nor {RECORD} says how it was made: run the command yourself")
    stage = record.call.get("stage")
    if stage not in STAGES:
        raise UserError(f"{files.join(store, RECORD)}: {str(stage)[:80]} is no stage that makes a store")
    place = record.directory if os.path.isdir(record.directory) else os.getcwd()
    called = {name: value for name, value in dict(record.call.get("settings") or {}).items() if name != "output"}
    if (outside := sorted({*places_outside(store, called, place)})) and not trust:
        raise UserError(
            f"{store}: to make it again, {stage} reads or writes what the store names and you did not, "
            f"{', '.join(outside)}: if that is as it should be, add --trust"
        )
    with writing(store):
        for problem in problems:
            files.remove(store, problem.file)
        write_record(store, record)
    said = ", ".join(f"{name} {value!r}" for name, value in called.items() if value not in (None, False, []))
    print(f"making it again: {stage} with {said}", flush=True)
    # Relative paths in the settings start where they were first given; the store may have moved since.
    here = os.path.abspath(store) if files.is_local(store) else store
    settings = ["--settings", files.join(here, RECORD), "--output", here]
    command = [sys.executable, "-P", "-m", stage.removesuffix(".py").replace("/", "."), *settings, *beam]
    code = subprocess.run(command, cwd=place).returncode
    if code:
        raise UserError(f"{store}: making it again ended with {code}: mend that, then repair again")
    for problem in verify(store):  # shards that only the new manifest shows to be too many
        if problem.what == STRAY:
            files.remove(store, problem.file)
    if manifest and read_manifest(store).digest != manifest.digest:
        return [Problem(MANIFEST, f"the rows made again are not those of before (store {manifest.digest})")]
    return verify(store)


if __name__ == "__main__":
    exit_with(main)
