"""Large files are the work of many, and nothing shows of it: whole stores, made in one stretch a file and in many."""

import hashlib
import json
import os
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline import make_windows
from pipeline.stores.manifest import read_manifest
from pipeline.stores.writer import StoreWriter
from pipeline.text.tokenizer import train_tokenizer
from pipeline.verify_store import verify
from pipeline.windows import surveys, tokenise
from tests.helpers.commands import command, shard_bytes, words
from tests.helpers.processes import storm, timed

# Of the files below, made before files were ever divided.
DIGESTS = {
    "a.jsonl": "227c62dd13d3ff360ddd69f6151713a70308c71a7f8a09623d200c2a2ed292a9",
    "a.parquet": "227c62dd13d3ff360ddd69f6151713a70308c71a7f8a09623d200c2a2ed292a9",
    "a.txt": "794e76e154650f29978dcf9b91f7e367f1a29b088adb9974325bcb459290c1df",
    "wiki.txt": "95a3def0b89bab0dc9152e5edb49dc46610bd65ea67f3d6907e65c35d8cf98ff",
}
LENGTHS = [40, 3, 90, 200, 1, 40, 60, 25, 300, 8]


@pytest.fixture
def folder(tmp_path) -> Path:
    """The same documents in each format, one of them twice, and a tokenizer of bytes."""
    train_tokenizer([], 257).save(str(tmp_path / "bytes"))
    texts = [words(length, seed) for seed, length in enumerate(LENGTHS)] + [words(40, 0)]
    lines = [json.dumps({"text": text}, ensure_ascii=False).encode() for text in texts]
    (tmp_path / "a.jsonl").write_bytes(b"\n".join([*lines[:4], b"no JSON", b"", *lines[4:]]))
    (tmp_path / "b.jsonl").write_bytes(b"\r\n".join([lines[8], b"[]", *lines[2:6]]) + b"\r\n")
    pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet", row_group_size=2)
    (tmp_path / "a.txt").write_text(words(900, 11))
    (tmp_path / "wiki.txt").write_text("".join(f" = T {k} = \n\n {text} \n\n" for k, text in enumerate(texts)))
    return tmp_path


def make(folder: Path, pattern: str, output: str, *flags: str) -> str:
    given = ["--corpus=c", "--split=train", "--window=16", "--stride=5", "--shards=2", "--max_reject_fraction=0.2"]
    given += [f"--input={folder / pattern}", f"--tokenizer={folder / 'bytes'}", f"--output={folder / output}", *flags]
    make_windows.main(given)
    return str(folder / output)


def facts(store: str) -> list:
    """Everything about a store that could tell how its input was divided."""
    manifest, rejects = read_manifest(store), Path(store, "rejects", "documents.jsonl")
    listed = rejects.read_text() if rejects.exists() else ""
    return [shard_bytes(store), manifest.digest, manifest.counts, manifest.inputs, manifest.settings, listed]


@pytest.mark.slow
@pytest.mark.parametrize("name", DIGESTS)
def test_a_file_in_many_stretches_gives_the_store_that_it_always_gave(folder, name):
    whole = make(folder, name, "whole")
    assert read_manifest(whole).digest == DIGESTS[name]
    size = (folder / name).stat().st_size // 9
    assert facts(make(folder, name, "divided", f"--stretch_bytes={size}")) == facts(whole)


@pytest.mark.slow
@pytest.mark.parametrize("flags", ["--deduplicate", "--documents=1/2 --limit=300 --seed=3"])
def test_repeats_parts_and_limits_do_not_depend_on_the_stretches(folder, flags):
    whole = make(folder, "*.*", "whole", *flags.split())
    counts = read_manifest(whole).counts
    assert min(counts["repeated"], counts["rejected"], counts["windows"]) > 1
    many = ["--stretch_bytes=700", "--direct_num_workers=2"]
    assert facts(make(folder, "*.*", "divided", *flags.split(), *many)) == facts(whole)


@pytest.mark.slow
def test_finished_stretches_are_not_done_again(folder, monkeypatch):
    calls = Counter()

    def count(name, module):
        original = getattr(module, name)

        def call(*arguments, **options):
            calls[name] += 1
            return original(*arguments, **options)

        monkeypatch.setattr(module, name, call)

    def broken(*arguments):
        raise RuntimeError("power cut")

    for name, module in (("survey_file", surveys), ("write_tokens", tokenise), ("write_parts", tokenise)):
        count(name, module)
    with monkeypatch.context() as patch:
        patch.setattr(StoreWriter, "claim", broken)
        with pytest.raises(RuntimeError, match="power cut"):
            make(folder, "a.*", "store", "--stretch_bytes=1500")
    before = dict(calls)
    assert min(before.values()) > 5
    one = next(Path(folder, "store", ".work", "surveys").iterdir())
    one.write_bytes(one.read_bytes().replace(b'"documents": ', b'"documents": 1', 1))
    store = make(folder, "a.*", "store", "--stretch_bytes=1500")
    assert calls == before | {"survey_file": before["survey_file"] + 1}  # the one that was damaged
    assert verify(store) == []


@pytest.mark.slow
def test_a_killed_run_of_many_stretches_continues_to_the_same_store(tokenizer, tmp_path):
    lines = (json.dumps({"text": words(300, seed)}) for seed in range(600))
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    (tmp_path / "b.txt").write_text(words(80_000, 7))

    def job(output, *flags):
        arguments = ["--corpus=c", "--split=train", f"--tokenizer={tokenizer}", f"--input={tmp_path}/[ab].*"]
        return command("pipeline/make_windows.py", *arguments, f"--output={tmp_path / output}", *flags)

    timed(job("whole"))
    many = ["--stretch_bytes=90000", "--direct_num_workers=2"]
    seconds = timed(job("undisturbed", *many))
    storm(job("killed", *many), 2, seconds, seed=1)
    assert facts(f"{tmp_path}/killed") == facts(f"{tmp_path}/undisturbed") == facts(f"{tmp_path}/whole")
    assert sorted(os.listdir(tmp_path / "killed")) == ["command.json", "manifest.json", "shards", "tokenizer"]


@pytest.mark.slow
def test_of_near_copies_one_is_kept_whatever_the_workers_and_stretches(folder):
    """The store is that of the kept documents alone: of each group the one whose digest is the smallest."""
    groups = []
    for seed in range(12):
        text = words(300, seed)
        groups.append([text, f"{text} the end", f"Today: {text}"][: 1 + seed % 3])
    documents = [text for version in range(3) for group in groups for text in group[version : version + 1]]
    documents.append(documents[5])  # an equal one, too
    kept = {min(group, key=lambda text: hashlib.blake2b(text.encode(), digest_size=16).digest()) for group in groups}
    first = [text for place, text in enumerate(documents) if text in kept and text not in documents[:place]]

    def write(name, texts):
        (folder / name).write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))

    write("all.jsonl", documents)
    write("kept.jsonl", first)
    found = make(folder, "all.jsonl", "found", "--near_copies=0.8")
    counts = read_manifest(found).counts
    assert (counts["near_copies"], counts["repeated"]) == (len(set(documents)) - 12, 1)
    assert read_manifest(found).digest == read_manifest(make(folder, "kept.jsonl", "plain")).digest
    many = ["--stretch_bytes=5000", "--direct_num_workers=2"]
    assert facts(make(folder, "all.jsonl", "divided", "--near_copies=0.8", *many)) == facts(found)
