import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from transformers import AutoTokenizer

from pipeline import make_windows, verify_store
from pipeline.runtime import files
from pipeline.runtime.errors import ResumableError, UserError
from pipeline.stores import writer
from pipeline.stores.manifest import Record, read_manifest
from pipeline.stores.reader import Store
from pipeline.stores.writer import StoreWriter
from pipeline.text import tokenizer as tokenizer_module
from pipeline.verify_store import verify
from pipeline.windows import parts, surveys, tokenise
from pipeline.windows import shards as windows_shards
from pipeline.windows.job import WindowsJob
from pipeline.windows.settings import WindowsSettings
from tests.helpers.commands import DATA, command, free_port, run, serving, shard_bytes, words
from tests.helpers.processes import await_end, await_sign, run_group, started, storm, timed
from tests.helpers.stores import shard_name, shard_path

INVALID = "invalid UTF-8 (see --encoding)"


def texts_of(path: Path) -> list[str]:
    if path.suffix == ".jsonl":
        return [json.loads(line)["text"] for line in path.read_text().splitlines()]
    return [path.read_text()]


def expected_rows(paths, tokenizer, window, stride) -> Counter:
    """What should be in the store, computed another way: transformers' tokenizer, whole documents, Python lists."""
    encode = AutoTokenizer.from_pretrained(tokenizer)
    found: Counter = Counter()
    for path in paths:
        stream, owners = [], []
        for number, text in enumerate(texts_of(path)):
            ids = encode(text).input_ids
            if number:
                ids = [encode.eos_token_id, *ids]
                owners.append((owners[-1][0], owners[-1][1] + 1))
            digest = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
            owners += [(digest, offset) for offset in range(len(ids) - (number > 0))]
            stream += ids
        for start in range(0, len(stream) - window + 1, stride):
            found[(*owners[start], tuple(stream[start : start + window]))] += 1
    return found


def found_rows(store: str) -> Counter:
    rows = Store(store).rows(["document", "offset", "tokens"])
    return Counter((row["document"].split(".")[0], row["offset"], tuple(row["tokens"].tolist())) for row in rows)


def test_the_store_holds_every_window_of_the_text_and_nothing_else(windows, texts, tokenizer, monkeypatch):
    monkeypatch.setattr(tokenizer_module, "CHUNK", 300)
    monkeypatch.setattr(tokenise, "BATCH_CHARACTERS", 2000)
    monkeypatch.setattr(parts, "PART_ROWS", 200)
    store = windows(texts / "*")
    assert found_rows(store) == expected_rows(sorted(texts.iterdir()), tokenizer, 16, 4)
    manifest = read_manifest(store)
    assert manifest.counts["documents"] == 4 + 22
    assert manifest.counts["repeated"] == 1
    assert manifest.counts["windows"] == manifest.rows == len(Store(store))
    assert manifest.parent is None
    assert {entry["file"] for entry in manifest.inputs} == {str(path) for path in texts.iterdir()}
    assert verify(store) == []


def test_ids_are_unique_and_shards_and_their_order_follow_from_them(windows, texts):
    store = Store(windows(texts / "*"))
    ids = [row["window_id"] for row in store.rows(["window_id"])]
    assert len(set(ids)) == len(ids)
    for row in store.rows():
        address = f"test\0train\0{row['document']}\0{row['offset']}".encode()
        assert row["window_id"] == hashlib.blake2b(address, digest_size=16).hexdigest()

    def splitmix(value):
        value = (value + 0x9E3779B97F4A7C15) % 2**64
        value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        value = (value ^ value >> 27) * 0x94D049BB133111EB % 2**64
        return value ^ value >> 31

    orders = [splitmix(int(id[:16], 16)) for id in ids]
    assert orders == sorted(orders)
    rows = [shard.rows for shard in store.manifest.shards]
    assert rows == [sum(order * 3 >> 64 == number for order in orders) for number in range(3)]


@pytest.mark.slow
def test_workers_order_and_names_of_files_change_no_byte(windows, texts, tmp_path):
    first = windows(*sorted(texts.iterdir()), output="one")
    moved = tmp_path / "moved"
    moved.mkdir()
    for number, path in enumerate(sorted(texts.iterdir(), reverse=True)):
        shutil.copy(path, moved / f"{number}{path.suffix}")
    second = windows(*sorted(moved.iterdir()), output="two", flags="--direct_num_workers 2")
    assert shard_bytes(first) == shard_bytes(second)
    assert read_manifest(first).digest == read_manifest(second).digest


@pytest.mark.slow
def test_another_runner_changes_no_byte(windows, texts):
    port = free_port()
    server = [sys.executable, "-m", "apache_beam.runners.portability.local_job_service_main", "--job_port", str(port)]
    with serving(server, port):
        flags = f"--runner PortableRunner --job_endpoint localhost:{port} --environment_type LOOPBACK"
        assert shard_bytes(windows(texts / "*", output="portable", flags=flags)) == shard_bytes(windows(texts / "*"))


@pytest.mark.slow
@pytest.mark.usefixtures("warm_repairs")
def test_an_object_store_is_read_and_written_as_a_folder_is(texts, tokenizer, windows, monkeypatch):
    port = free_port()
    bucket = "gs://anonymous@corpora"
    monkeypatch.setenv("CLOUD_STORAGE_EMULATOR_ENDPOINT", f"http://localhost:{port}")
    emulator = [str(Path(sys.executable).parent / "gcp-storage-emulator"), "start", "--in-memory", f"--port={port}"]
    with serving([*emulator, "--host=localhost", "--default-bucket=corpora"], port):
        for path in texts.iterdir():
            files.put(f"{bucket}/texts/{path.name}", path.read_bytes())
        arguments = ["--corpus=test", "--split=train", "--window=16", "--stride=4", "--shards=3"]
        arguments += [f"--tokenizer={tokenizer}", f"--input={bucket}/texts/*", f"--output={bucket}/stores/one"]
        arguments += ["--stretch_bytes=3000"]
        make_windows.main(arguments)
        local = windows(texts / "*")
        for name, content in shard_bytes(local).items():
            assert files.read(f"{bucket}/stores/one/shards/{name}") == content
        assert Store(f"{bucket}/stores/one")[77]["tokens"].tolist() == Store(local)[77]["tokens"].tolist()
        assert files.names_in(f"{bucket}/stores/one") == ["command.json", "manifest.json", "shards", "tokenizer"]
        files.remove(f"{bucket}/stores/one/{shard_name(local, 1)}")
        assert [problem.file for problem in verify(f"{bucket}/stores/one")] == [shard_name(local, 1)]
        assert verify_store.main([f"{bucket}/stores/one", "--repair", "--trust"]) == 0


@pytest.mark.slow
def test_the_number_of_shards_changes_no_row_nor_their_order(windows, texts):
    def rows(store):
        return [(row["window_id"], row["tokens"].tolist()) for row in Store(store).rows()]

    one, many = windows(texts / "*", output="one", flags="--shards 1"), windows(texts / "*", flags="--shards 7")
    assert rows(one) == rows(many)
    assert len(read_manifest(many).shards) == 7


@pytest.mark.slow
def test_another_seed_shuffles_otherwise(windows, texts):
    ids = [
        [
            row["window_id"]
            for row in Store(windows(texts / "*", output=seed, flags=f"--seed {seed}")).rows(["window_id"])
        ]
        for seed in ("0", "1")
    ]
    assert sorted(ids[0]) == sorted(ids[1])
    assert ids[0] != ids[1]


@pytest.mark.slow
def test_parts_of_the_documents_have_none_in_common_and_are_all_together(texts, windows):
    whole = Store(windows(texts / "*.jsonl", output="whole"))
    parts = [Store(windows(texts / "*.jsonl", output=f"part-{part}", flags=f"--documents {part}/2")) for part in (1, 2)]
    names = [{row["document"] for row in store.rows(["document"])} for store in (whole, *parts)]
    assert names[1] | names[2] == names[0]
    assert min(map(len, names)) > 3
    digests = [{name.partition(":")[0] for name in found} for found in names[1:]]
    assert not digests[0] & digests[1]
    assert parts[0].manifest.settings["documents"] == "1/2"
    assert "documents" not in whole.manifest.settings


def test_a_limit_takes_the_first_windows_of_the_shuffled_order(windows, texts, monkeypatch):
    monkeypatch.setattr(parts, "PART_ROWS", 300)
    whole, some = Store(windows(texts / "*")), Store(windows(texts / "*", output="some", flags="--limit 500"))
    ids = [row["window_id"] for row in whole.rows(["window_id"])]
    assert [row["window_id"] for row in some.rows(["window_id"])] == ids[:500]
    assert min(shard.rows for shard in some.manifest.shards) > 100
    beyond = Store(windows(texts / "*", output="beyond", flags="--limit 999999"))
    assert len(beyond) == len(whole)


@pytest.mark.slow
def test_equal_documents_are_kept_apart_or_dropped(windows, tmp_path):
    text = words(200, 0)
    for name in "ab":
        (tmp_path / f"{name}.jsonl").write_text(
            json.dumps({"text": text}) + "\n" + json.dumps({"text": name * 99}) + "\n"
        )
    both = Store(windows(tmp_path / "*.jsonl", output="both"))
    one = Store(windows(tmp_path / "*.jsonl", output="one", flags="--deduplicate"))
    inside = Counter(row["document"].partition(".")[2] for row in both.rows(["document"]))
    digest = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    assert inside["1"] == sum(row["document"] == digest for row in both.rows(["document"]))
    assert {row["document"] for row in one.rows(["document"])} & {f"{digest}.1"} == set()
    assert both.manifest.counts["repeated"] == one.manifest.counts["repeated"] == 1
    assert len(one) < len(both)


@pytest.mark.slow
def test_documents_that_cannot_be_used_are_listed_and_counted(windows, tmp_path, tokenizer):
    lines = [json.dumps({"text": words(60, k)}).encode() for k in range(40)]
    lines[7] = b'{"text": "bad \xff byte"}'
    lines[20] = b'{"text": ""}'
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines))
    store = windows(tmp_path / "a.jsonl", flags="--max_reject_fraction 0.05")
    manifest = read_manifest(store)
    assert (manifest.counts["documents"], manifest.counts["rejected"], manifest.counts["empty"]) == (40, 1, 1)
    (reject,) = map(json.loads, Path(store, "rejects", "documents.jsonl").read_text().splitlines())
    offset = sum(len(line) + 1 for line in lines[:7]) + 14
    expected = {"file": str(tmp_path / "a.jsonl"), "document": 7, "byte_offset": offset, "reason": INVALID}
    assert reject == expected
    good = tmp_path / "good.jsonl"
    good.write_bytes(b"\n".join(lines[:7] + lines[8:20] + lines[21:]))
    assert found_rows(store) == expected_rows([good], tokenizer, 16, 4)
    with pytest.raises(
        UserError, match=r"1 of 40 documents .*--max_reject_fraction 0.01 .*a.jsonl at \d+: invalid UTF-8"
    ):
        windows(tmp_path / "a.jsonl", output="strict")
    assert not (tmp_path / "strict").exists()


@pytest.mark.slow
def test_a_store_can_train_its_own_tokenizer(windows, texts):
    store = windows(texts / "*.txt", flags="--train_tokenizer 300")
    again = windows(texts / "*.txt", output="again", flags="--train_tokenizer 300 --direct_num_workers 2")
    assert read_manifest(store).tokenizer["vocabulary_size"] == 300
    assert shard_bytes(store) == shard_bytes(again)
    assert found_rows(store) == expected_rows(sorted(texts.glob("*.txt")), f"{store}/tokenizer", 16, 4)


def test_one_sum_in_each_window(tmp_path):
    store = str(tmp_path / "sums")
    make_windows.main(["--input=builtin:sums:lines=500", "--split=valid", f"--output={store}"])
    decode = AutoTokenizer.from_pretrained(f"{store}/tokenizer").decode
    lines = [decode(row["tokens"]) for row in Store(store).rows(["tokens"])]
    assert len(lines) == 500
    for line in lines:
        a, b, c = int(line[:3]), int(line[4:7]), int(line[8:12])
        assert line == f"{a:03}+{b:03}={c:04}\n"
        assert a + b == c


def test_a_second_run_does_nothing(windows, texts, capsys):
    store = windows(texts / "*")
    before = {path: path.stat().st_mtime_ns for path in Path(store).rglob("*")}
    windows(texts / "*")
    assert "finished before, nothing to do" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in Path(store).rglob("*")} == before


@pytest.mark.slow
def test_other_settings_are_refused_by_name_and_replaced_on_request(windows, texts):
    store = windows(texts / "*")
    before = read_manifest(store).digest
    with pytest.raises(UserError, match=r"--output .*store: .*other settings \(seed 0, now 5\).*--overwrite"):
        windows(texts / "*", flags="--seed 5")
    (texts / "0.txt").write_text("another text")
    with pytest.raises(UserError, match=r"other settings \(inputs "):
        windows(texts / "*")
    assert read_manifest(store).digest == before
    windows(texts / "*", flags="--seed 5 --overwrite --shards 2")
    assert len(shard_bytes(store)) == len(read_manifest(store).shards) == 2
    assert verify(store) == []


@pytest.mark.slow
def test_text_that_changed_since_is_noticed_even_at_the_same_size(windows, texts):
    store = windows(texts / "*")
    before = read_manifest(store).digest
    text = (texts / "0.txt").read_text()
    later = time.time() + 10
    (texts / "0.txt").write_text(text)
    os.utime(texts / "0.txt", (later, later))
    windows(texts / "*")  # touched, but the same
    (texts / "0.txt").write_text(text[::-1])
    os.utime(texts / "0.txt", (later, later))
    with pytest.raises(UserError, match=r"0.txt: it has changed since .*store was made from it: see --overwrite"):
        windows(texts / "*")
    windows(texts / "*", flags="--overwrite")
    assert read_manifest(store).digest != before
    assert verify(store) == []


@pytest.mark.slow
def test_another_text_of_the_same_name_size_and_age_is_another_text(windows, tmp_path):
    for folder, seed in (("one", 1), ("two", 2)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.txt").write_bytes(words(3000, seed).encode("ascii", "ignore")[:9000])
        os.utime(tmp_path / folder / "a.txt", (10**9, 10**9))
        (tmp_path / folder / "set").mkdir()
        pq.write_table(pa.table({"text": [words(300, seed)]}), tmp_path / folder / "set" / "train.parquet")
    windows(tmp_path / "one" / "a.txt")
    with pytest.raises(UserError, match=r"two/a.txt: it has changed since"):
        windows(tmp_path / "two" / "a.txt")
    windows(f"hf:{tmp_path}/one/set", output="sets")
    with pytest.raises(UserError, match=r"other settings \(inputs "):
        windows(f"hf:{tmp_path}/two/set", output="sets")


@pytest.mark.slow
def test_what_fails_does_not_cost_the_store_that_was_there(windows, texts):
    store = windows(texts / "*")
    before = {path: path.read_bytes() for path in Path(store).rglob("*") if path.is_file()}
    with pytest.raises(UserError, match="no file is long enough"):
        windows(texts / "*", flags="--window 1000000 --overwrite")
    (texts / "bad.txt").write_bytes(b"\xff")
    with pytest.raises(UserError, match="cannot be used"):
        windows(texts / "*", flags="--overwrite")
    assert {path: path.read_bytes() for path in Path(store).rglob("*") if path.is_file()} == before


@pytest.mark.slow
def test_damaged_parts_of_a_killed_run_are_made_again(windows, texts, monkeypatch):
    def broken(*arguments):
        raise RuntimeError("power cut")

    for damage in ("flip", "cut", "remove"):
        with monkeypatch.context() as patch:
            patch.setattr(StoreWriter, "claim", broken)
            with pytest.raises(RuntimeError, match="power cut"):
                windows(texts / "*", output=damage)
        (part,) = Path(windows.folder, damage, ".work", "parts").rglob("*.parquet")
        data = bytearray(part.read_bytes())
        if damage == "remove":
            part.unlink()
        elif damage == "cut":
            part.write_bytes(data[:-1000])
        else:
            data[len(data) // 2] ^= 1
            part.write_bytes(data)
            with pytest.raises(UserError, match=r"damaged and removed .* run the same command again"):
                windows(texts / "*", output=damage)
        assert shard_bytes(windows(texts / "*", output=damage)) == shard_bytes(windows(texts / "*", output="whole"))


@pytest.mark.parametrize("moment", ["before the folder is claimed", "after it"])
def test_a_damaged_part_costs_no_other(windows, texts, monkeypatch, moment):
    """The run that finds it keeps the other files' parts; the same command tokenises the one file again."""
    flags = "--limit 1000" if moment.startswith("before") else ""  # a limit is found in the parts themselves
    whole = windows(texts / "*.txt", output="whole", flags=flags)
    monkeypatch.setattr(surveys, "GROUP_BYTES", 1)
    tokenised = Counter()
    cut = tokenise.cut_windows

    def counted(*arguments):
        tokenised["files"] += 1
        return cut(*arguments)

    def broken(*arguments):
        raise RuntimeError("power cut")

    monkeypatch.setattr(tokenise, "cut_windows", counted)
    with monkeypatch.context() as patch:
        patch.setattr(StoreWriter, "claim", broken)
        with pytest.raises(RuntimeError, match="power cut"):
            windows(texts / "*.txt", flags=flags)
    first, *others = sorted(Path(windows.folder, "store", ".work", "parts").rglob("*.parquet"))
    assert tokenised["files"] == 1 + len(others) == 4
    data = bytearray(first.read_bytes())
    data[len(data) // 2] ^= 1
    first.write_bytes(data)
    with pytest.raises(ResumableError, match=r"damaged and removed .*: run the same command again$"):
        windows(texts / "*.txt", flags=flags)
    assert not first.exists()
    assert all(part.exists() for part in others)
    assert shard_bytes(windows(texts / "*.txt", flags=flags)) == shard_bytes(whole)
    assert tokenised["files"] == 5


@pytest.mark.slow
def test_neighbouring_shards_are_written_together_and_come_out_the_same(windows, texts, monkeypatch):
    alone = windows(texts / "*", flags="--shards 40")
    for name, value in (("RUN_ROWS", 10**6), ("LEAST_RUNS", 3)):
        monkeypatch.setattr(windows_shards, name, value)
    together = windows(texts / "*", output="together", flags="--shards 40")
    assert shard_bytes(alone) == shard_bytes(together)
    for number in (0, 7, 8, 39):
        shard_path(together, number).unlink()
    assert shard_bytes(windows(texts / "*", output="together", flags="--shards 40")) == shard_bytes(alone)


@pytest.mark.slow
def test_shards_too_many_that_an_unfinished_run_left_are_removed(windows, texts):
    store = Path(windows(texts / "*"))
    shutil.copy(shard_path(store, 0), store / "shards/00009-00000000.parquet")
    (store / "manifest.json").unlink()
    assert verify(windows(texts / "*")) == []


def test_a_folder_with_something_else_in_it_is_left_alone(windows, texts, tmp_path):
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "thesis.tex").write_text("years of work")
    for flags in ("", "--overwrite"):
        with pytest.raises(UserError, match=r"--output .*something else in this folder \(thesis.tex\)"):
            windows(texts / "*", flags=flags)
    assert os.listdir(tmp_path / "store") == ["thesis.tex"]


BAD = {
    "--window 1": "--window 1: at least 2",
    "--stride 0": "--stride 0: at least 1",
    "--shards 0": "--shards 0: at least 1",
    "--limit 0": "--limit 0: at least 1",
    "--window 100000": "no file is long enough for one window of 100000 tokens",
    "--tokenizer /nowhere": "--tokenizer /nowhere: neither a folder",
    "--train_tokenizer 300 --tokenizer x": "--train_tokenizer: not together with --tokenizer",
    "--max_reject_fraction 7": "--max_reject_fraction 7.0: between 0 and 1",
    "--input /nowhere/*.txt": r"--input /nowhere/\*.txt: no file matches",
    "--srtide 4": "unknown option --srtide",
    "--direct_num_worker 4": "unknown option --direct_num_worker: did you mean --direct_num_workers",
    "--input builtin:sums": "builtin:sums: a built-in corpus stands alone",
    "--window x": "argument --window: invalid int value: 'x'",
    "--stride 999999999999": "--stride 999999999999: at most 1000000000",
    "--seed -1": "--seed -1: at least 0",
    "--train_tokenizer 256": "--train_tokenizer 256: at least 257",
    "--encoding klingon": "--encoding klingon: Python knows no such encoding",
    "--encoding utf-16": "1 of 1 documents cannot be used.*invalid UTF-16",
    "--encoding zlib": "--encoding zlib: Python knows no such encoding of text",
    "--runner Nope": "--runner Nope: Unexpected pipeline runner",
    "--direct_num_workers -3": "--direct_num_workers: at least 0",
    "--direct_num_workers x": "argument --direct_num_workers",
    "another.txt": "another.txt: not an option: quote the pattern",
    "--corpus=": "--corpus: give the corpus a name",
    "--corpus=a\x07b": "only such as can be printed",
    "--split=": "--split '': it must have characters",
}


@pytest.mark.parametrize("flags", BAD)
def test_bad_input_is_named_and_leaves_nothing(windows, texts, tmp_path, flags):
    with pytest.raises(UserError, match=BAD[flags]):
        windows(texts / "0.txt", flags=flags)
    assert sorted(os.listdir(tmp_path)) == ["texts"]


@pytest.mark.slow
def test_bad_input_ends_the_command_with_one_line_and_code_2(texts, tokenizer, tmp_path):
    (texts / "bad.txt").write_bytes(b"text \xff")
    arguments = ["--corpus=c", "--split=train", f"--tokenizer={tokenizer}", f"--output={tmp_path}/s"]
    for workers in ("1", "2"):  # the error comes from a worker, in this process or in another one
        (texts / "0.jsonl").write_text('{"\\ud800": 1}\n')  # what no message can carry as it is
        given = [*arguments, f"--direct_num_workers={workers}"]
        ended = run("pipeline/make_windows.py", *given, f"--input={texts}/0.jsonl")
        assert (ended.returncode, len(ended.stderr.splitlines())) == (2, 1)
        # Once as it starts for users: nothing that it imports has anything to say either.
        ended = run("pipeline/make_windows.py", *given, f"--input={texts}/*.txt", cold=workers == "1")
        assert ended.returncode == 2
        (line,) = ended.stderr.splitlines()
        assert line.startswith("error: 1 of 5 documents cannot be used")
        assert f"{texts}/bad.txt at 5: invalid UTF-8" in line
        assert ended.stdout == ""
        assert sorted(os.listdir(tmp_path)) == ["texts"]


def test_a_limit_spills_little_more_than_it_keeps():
    from pipeline.windows.cutting import Windows
    from pipeline.windows.parts import PartBuffer

    buffer = PartBuffer("c", "s", 0, 2, most=100)
    for batch in range(50):
        buffer.add(Windows(["d"] * 200, np.arange(200) + 200 * batch, np.zeros((200, 4), np.int32)))
    assert 100 <= buffer.rows < 1000  # of 10,000


def test_names_with_brackets_spaces_and_the_same_file_twice(windows, texts, monkeypatch):
    shutil.copy(texts / "0.txt", texts / "a [1].txt")
    monkeypatch.chdir(texts)
    once = windows(texts / "0.txt", output="once")
    assert shard_bytes(windows("a [1].txt", output="name")) == shard_bytes(once)
    assert shard_bytes(windows(texts / "0.txt", "./0.txt", output="twice")) == shard_bytes(once)
    (texts / "empty.txt").write_text("")
    assert shard_bytes(windows(texts / "0.txt", texts / "empty.txt", output="empty")) == shard_bytes(once)


def test_a_store_is_not_its_own_input(windows, texts):
    with pytest.raises(UserError, match=r"--input .*0.txt: it lies in --output"):
        make_windows.main(
            ["--corpus=c", "--split=s", f"--input={texts}/*", f"--output={texts}", "--train_tokenizer=300"]
        )


def test_folders_that_were_made_for_nothing_are_removed(windows, texts, tmp_path):
    with pytest.raises(UserError, match="no file is long enough"):
        windows(texts / "*", output="new/deep/store", flags="--window 1000000")
    assert sorted(os.listdir(tmp_path)) == ["texts"]


def test_a_file_that_cannot_be_read_is_named(windows, texts):
    (texts / "broken.txt.gz").write_bytes(b"\x1f\x8b\x08 not gzip")
    with pytest.raises(UserError, match=r"broken.txt.gz: cannot be read"):
        windows(texts / "*")


@pytest.mark.slow
def test_a_full_disk_is_named_and_the_run_continues_when_there_is_room(texts, tokenizer, tmp_path):
    arguments = ["--corpus=c", "--split=train", f"--tokenizer={tokenizer}", "--window=16", "--stride=4"]
    arguments += [f"--input={texts}/*.txt", f"--output={tmp_path}/s"]
    limited = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))\n"  # stands for a disk with no more room
        "from pipeline import make_windows; from pipeline.runtime import errors; errors.exit_with(make_windows.main)"
    )
    ended = run_group([sys.executable, "-c", limited, *arguments])
    assert ended.returncode == 2, ended.stderr
    assert ended.stderr.count("\n") == 1
    assert "File too large" in ended.stderr
    make_windows.main(arguments)
    assert verify(f"{tmp_path}/s") == []
    assert found_rows(f"{tmp_path}/s") == expected_rows(sorted(texts.glob("*.txt")), tokenizer, 16, 4)


@pytest.fixture(scope="module")
def big_text(tmp_path_factory):
    """Enough text that a run has several groups of files, parts and shards, and can be killed in each stage."""
    folder = tmp_path_factory.mktemp("big")
    for number in range(12):
        (folder / f"{number}.txt").write_text(words(90_000, number))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "kills"), [(1, 3)])
def test_a_killed_run_continues_to_the_same_store(big_text, tokenizer, tmp_path, workers, kills):
    def job(output):
        return command(
            "pipeline/make_windows.py",
            *["--corpus=c", "--split=train", f"--tokenizer={tokenizer}", "--stride=10", f"--input={big_text}/*.txt"],
            *[f"--output={tmp_path}/{output}", f"--direct_num_workers={workers}"],
        )

    seconds = timed(job("undisturbed"))
    storm(job("killed"), kills, seconds, seed=workers)
    assert shard_bytes(f"{tmp_path}/killed") == shard_bytes(f"{tmp_path}/undisturbed")
    assert verify(f"{tmp_path}/killed") == []
    assert sorted(os.listdir(tmp_path / "killed")) == ["command.json", "manifest.json", "shards", "tokenizer"]


def test_work_that_was_done_is_not_done_again(windows, texts, monkeypatch):
    """A run that fails in its last step leaves its parts and shards; the next one only writes the manifest."""
    calls = Counter()

    def counted(name, module):
        original = getattr(module, name)

        def call(*arguments, **options):
            calls[name] += 1
            return original(*arguments, **options)

        monkeypatch.setattr(module, name, call)

    def broken(*arguments):
        raise RuntimeError("power cut")

    counted("write_shard", writer)
    counted("cut_windows", tokenise)
    with monkeypatch.context() as patch:
        patch.setattr(writer, "write_manifest", broken)
        with pytest.raises(RuntimeError, match="power cut"):
            windows(texts / "*")
    assert calls == {"write_shard": 3, "cut_windows": 6}
    store = windows(texts / "*")
    assert calls == {"write_shard": 3, "cut_windows": 6}
    assert verify(store) == []


def test_text_that_changes_under_a_run_is_noticed(texts, tokenizer):
    from pipeline.text.documents import Source
    from pipeline.text.survey import survey_file

    settings = WindowsSettings(input=("a.jsonl",), corpus="c", split="train", tokenizer=tokenizer, output="out")
    job = WindowsJob(settings, StoreWriter("out", Record([], "", {}), "windows"), True, {}, "", None)
    lines = (texts / "a.jsonl").read_text().splitlines(keepends=True)
    for name, changed in (
        ("0.txt", "changed"),
        ("a.jsonl", "".join(lines[:6])),
        ("a.jsonl", "".join([*lines, '{"text": "more"}'])),
        ("a.jsonl", "".join(["no JSON\n", *lines[1:]])),
    ):
        survey = survey_file(Source(str(texts / name), "text" if name == "0.txt" else "jsonl", "train"))
        (texts / name).write_text(changed)
        with pytest.raises(UserError, match=rf"{name}: it changed while it was being read"):
            list(tokenise.document_chunks(survey, {}, job))
        (texts / name).write_text("".join(lines))


@pytest.mark.slow
def test_two_runs_at_once_do_not_disturb_each_other(big_text, tokenizer, tmp_path):
    arguments = ["--corpus=c", "--split=train", f"--tokenizer={tokenizer}", f"--input={big_text}/*.txt"]
    job = command("pipeline/make_windows.py", *arguments, f"--output={tmp_path}/s")
    with started(job, stdout=subprocess.DEVNULL) as first:
        await_sign(first, (tmp_path / "s" / ".work" / "command.json").exists)
        writer_of_it = psutil.Process(first.pid)
        writer_of_it.suspend()  # or a busy machine might let it end before the second has begun
        second = run_group(job)
        writer_of_it.resume()
        assert second.returncode == 2
        assert f"process {first.pid}" in second.stderr
        await_end(first)
        assert first.returncode == 0
    assert verify(f"{tmp_path}/s") == []


def test_help_is_quick_and_complete():
    ended = run_group(
        [sys.executable, "-X", "importtime", *command("pipeline/make_windows.py", "--help")[1:]], cold=True
    )
    assert ended.returncode == 0
    imported = {line.rpartition("|")[2].strip() for line in ended.stderr.splitlines()}
    assert "pipeline.windows.settings" in imported
    assert not {"apache_beam", "transformers", "torch"} & imported  # a second, not ten
    for flag in ("--input", "--corpus", "--tokenizer", "--train_tokenizer", "--limit", "--deduplicate", "--overwrite"):
        assert flag in ended.stdout


@pytest.mark.skipif(not DATA.exists(), reason="the real corpora are not part of the project")
@pytest.mark.parametrize(
    ("corpus", "pattern", "stride", "encoding"),
    [
        ("books", "books/test/*.txt", 40, "latin-1"),
        ("wikitext", "wiki/test.txt", 40, "utf-8"),
        ("ccnews", "news/test.jsonl", 160, "utf-8"),
    ],
)
def test_real_corpora_with_gpt2s_bpe(corpus, pattern, stride, encoding, tmp_path):
    store = str(tmp_path / corpus)
    arguments = [f"--corpus={corpus}", "--split=test", f"--input={DATA / pattern}", f"--tokenizer={DATA / 'gpt2-bpe'}"]
    make_windows.main([*arguments, f"--output={store}", f"--encoding={encoding}"])
    manifest = read_manifest(store)
    assert (manifest.settings["window"], manifest.settings["stride"]) == (160, stride)
    assert manifest.rows == pytest.approx(manifest.counts["tokens"] / stride, rel=0.02)
    assert verify(store) == []
