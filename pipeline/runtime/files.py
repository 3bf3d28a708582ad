"""Files on any filesystem that pyarrow or fsspec can open: local paths and gs:// URLs go through the same code."""

import glob as local_glob
import io
import os
import re
import shutil
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, BinaryIO, cast

import fsspec
import pyarrow as pa
from fsspec.utils import glob_translate
from pyarrow import fs

from pipeline.runtime import hub
from pipeline.runtime.errors import UserError

WILDCARDS = re.compile(r"[*?\[]")
# Where a finished upload appears at once and whole: a temporary name and a rename would only copy it.
OBJECT_STORES = {"gcs", "gs", "s3", "s3a", "abfs", "abfss", "az", "r2", "memory"}


def is_local(url: str) -> bool:
    return "://" not in url or url.startswith("file://")


def resolve(url: str) -> tuple[fs.FileSystem, str]:
    """The filesystem of a path or URL, and the path on it."""
    if "://" not in url:
        return fs.LocalFileSystem(), os.path.abspath(url)
    if hub.is_hub(url):
        return hub.filesystem(url)
    try:
        return cast(tuple[fs.FileSystem, str], fs.FileSystem.from_uri(url))
    except pa.ArrowInvalid:  # not one of pyarrow's own: fsspec knows many more
        try:
            system, path = fsspec.core.url_to_fs(url)
        except (ValueError, ImportError) as error:
            raise UserError(f"{url}: no filesystem for this URL: {error}") from None
        return fs.PyFileSystem(fs.FSSpecHandler(system)), path


def join(folder: str, *names: str) -> str:
    return "/".join([folder.rstrip("/") if folder != "/" else "", *names])


def identity(url: str) -> str:
    """One name for a file, however it was spelled."""
    return os.path.realpath(resolve(url)[1]) if is_local(url) else url


def info(url: str) -> fs.FileInfo:
    system, path = resolve(url)
    return system.get_file_info(path)


def exists(url: str) -> bool:
    return bool(info(url).type != fs.FileType.NotFound)


def is_file(url: str) -> bool:
    return bool(info(url).type == fs.FileType.File)


def open_stream(url: str, start: int = 0) -> BinaryIO:
    """Opens a file for reading from front to back, or from a byte on; .gz and .zst are decompressed."""
    system, path = resolve(url)
    if not start:
        return cast(BinaryIO, io.BufferedReader(system.open_input_stream(path, compression="detect"), 1 << 20))
    if is_compressed(url):
        raise ValueError(f"{url}: compressed, so it has no places")
    file = system.open_input_file(path)
    file.seek(start)
    return cast(BinaryIO, io.BufferedReader(file, 1 << 23))  # on an object store each filling is a request


def is_compressed(url: str) -> bool:
    """Whether `open_stream` decompresses it."""
    try:
        return bool(pa.Codec.detect(url))
    except (TypeError, ValueError):  # of a name that says nothing
        return False


def open_random(url: str) -> pa.NativeFile:
    """Opens a file for reading at any place."""
    system, path = resolve(url)
    return system.open_input_file(path)


def read(url: str) -> bytes:
    system, path = resolve(url)
    with system.open_input_stream(path, compression=None) as stream:
        return bytes(stream.read())


def put(url: str, data: bytes | pa.Buffer) -> None:
    """Writes a whole file or nothing: to a temporary name, flushed, renamed; on object stores one upload."""
    system, path = resolve(url)
    folder, name = path.rsplit("/", 1)
    if _is_object_store(system):
        with system.open_output_stream(path, compression=None) as stream:
            stream.write(data)
        return
    system.create_dir(folder, recursive=True)
    temporary = f"{folder}/.{name}.{uuid.uuid4().hex}.tmp"
    try:
        if isinstance(system, fs.LocalFileSystem):
            _put_local(folder, temporary, path, data)
        else:
            with system.open_output_stream(temporary, compression=None) as stream:
                stream.write(data)
            system.move(temporary, path)
    except BaseException:
        if system.get_file_info(temporary).type != fs.FileType.NotFound:
            system.delete_file(temporary)
        raise


def copy(source: str, target: str) -> None:
    """Copies a file of any size, here, from a bucket or to one; in a bucket it appears when it is whole."""
    (from_system, from_path), (to_system, to_path) = resolve(source), resolve(target)
    if not _is_object_store(to_system):
        to_system.create_dir(to_path.rsplit("/", 1)[0], recursive=True)
    with (
        from_system.open_input_stream(from_path, compression=None) as stream,
        to_system.open_output_stream(to_path, compression=None) as sink,
    ):
        shutil.copyfileobj(stream, sink, 1 << 24)


def copy_folder(source: str, target: str) -> None:
    """Copies all files below a folder, several at a time; where there is no folder, nothing."""
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: copy(join(source, name), join(target, name)), names_below(source)))


def _is_object_store(system: fs.FileSystem) -> bool:
    handler: Any = getattr(system, "handler", None)  # fsspec's filesystems name their own protocols
    protocol = getattr(getattr(handler, "fs", None), "protocol", system.type_name)
    return not OBJECT_STORES.isdisjoint([protocol] if isinstance(protocol, str) else protocol)


def _put_local(folder: str, temporary: str, path: str, data: bytes | pa.Buffer) -> None:
    with open(temporary, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    descriptor = os.open(folder, os.O_RDONLY)  # the new name itself must survive a power cut
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def names_in(folder: str) -> list[str]:
    """Names of the files and folders directly in a folder, sorted; none where the folder does not exist."""
    system, path = resolve(folder)
    # An object store has no folders of its own: what lies deeper shows that there is one.
    selector = fs.FileSelector(path, recursive=_is_object_store(system), allow_not_found=True)
    below = (entry.path.removeprefix(path).strip("/") for entry in system.get_file_info(selector))
    return sorted({name.split("/")[0] for name in below})


def names_below(folder: str) -> list[str]:
    """The files in a folder and in those inside of it, by their paths from there, sorted."""
    system, path = resolve(folder)
    entries = system.get_file_info(fs.FileSelector(path, recursive=True, allow_not_found=True))
    return sorted(entry.path.removeprefix(path).strip("/") for entry in entries if entry.type == fs.FileType.File)


def remove(folder: str, *names: str) -> None:
    """Deletes a file or a whole folder; with names, what they lead to in it. Nothing happens where there is none.

    Links are never followed: one at the end goes itself, one on the way, which a stranger may have put into the folder
    that was named, is an error.
    """
    url = join(folder, *names)
    system, path = resolve(url)
    if isinstance(system, fs.LocalFileSystem):
        _check_way(resolve(folder)[1], path)
        if os.path.isdir(path) and not os.path.islink(path):
            with suppress(FileNotFoundError):  # somebody else removes it too
                shutil.rmtree(path)
        elif os.path.lexists(path):
            os.unlink(path)
        return
    kind = system.get_file_info(path).type
    if kind == fs.FileType.File:
        system.delete_file(path)
    elif kind == fs.FileType.Directory:
        with suppress(FileNotFoundError):  # on an object store a folder is gone with its last file
            system.delete_dir(path)


def _check_way(folder: str, path: str) -> None:
    """That a path leads into this folder, and no link on the way out of it again."""
    inner = os.path.relpath(path, folder).split(os.sep)
    if os.pardir in inner:
        raise UserError(f"{path}: it does not lie in {folder}, and is not removed")
    for depth in range(1, len(inner)):
        step = os.path.join(folder, *inner[:depth])
        if os.path.islink(step):
            raise UserError(f"{step}: a link to {os.readlink(step)}, where nothing is removed: remove the link first")


def remove_if_empty(folder: str) -> None:
    if exists(folder) and not names_in(folder):
        remove(folder)


def is_temporary(name: str) -> bool:
    """Whether a file is one that `put` has not finished."""
    return name.startswith(".") and name.endswith(".tmp")


def remove_temporaries(folder: str) -> None:
    """Deletes what killed writers left below a folder, but not where a link leads to."""
    system, path = resolve(folder)
    if isinstance(system, fs.LocalFileSystem):
        for parent, _, names in os.walk(path):
            for name in filter(is_temporary, names):
                os.unlink(os.path.join(parent, name))
        return
    for entry in system.get_file_info(fs.FileSelector(path, recursive=True, allow_not_found=True)):
        if entry.type == fs.FileType.File and is_temporary(entry.base_name):
            system.delete_file(entry.path)


def glob(pattern: str) -> list[str]:
    """The files that a path, URL or pattern names, sorted; a folder is not a file."""
    if not WILDCARDS.search(pattern) or is_file(pattern):  # brackets can be part of a name
        return [pattern] if is_file(pattern) else []
    if "://" not in pattern:
        return sorted(path for path in local_glob.glob(pattern, recursive=True) if os.path.isfile(path))
    fixed = pattern[: WILDCARDS.search(pattern).start()].rsplit("/", 1)[0]  # type: ignore[union-attr]
    system, base = resolve(fixed)
    matches = re.compile(glob_translate(base + pattern[len(fixed) :])).match
    prefix = fixed[: len(fixed) - len(base)] if fixed.endswith(base) else fixed.split("://")[0] + "://"
    entries = system.get_file_info(fs.FileSelector(base, recursive=True, allow_not_found=True))
    return sorted(prefix + entry.path for entry in entries if entry.type == fs.FileType.File and matches(entry.path))
