"""Checkpoints that are whole or absent: a folder a step, and a mark that is written last.

OUTPUT/checkpoints/step-000500/            what DeepSpeed writes, every rank its part
OUTPUT/checkpoints/step-000500/whole.json  the mark: step, ranks, and where the best model was
OUTPUT/checkpoints/best-000400/            the best model so far, as save_pretrained writes it

The output may be in a bucket: then all this is written to a folder of the machine and copied, the mark last.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass

from pipeline.models.file_digests import write_digests
from pipeline.runtime import files
from pipeline.runtime.errors import ResumableError, UserError
from training.loop import mirror

CHECKPOINTS = "checkpoints"
MARK = "whole.json"
CONFIG = "config.json"
NOT_NUMBERS = (
    "there is more than numbers in this checkpoint, perhaps a program, and none of it was run: if it is not yours, "
    "do not use it; remove the folder, or start over with --resume never"
)


@dataclass(frozen=True)
class Mark:
    """What a whole checkpoint says of itself."""

    step: int
    ranks: int
    stage: int
    best_step: int | None
    best_value: float | None


def name_of(step: int) -> str:
    return f"step-{step:06d}"


def best_name(step: int) -> str:
    return f"best-{step:06d}"


def newest(output: str) -> Mark | None:
    """The last whole checkpoint of a run, if there is one."""
    found = [mark for name in _names(output) if (mark := _read_mark(output, name)) is not None]
    return max(found, key=lambda mark: mark.step, default=None)


def folder_of(output: str, name: str = "") -> str:
    """Of all checkpoints, or of one, on this machine."""
    folder = os.path.join(mirror.working_folder(output), CHECKPOINTS)
    return os.path.join(folder, name) if name else folder


def fetch(output: str, mark: Mark | None, best: bool) -> None:
    """Brings a checkpoint to this machine, if it is not here: for one process a disk. The best model, if wanted."""
    mirror.start_empty(output)
    if mark is not None:
        mirror.fetch(output, f"{CHECKPOINTS}/{name_of(mark.step)}")
        if best and mark.best_step is not None:
            mirror.fetch(output, f"{CHECKPOINTS}/{best_name(mark.best_step)}", mirror.LOGS)


def upload_parts(output: str, step: int) -> None:
    """Brings what this machine's ranks wrote of a checkpoint to where it counts: for one process a disk."""
    if not files.is_local(output):
        mirror.upload(output, f"{CHECKPOINTS}/{name_of(step)}")
        files.remove(mirror.working_folder(output), CHECKPOINTS, name_of(step))


def finish(output: str, mark: Mark) -> None:
    """Makes a checkpoint count: what it consists of is flushed, or uploaded, then its mark is written."""
    for parent, _, names in os.walk(folder_of(output, name_of(mark.step))):
        for name in names:
            _flush(os.path.join(parent, name))
        _flush(parent)
    best = best_name(mark.best_step) if mark.best_step is not None else ""
    if best and best not in _names(output):
        mirror.upload(output, f"{CHECKPOINTS}/{best}")
    mirror.upload(output, mirror.LOGS)
    files.put(files.join(output, CHECKPOINTS, name_of(mark.step), MARK), json.dumps(asdict(mark)).encode())


def keep_only(output: str, mark: Mark | None) -> None:
    """Removes everything but the checkpoint of this mark and the best model that it names."""
    kept = {name_of(mark.step), best_name(mark.best_step) if mark.best_step is not None else ""} if mark else set()
    for name in {*_names(output), *_names(mirror.working_folder(output))} - kept:
        discard(output, name)


def discard(output: str, name: str) -> None:
    """Removes one checkpoint, its mark first, so that a half-removed one does not count."""
    files.remove(output, CHECKPOINTS, name, MARK)
    files.remove(output, CHECKPOINTS, name)
    files.remove(mirror.working_folder(output), CHECKPOINTS, name)


def as_universal(output: str, mark: Mark) -> str:
    """The checkpoint in DeepSpeed's universal form, which any number of ranks can load; returns its name."""
    source = folder_of(output, name_of(mark.step))
    target = f"{source}-universal"
    files.remove(mirror.working_folder(output), CHECKPOINTS, os.path.basename(target))
    command = [sys.executable, "-P", "-m", "training.loop.universal", "--inject_missing_state"]
    command += ["--input_folder", source, "--output_folder", target]
    command += ["--num_extract_workers", "2", "--num_merge_workers", "2"]
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode:
        reason = (ended.stderr.strip().splitlines() or ["no reason given"])[-1]
        if "weights_only" in ended.stderr or "Weights only" in ended.stderr:
            raise UserError(f"{source}: {NOT_NUMBERS}")
        raise ResumableError(f"{source}: DeepSpeed could not convert it for another number of ranks ({reason})")
    return os.path.basename(target)


def save_best(output: str, step: int, write: Callable[[str], None]) -> None:
    """Has the best model so far written into a folder of its own, whole or not at all."""
    folder = folder_of(output, best_name(step))
    temporary = f"{folder}.tmp"
    files.remove(temporary)
    write(temporary)
    write_digests(temporary)
    files.remove(folder)
    os.replace(temporary, folder)


def publish_best(output: str, step: int) -> None:
    """Makes the output the best model's folder; its config.json comes last, and with it the training has ended."""
    folder = folder_of(output, best_name(step))
    names = os.listdir(folder) if os.path.isdir(folder) else []
    for name in sorted(names, key=lambda name: name == CONFIG):
        path = os.path.join(folder, name)
        if files.is_local(output):
            os.chmod(path, 0o666 & ~_umask())  # safetensors makes files that nobody else may read
            _flush(path)
            os.replace(path, os.path.join(output, name))
        else:
            files.copy(path, files.join(output, name))
    if files.is_local(output):
        _flush(output)
    discard(output, best_name(step))


def is_finished(output: str) -> bool:
    return files.is_file(files.join(output, CONFIG))


def start_over(output: str) -> None:
    """Removes a model and its checkpoints, the model's config.json first."""
    for name in (CONFIG, CHECKPOINTS, mirror.LOGS):
        files.remove(output, name)


def _names(output: str) -> list[str]:
    return files.names_in(files.join(output, CHECKPOINTS))


def _read_mark(output: str, name: str) -> Mark | None:
    path = files.join(output, CHECKPOINTS, name, MARK)
    if not re.fullmatch(r"step-\d+", name) or not files.is_file(path):
        return None
    try:
        mark = Mark(**json.loads(files.read(path)))
        counts = [mark.step, mark.ranks, mark.stage, 0 if mark.best_step is None else mark.best_step]
        whole = all(type(count) is int and 0 <= count < 2**63 for count in counts)
        value = mark.best_value is None or type(mark.best_value) in (int, float)
        return mark if whole and value and name_of(mark.step) == name else None
    except (ValueError, TypeError, RecursionError):  # spoiled: what it stands for cannot be trusted either
        return None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _flush(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
