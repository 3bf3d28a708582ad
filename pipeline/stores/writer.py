"""A job's output folder: free, half-made, finished, or somebody else's.

A run first works in `.work` inside of it. Nothing else there is touched until the run knows that it will succeed: it
then commits, and from that moment the folder is its own. So input that turns out to be bad harms no store that was
there before, and leaves nothing where there was none.
"""

from typing import Any

from pipeline.runtime import files
from pipeline.runtime.errors import UserError
from pipeline.stores.manifest import MANIFEST, Manifest, Record, read_manifest, read_record, write_record
from pipeline.text.tokenizer import TOKENIZER_FILES, TOKENIZER_FOLDER

WORK = ".work"
REJECTS = "rejects"


def store_there(output: str, record: Record, overwrite: bool) -> Manifest | None:
    """The manifest of the store that these settings made in this folder before; None where there is none.

    A folder with something else in it is refused, and one of other settings too, unless it may be overwritten.
    """
    begun, made = read_record(files.join(output, WORK)), read_record(output)
    owner = begun or made
    if owner is None:
        if strange := [name for name in files.names_in(output) if name != WORK and not name.endswith(".tmp")]:
            way_out = "repair it with pipeline/verify_store.py" if MANIFEST in strange else "choose another one"
            raise UserError(f"--output {output}: there is something else in this folder ({strange[0]}): {way_out}")
    elif owner.settings != record.settings and not overwrite:
        raise UserError(
            f"--output {output}: it was made with other settings ({differences(owner.settings, record.settings)}): "
            f"choose another folder, or replace it with --overwrite"
        )
    if made is None or made.settings != record.settings or not files.is_file(files.join(output, MANIFEST)):
        return None
    return read_manifest(output)


def is_whole(output: str, manifest: Manifest) -> bool:
    """Whether every file of a finished store is there, by name and size."""
    tokenizer = [files.join(output, TOKENIZER_FOLDER, name) for name in TOKENIZER_FILES]
    sizes = {files.join(output, shard.file): shard.bytes for shard in manifest.shards}
    return all(map(files.is_file, tokenizer)) and all(files.info(url).size == size for url, size in sizes.items())


def begin(output: str, record: Record) -> str:
    """Prepares the work folder and returns it: what killed runs left half-written goes, their finished work stays."""
    files.remove_temporaries(output)
    work = files.join(output, WORK)
    there = read_record(work)
    if there is None or there.settings != record.settings:
        files.remove(work)
    files.remove(files.join(work, "progress"))
    write_record(work, record)
    return work


def commit(output: str, tokenizer: str, record: Record) -> None:
    """Makes the folder this run's. Shards of another run are replaced one by one; its manifest goes first."""
    files.remove(files.join(output, MANIFEST))
    files.remove(files.join(output, REJECTS))
    for name in TOKENIZER_FILES:
        files.put(files.join(output, TOKENIZER_FOLDER, name), files.read(files.join(tokenizer, name)))
    write_record(output, record)


def abandon(output: str, existed: bool) -> None:
    """Leaves the folder as it was before a run that found its input to be bad."""
    files.remove(files.join(output, WORK))
    if not existed:
        files.remove_if_empty(output)


def differences(there: dict[str, Any], here: dict[str, Any]) -> str:
    """The settings that are not the same, each with both values."""
    names = sorted(there.keys() | here.keys())
    pairs = [(name, there.get(name), here.get(name)) for name in names]
    return "; ".join(f"{name} {str(old)[:80]}, now {str(new)[:80]}" for name, old, new in pairs if old != new)
