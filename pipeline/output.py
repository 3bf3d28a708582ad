"""A job's output folder: free, half-finished, finished, or somebody else's."""

from pipeline import files
from pipeline.errors import UserError
from pipeline.manifest import MANIFEST, RECORD, Manifest, Record, read_manifest, read_record, write_record
from pipeline.shards import SHARDS
from pipeline.tokenizer import TOKENIZER_FOLDER

WORK = ".work"  # what a run needs until it is finished
REJECTS = "rejects"
OURS = (MANIFEST, SHARDS, TOKENIZER_FOLDER, WORK, REJECTS, RECORD)  # in the order in which they are removed


def finished_store(output: str, record: Record, overwrite: bool) -> Manifest | None:
    """The store that these settings already made in this folder; None where there is work to do.

    A folder that holds something else is refused; another store is removed, if `overwrite` says so.
    """
    there = read_record(output)
    if there is None:
        if strange := [name for name in files.names_in(output) if not name.endswith(".tmp")]:
            raise UserError(
                f"--output {output}: there is something else in this folder ({strange[0]}): choose another one"
            )
    elif there.settings != record.settings:
        if not overwrite:
            raise UserError(
                f"--output {output}: it was made with other settings ({_differences(there, record)}): "
                f"choose another folder, or replace it with --overwrite"
            )
        remove_store(output)
    if not files.is_file(files.join(output, MANIFEST)):
        return None
    manifest = read_manifest(output)
    whole = all(files.info(files.join(output, shard.file)).size == shard.bytes for shard in manifest.shards)
    if not whole or not files.is_file(files.join(output, TOKENIZER_FOLDER, "tokenizer.json")):
        return None
    files.remove(files.join(output, WORK))  # there is one if the last run was killed in its last moment
    return manifest


def begin(output: str, record: Record) -> None:
    """Makes the folder this run's: whatever killed runs left half-written goes, their finished work stays."""
    files.remove_temporaries(output)
    files.remove(files.join(output, WORK, "progress"))
    write_record(output, record)


def abandon(output: str) -> None:
    """Leaves no trace of a run that found its input unusable before it made anything."""
    remove_store(output)
    files.remove_if_empty(output)


def remove_store(output: str) -> None:
    """Removes a store, its manifest first and its record last: what remains, if that is interrupted, can be told."""
    for name in OURS:
        files.remove(files.join(output, name))
    files.remove_temporaries(output)


def _differences(there: Record, here: Record) -> str:
    names = sorted(there.settings.keys() | here.settings.keys())
    pairs = [(name, there.settings.get(name), here.settings.get(name)) for name in names]
    return "; ".join(f"{name} {str(old)[:80]}, now {str(new)[:80]}" for name, old, new in pairs if old != new)
