"""The long version of what the suite tries briefly: many kills at random moments, and damage of every kind at once."""

import os
import random
from pathlib import Path

import pytest

from pipeline import verify_store
from tests.helpers.commands import command, shard_bytes, words
from tests.helpers.processes import storm, timed
from tests.helpers.stores import shard_path

WORKERS = (1, 2)
KILLS = 10


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    for number in range(24):
        (folder / f"{number}.txt").write_text(words(90_000, number))
    return folder


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("seed", [0, 1])
def test_ten_kills_change_nothing(text, tokenizer, tmp_path, workers, seed):
    def job(output):
        arguments = ["--corpus=c", "--split=train", f"--tokenizer={tokenizer}", "--stride=10", f"--input={text}/*.txt"]
        arguments += [f"--output={tmp_path}/{output}", f"--direct_num_workers={workers}"]
        return command("pipeline/make_windows.py", *arguments)

    seconds = timed(job("undisturbed"))
    storm(job("killed"), KILLS, seconds, seed)
    assert shard_bytes(f"{tmp_path}/killed") == shard_bytes(f"{tmp_path}/undisturbed")
    assert verify_store.verify(f"{tmp_path}/killed") == []
    assert sorted(os.listdir(tmp_path / "killed")) == ["command.json", "manifest.json", "shards", "tokenizer"]


@pytest.mark.parametrize("seed", range(20))
def test_any_mixture_of_damage_is_named_and_repaired(windows, texts, seed):
    store = Path(windows(texts / "*", flags="--shards 8"))
    before = shard_bytes(str(store))
    rng = random.Random(seed)
    damaged = set()
    for path in sorted((store / "shards").iterdir()):
        kind = rng.choice(["none", "none", "flip", "cut", "gone", "empty", "foreign"])
        data = bytearray(path.read_bytes())
        if kind == "none":
            continue
        if kind == "flip":
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes({"cut": data[: rng.randrange(len(data))], "empty": b"", "foreign": b"PAR1"}.get(kind, data))
        if kind == "gone":
            path.unlink()
        damaged.add(f"shards/{path.name}")
    if rng.random() < 0.5:
        (store / "shards" / "00099.parquet").write_bytes(b"stray")
        damaged.add("shards/00099.parquet")
    assert {problem.file for problem in verify_store.verify(str(store))} == damaged
    if rng.random() < 0.5:
        manifest = store / "manifest.json"
        manifest.write_bytes(manifest.read_bytes()[: rng.randrange(manifest.stat().st_size)])
    assert verify_store.main([str(store), "--repair", "--trust"]) == 0
    assert shard_bytes(str(store)) == before


@pytest.mark.parametrize("shard", range(3))
def test_every_byte_of_a_shard_matters(windows, texts, shard):
    store = Path(windows(texts / "0.txt", flags="--window 8 --stride 8"))
    path = shard_path(store, shard)
    whole = path.read_bytes()
    for position in range(0, len(whole), 7):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0x40]) + whole[position + 1 :])
        assert [problem.file for problem in verify_store.verify(str(store))] == [f"shards/{path.name}"]
