"""Manifests: what a store is, what it was made from, and how to make it again."""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

import jsonschema

import schemas
from pipeline.runtime import files
from pipeline.runtime.digests import digest_of
from pipeline.runtime.errors import UserError
from pipeline.runtime.json_schema import hold_to
from pipeline.runtime.provenance import code_version, library_versions, machine
from pipeline.runtime.settings import Settings
from pipeline.stores.shards import Shard

MANIFEST = "manifest.json"
RECORD = "command.json"
ROWS_IN_A_BYTE = 100  # at most, in any shard
OWN_DIGEST = "checksum"  # the key of the digest of the file itself; `digest` is the store's


@dataclass(frozen=True)
class Record:
    """What a run wrote down before it began, so that it can be continued, or repeated, by anyone.

    `settings` are what the result depends on: two runs that agree in them make the same. `call` is what the stage was
    called with, and what a repair calls it with again; `command` is the same for people, in the words of a shell.
    """

    command: list[str]
    directory: str
    settings: dict[str, Any]
    call: dict[str, Any] | None = None

    @classmethod
    def of(cls, script: str, settings: Settings, result: dict[str, Any], beam: Sequence[str] = ()) -> "Record":
        """Of a script's run: its settings, and `result`, everything that what it makes depends on."""
        # Leave to replace what was there is not part of what was made, and is not to be used again.
        called = {name: value for name, value in settings.recorded().to_json().items() if name != "overwrite"}
        words = [word for word in settings.recorded().to_words() if word != "--overwrite"]
        plain = dict(json.loads(json.dumps(result)))
        return cls([script, *words, *beam], os.getcwd(), plain, {"stage": script, "settings": called})


class MadeWith(dict[str, Any]):
    """The settings in a manifest: to ask for one that is not there is the manifest's fault, which is named."""

    def __init__(self, settings: Any, source: str = MANIFEST):
        super().__init__(settings)
        self.source = source

    def __missing__(self, name: str) -> Any:
        raise UserError(f"{self.source}: there is no {name} among its settings: make the store again")


@dataclass(frozen=True)
class Manifest:
    """A finished store. The fields are those of schemas/manifest.schema.json."""

    kind: str
    shards: list[Shard]
    settings: dict[str, Any]
    tokenizer: dict[str, Any]
    parent: dict[str, str] | None
    seed: int
    command: list[str]
    directory: str
    counts: dict[str, int]
    call: dict[str, Any] | None = None
    inputs: list[dict[str, Any]] = field(default_factory=list)
    generator: dict[str, Any] | None = None
    sampling: dict[str, Any] | None = None
    created: str = ""
    code_version: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    machine: str = ""
    schema_version: int = schemas.SCHEMA_VERSION

    @property
    def rows(self) -> int:
        return sum(shard.rows for shard in self.shards)

    @property
    def bytes(self) -> int:
        return sum(shard.bytes for shard in self.shards)

    @property
    def digest(self) -> str:
        """Identity of the store: its kind, its tokenizer and its rows."""
        rows = [shard.rows_digest for shard in self.shards]
        return digest_of([self.schema_version, self.kind, self.tokenizer["digest"], rows])


def write_manifest(store: str, manifest: Manifest) -> None:
    """Writes a store's manifest, its last file: with it the store is finished."""
    known = {name: value for name, value in asdict(manifest).items() if value is not None or name == "parent"}
    content = known | {
        "shards": [shard.to_json() for shard in manifest.shards],
        "digest": manifest.digest,
        "rows": manifest.rows,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "code_version": code_version(),
        "versions": library_versions(),
        "machine": machine(),
    }
    content[OWN_DIGEST] = _own_digest(content)
    hold_to(content, schemas.MANIFEST)
    files.put(files.join(store, MANIFEST), json.dumps(content, indent=1).encode())


def _own_digest(content: dict[str, Any]) -> str:
    """Of everything in a manifest's file but this digest itself."""
    return digest_of({name: value for name, value in content.items() if name != OWN_DIGEST})


def read_manifest(store: str) -> Manifest:
    """The manifest of a finished store; a UserError names what is wrong with it."""
    url = files.join(store, MANIFEST)
    if not files.is_file(url):
        way_out = "run the command that makes it" if files.exists(store) else "check the path"
        raise UserError(f"{store}: not a finished store, there is no {MANIFEST}: {way_out}")
    try:
        content = json.loads(files.read(url))
        found = content.get("schema_version") if isinstance(content, dict) else None
        if isinstance(found, int) and found != schemas.SCHEMA_VERSION:
            raise UserError(f"{url}: schema version {found}, this code reads {schemas.SCHEMA_VERSION}: make it again")
        hold_to(content, schemas.MANIFEST)
    except (ValueError, RecursionError, jsonschema.ValidationError) as error:
        reason = error.message if isinstance(error, jsonschema.ValidationError) else error
        raise UserError(f"{url}: not a manifest ({reason}): run pipeline/verify_store.py {store} --repair") from None
    if content[OWN_DIGEST] != _own_digest(content):
        raise UserError(f"{url}: it has changed since it was written: run pipeline/verify_store.py {store} --repair")
    fields = {name: value for name, value in content.items() if name not in (OWN_DIGEST, "digest", "rows")}
    shards = [Shard.from_json(shard) for shard in content["shards"]]
    for shard in shards:
        if shard.rows > ROWS_IN_A_BYTE * shard.bytes:  # no compression goes as far, and memory is asked for by rows
            raise UserError(f"{url}: {shard.file} cannot hold {shard.rows:,} rows in {shard.bytes:,} bytes")
    manifest = Manifest(**fields | {"shards": shards, "settings": MadeWith(content["settings"], url)})
    if (content["digest"], content["rows"]) != (manifest.digest, manifest.rows):
        raise UserError(f"{url}: its digest and rows are not those of its shards: make the store again")
    return manifest


def write_record(store: str, record: Record) -> None:
    files.put(files.join(store, RECORD), json.dumps(asdict(record), indent=1).encode())


def read_record(store: str) -> Record | None:
    """What the run that makes or made this store wrote down; None where there is nothing readable."""
    url = files.join(store, RECORD)
    if not files.is_file(url):
        return None
    try:
        record = Record(**json.loads(files.read(url)))
    except (ValueError, TypeError, RecursionError):
        return None
    words = [record.directory, *record.command] if isinstance(record.command, list) else []
    usable = len(words) > 1 and all(isinstance(word, str) for word in words) and isinstance(record.settings, dict)
    usable = usable and (record.call is None or isinstance(record.call, dict))
    return record if usable else None
