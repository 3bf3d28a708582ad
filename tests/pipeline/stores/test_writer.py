"""The one writer of stores: what its folder holds at every moment, whatever ends the run that writes it."""
# ruff: noqa: PT012 (a run is a block that ends with an error)

import json
import os
import pickle
import signal
from pathlib import Path

import pyarrow as pa
import pytest

import schemas
from pipeline.runtime import files
from pipeline.runtime.errors import ResumableError, UserError
from pipeline.stores.manifest import Manifest, Record, read_manifest
from pipeline.stores.reader import Store
from pipeline.stores.writer import StoreWriter
from pipeline.text.builtin_corpora import ALPHABET
from pipeline.text.tokenizer import character_tokenizer
from pipeline.verify_store import verify
from tests.helpers.stores import shard_path

SHARDS = 4
SETTINGS_DIGEST = "a" * 64


def rows(number: int) -> pa.Table:
    columns = {
        "window_id": [f"{number}-{place}" for place in range(5)],
        "corpus": ["c"] * 5,
        "split": ["train"] * 5,
        "document": ["d"] * 5,
        "offset": list(range(5)),
        "tokens": [[number, place, 3] for place in range(5)],
    }
    return pa.table(columns, schema=schemas.WINDOWS)


def writer_of(output: Path | str, settings: dict | None = None) -> StoreWriter:
    call = {"stage": "test", "settings": {}}
    return StoreWriter(str(output), Record(["test"], "/", settings or {"seed": 1}, call), "windows")


def save_tokenizer(folder: Path) -> str:
    character_tokenizer(ALPHABET).save(str(folder))
    return str(folder)


@pytest.fixture
def tokenizer(tmp_path: Path) -> str:
    return save_tokenizer(tmp_path / "tokenizer")


def make(writer: StoreWriter, tokenizer: str, shards: int = SHARDS) -> Manifest:
    """A run from beginning to end, as every stage has it."""
    with writer.held():
        if (there := writer.made_before(overwrite=False)) is not None:
            return there
        with writer.making():
            writer.claim(tokenizer)
            made = [
                writer.shard(writer.shard_files().get(number, ()), SETTINGS_DIGEST)
                or writer.write(number, rows(number), SETTINGS_DIGEST)
                for number in range(shards)
            ]
            description = character_tokenizer(ALPHABET).description
            return writer.finish(made, tokenizer=description, parent=None, seed=1, counts={"rows": 5 * shards})


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_finished_store_holds_its_rows_and_nothing_else(tmp_path, tokenizer):
    output = tmp_path / "store"
    manifest = make(writer_of(output), tokenizer)
    assert verify(str(output)) == []
    assert [row["tokens"].tolist() for row in Store(str(output)).rows(["tokens"])][:2] == [[0, 0, 3], [0, 1, 3]]
    assert sorted(path.name for path in output.iterdir()) == ["command.json", "manifest.json", "shards", "tokenizer"]
    assert read_manifest(str(output)).digest == manifest.digest
    assert not list(tmp_path.glob(".*.lock"))


def test_what_was_made_before_is_not_made_again_and_work_that_was_left_goes(tmp_path, tokenizer):
    output = tmp_path / "store"
    make(writer_of(output), tokenizer)
    before = files_of(output)
    (output / ".work").mkdir()
    (output / ".work/part").touch()
    with writer_of(output).held():
        assert writer_of(output).made_before(overwrite=False) is not None
    assert files_of(output) == before


def test_a_store_that_lacks_a_file_counts_as_begun(tmp_path, tokenizer):
    output = tmp_path / "store"
    make(writer_of(output), tokenizer)
    shard_path(output, 2).unlink()
    kept = shard_path(output, 1).stat().st_mtime_ns
    assert writer_of(output).made_before(overwrite=False) is None
    make(writer_of(output), tokenizer)
    assert verify(str(output)) == []
    assert shard_path(output, 1).stat().st_mtime_ns == kept


def test_other_settings_are_refused_unless_they_may_replace(tmp_path, tokenizer):
    output = tmp_path / "store"
    make(writer_of(output), tokenizer)
    other = writer_of(output, {"seed": 2})
    with pytest.raises(UserError, match=r"made with other settings \(seed 1, now 2\): .*--overwrite"):
        other.made_before(overwrite=False)
    assert other.made_before(overwrite=True) is None
    with other.making():
        other.claim(tokenizer)
        made = [other.write(number, rows(number), "b" * 64) for number in range(2)]
        description = character_tokenizer(ALPHABET).description
        other.finish(made, tokenizer=description, parent=None, seed=2, counts={})
    assert verify(str(output)) == []
    assert len(list((output / "shards").iterdir())) == 2


def test_a_folder_with_something_else_in_it_is_refused(tmp_path):
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(UserError, match=r"there is something else in this folder \(thesis.tex\)"):
        writer_of(tmp_path).made_before(overwrite=True)


def test_input_that_has_changed_is_named(tmp_path, tokenizer):
    writer = writer_of(tmp_path / "store")
    make(writer, tokenizer)
    with pytest.raises(UserError, match=r"a\.txt has changed: see --overwrite"):
        writer.made_before(overwrite=False, changed=lambda manifest: "a.txt has changed")
    assert writer.made_before(overwrite=True, changed=lambda manifest: "a.txt has changed") is None


@pytest.mark.parametrize("claimed", [False, True])
def test_bad_input_leaves_nothing_where_there_was_nothing(tmp_path, tokenizer, claimed):
    writer = writer_of(tmp_path / "store")
    with pytest.raises(UserError, match="bad"), writer.held(), writer.making():
        if claimed:
            writer.claim(tokenizer)
        raise UserError("bad")
    assert not (tmp_path / "store").exists()


def test_bad_input_harms_no_store_that_was_there(tmp_path, tokenizer):
    output = tmp_path / "store"
    make(writer_of(output), tokenizer)
    before = files_of(output)
    other = writer_of(output, {"seed": 2})
    with pytest.raises(UserError, match="bad"), other.held(), other.making():
        raise UserError("bad")
    assert files_of(output) == before


@pytest.mark.parametrize("error", [UserError("bad"), ResumableError("disk full"), RuntimeError("crash")])
def test_shards_that_were_finished_are_kept_whatever_ends_the_run(tmp_path, tokenizer, error):
    output = tmp_path / "store"
    writer = writer_of(output)
    with pytest.raises(type(error)), writer.held(), writer.making():
        writer.claim(tokenizer)
        shard = writer.write(0, rows(0), SETTINGS_DIGEST)
        raise error
    assert writer.shard([shard.file], SETTINGS_DIGEST) == shard
    assert writer.shard([shard.file], "b" * 64) is None
    make(writer, tokenizer)
    assert verify(str(output)) == []


@pytest.mark.parametrize("error", [ResumableError("disk full"), RuntimeError("crash")])
def test_work_is_kept_over_a_crash_and_dropped_with_other_settings(tmp_path, error):
    writer = writer_of(tmp_path / "store")
    with pytest.raises(type(error)), writer.making():
        Path(writer.work, "part").touch()
        raise error
    with pytest.raises(RuntimeError), writer.making():
        assert Path(writer.work, "part").exists()
        raise RuntimeError
    with pytest.raises(RuntimeError), writer_of(tmp_path / "store", {"seed": 2}).making():
        assert not Path(writer.work, "part").exists()
        raise RuntimeError


def test_a_second_writers_error_names_the_first(tmp_path):
    writer = writer_of(tmp_path / "store")
    with writer.held(), pytest.raises(UserError, match=f"process {os.getpid()} on .* is writing it"), writer.held():
        pytest.fail("two writers at once")


def test_a_shard_that_is_put_aside_is_listed_until_it_is_made(tmp_path, tokenizer):
    writer = writer_of(tmp_path / "store")
    with pytest.raises(RuntimeError), writer.making():
        writer.claim(tokenizer)
        writer.reject_shard(3, {"error": "no"})
        ((file, content),) = writer.rejected_shards()
        assert (Path(file).name, content) == ("shard-00003.json", {"shard": "shards/00003", "error": "no"})
        writer.write(3, rows(3), SETTINGS_DIGEST)
        assert writer.rejected_shards() == []
        raise RuntimeError


def test_documents_that_were_left_out_are_listed_a_line_each(tmp_path):
    writer = writer_of(tmp_path / "store")
    writer.list_rejects([])
    assert not (tmp_path / "store").exists()
    writer.list_rejects([{"file": "a"}, {"file": "b"}])
    lines = (tmp_path / "store/rejects/documents.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [{"file": "a"}, {"file": "b"}]


def test_workers_get_the_writer_pickled(tmp_path, tokenizer):
    writer = writer_of(tmp_path / "store")
    with writer.held():
        shard = pickle.loads(pickle.dumps(writer)).write(0, rows(0), SETTINGS_DIGEST)
        assert writer.shard(writer.shard_files()[0], SETTINGS_DIGEST) == shard


def killed(output: Path, tokenizer: str, call: int, moment: str) -> bool:
    """A run in a process of its own that is killed at the given file that it writes; False if it ended before."""
    child = os.fork()
    if not child:
        put, calls = files.put, 0

        def counted(url: str, data: bytes) -> None:
            nonlocal calls
            calls += 1
            if calls == call and moment == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            put(url, data)
            if calls == call:
                os.kill(os.getpid(), signal.SIGKILL)

        files.put = counted
        make(writer_of(output), tokenizer)
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_run_that_is_killed_at_any_file_continues_to_the_same_store(tmp_path, tokenizer, moment):
    """Every file that a run writes is a moment at which it is killed, before it or after it."""
    whole = tmp_path / "whole"
    make(writer_of(whole), tokenizer)
    wanted = {name: data for name, data in files_of(whole).items() if name.startswith(("shards", "tokenizer"))}
    call = 1
    while killed(output := tmp_path / f"{moment}-{call}", tokenizer, call, moment):
        if (output / "manifest.json").exists():
            assert verify(str(output)) == []
        make(writer_of(output), tokenizer)
        assert verify(str(output)) == []
        found = files_of(output)
        assert {name: found[name] for name in wanted} == wanted
        assert set(found) == {*wanted, "manifest.json", "command.json"}
        call += 1
    assert call == 10  # two records, the tokenizer's two files, four shards and the manifest: nine kills
