import json
import random
import shutil
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path

import pytest

from evaluation.score import ScoreSettings
from pipeline import make_windows
from pipeline.import_texts import ImportSettings
from pipeline.mining.settings import MiningSettings
from pipeline.runtime.errors import UserError
from pipeline.stores.manifest import read_manifest, write_manifest, write_record
from pipeline.verify_store import (
    NO_PLACES,
    Problem,
    VerifySettings,
    main,
    places_outside,
    recorded_in,
    verify,
    verify_store,
)
from pipeline.windows.settings import WindowsSettings
from tests.helpers.commands import run, shard_bytes
from tests.helpers.stores import shard_name, shard_path

pytestmark = pytest.mark.usefixtures("warm_repairs")


@pytest.fixture
def store(windows, texts):
    return Path(windows(texts / "*", flags="--shards 5"))


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x10
    path.write_bytes(data)


def identities(store: Path) -> dict[str, tuple[int, int]]:
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in (store / "shards").iterdir()}


def damage_flip(store: Path) -> set[str]:
    for number in (1, 3):
        path = shard_path(store, number)
        flip(path, random.Random(number).randrange(path.stat().st_size))
    return {shard_name(store, 1), shard_name(store, 3)}


def damage_missing(store: Path) -> set[str]:
    name = shard_name(store, 2)
    (store / name).unlink()
    return {name}


def damage_extra(store: Path) -> set[str]:
    shutil.copy(shard_path(store, 0), store / "shards/00005-00000000.parquet")
    return {"shards/00005-00000000.parquet"}


def damage_truncated(store: Path) -> set[str]:
    path = shard_path(store, 4)
    path.write_bytes(path.read_bytes()[:-100])
    return {shard_name(store, 4)}


def damage_swapped(store: Path) -> set[str]:
    a, b, c = shard_path(store, 0), shard_path(store, 1), store / "shards/tmp"
    a.rename(c)
    b.rename(a)
    c.rename(b)
    return {shard_name(store, 0), shard_name(store, 1)}


def damage_manifest(store: Path) -> set[str]:
    path = store / "manifest.json"
    path.write_bytes(path.read_bytes()[:-200])
    return {"manifest.json"}


def damage_tokenizer(store: Path) -> set[str]:
    path = store / "tokenizer/tokenizer.json"
    content = json.loads(path.read_text())
    vocabulary = content["model"]["vocab"]
    vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
    path.write_text(json.dumps(content))
    return {"tokenizer"}


def damage_merges(store: Path) -> set[str]:
    path = store / "tokenizer/tokenizer.json"
    content = json.loads(path.read_text())
    content["model"]["merges"] = content["model"]["merges"][5:]
    path.write_text(json.dumps(content))
    return {"tokenizer"}


def damage_config(store: Path) -> set[str]:
    (store / "tokenizer/tokenizer_config.json").write_text("[]")
    return {"tokenizer"}


def damage_seed(store: Path) -> set[str]:
    content = json.loads((store / "manifest.json").read_text())
    (store / "manifest.json").write_text(json.dumps(content | {"seed": 7}))
    return {"manifest.json"}


def damage_settings(store: Path) -> set[str]:
    content = json.loads((store / "command.json").read_text())
    content["settings"]["stride"] = 7
    (store / "command.json").write_text(json.dumps(content))
    return {"command.json"}


def damage_record(store: Path) -> set[str]:
    (store / "command.json").write_text("{")
    return {"command.json"}


DAMAGES = [
    *[damage_flip, damage_missing, damage_extra, damage_truncated, damage_swapped, damage_manifest],
    *[damage_tokenizer, damage_merges, damage_config, damage_seed, damage_settings, damage_record],
]


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
def test_each_damage_is_named_and_repair_makes_exactly_that_again(store, damage, capfd):
    bytes_before, identities_before = shard_bytes(str(store)), identities(store)
    digest = read_manifest(str(store)).digest
    damaged = damage(store)
    capfd.readouterr()
    assert main([str(store)]) == 1
    named = {line.split(": ")[0].removeprefix(f"{store}/") for line in capfd.readouterr().out.splitlines()[:-1]}
    assert named == damaged
    assert main([str(store), "--repair", "--trust"]) == 0
    assert "5 shards" in capfd.readouterr().out
    assert shard_bytes(str(store)) == bytes_before
    assert read_manifest(str(store)).digest == digest
    kept = set(bytes_before) - {name.removeprefix("shards/") for name in damaged}
    after = identities(store)
    assert {name: after[name] for name in kept} == {name: identities_before[name] for name in kept}


def test_python_gets_what_is_wrong_and_what_a_repair_leaves(store):
    assert verify_store(VerifySettings(store=str(store))) == []
    before = shard_bytes(str(store))
    (name,) = damage_missing(store)
    assert verify_store(VerifySettings(store=str(store))) == [Problem(name, "missing")]
    assert verify_store(VerifySettings(store=str(store), repair=True, trust=True), ["--direct_num_workers", "1"]) == []
    assert shard_bytes(str(store)) == before


def test_beams_options_are_for_a_repair_alone(store):
    with pytest.raises(UserError, match="unrecognized arguments: --direct_num_workers 1: see --help"):
        main([str(store), "--direct_num_workers", "1"])
    assert main([str(store), "--repair", "--trust", "--direct_num_workers", "1"]) == 0


@pytest.mark.slow
def test_everything_at_once(store):
    before = shard_bytes(str(store))
    for damage in (damage_flip, damage_missing, damage_extra, damage_manifest):
        damage(store)
    assert main([str(store), "--repair", "--trust"]) == 0
    assert shard_bytes(str(store)) == before


def test_every_flipped_byte_is_found(store):
    shard = shard_path(store, 2)
    whole = shard.read_bytes()
    positions = sorted({0, len(whole) - 1, *random.Random(0).sample(range(len(whole)), 40)})
    for position in positions:
        flip(shard, position)
        assert [problem.file for problem in verify(str(store))] == [shard_name(store, 2)]
        shard.write_bytes(whole)
    assert verify(str(store)) == []


@pytest.mark.slow
def test_a_store_that_moved_is_repaired_where_it_is(store, tmp_path):
    moved = tmp_path / "elsewhere" / "store"
    moved.parent.mkdir()
    shutil.move(store, moved)
    shard_path(moved, 0).unlink()
    assert main([str(moved), "--repair", "--trust"]) == 0
    assert not store.exists()


@pytest.mark.slow
def test_an_unfinished_store_is_named_and_finished(store):
    (store / "manifest.json").unlink()
    shard_path(store, 1).unlink()
    assert [problem.file for problem in verify(str(store))] == ["manifest.json"]
    assert main([str(store), "--repair", "--trust"]) == 0


def test_text_that_is_gone_is_named_and_nothing_more_is_lost(store, texts):
    shard_path(store, 1).unlink()
    shutil.rmtree(texts)
    ended = run("pipeline/verify_store.py", store, "--repair", "--trust")
    assert ended.returncode == 2
    assert "no file matches" in ended.stderr
    assert len(list((store / "shards").iterdir())) == 4
    assert read_manifest(str(store)).rows > 0


def test_what_is_no_store_ends_with_code_2(tmp_path):
    ended = run("pipeline/verify_store.py", tmp_path)
    assert ended.returncode == 2
    assert ended.stderr == f"error: {tmp_path}: not a store, there is neither manifest.json nor command.json in it\n"


@pytest.mark.slow
@pytest.mark.parametrize("overwrite", ["", "--overwrite"])
def test_text_that_has_changed_does_not_replace_good_shards(windows, texts, overwrite):
    store = Path(windows(texts / "*", flags=f"--shards 5 {overwrite}"))
    shard_path(store, 1).unlink()
    before = shard_bytes(str(store))
    text = (texts / "0.txt").read_text()
    for changed in (text[::-1], text + "more"):
        (texts / "0.txt").write_text(changed)
        with pytest.raises(UserError, match="making it again ended with 2"):
            main([str(store), "--repair", "--trust"])
        assert shard_bytes(str(store)) == before
    (texts / "0.txt").write_text(text)
    assert main([str(store), "--repair", "--trust"]) == 0


def test_a_record_that_names_another_program_is_not_run(store):
    (store / "manifest.json").unlink()
    content = json.loads((store / "command.json").read_text())
    (store / "command.json").write_text(json.dumps(content | {"call": {"stage": "antigravity.py", "settings": {}}}))
    with pytest.raises(UserError, match=r"antigravity.py is no stage that makes a store"):
        main([str(store), "--repair", "--trust"])


def rewrite(store: Path, **changes: object) -> None:
    """What a stranger can do: a manifest and a record of their own making, every digest in them right."""
    manifest = replace(read_manifest(str(store)), **changes)
    write_manifest(str(store), manifest)
    write_record(str(store), recorded_in(manifest))


def test_what_a_store_names_outside_of_itself_is_shown_and_needs_trust(store, texts, tmp_path):
    (tmp_path / "secret.txt").write_text("my diary " * 500)
    settings = read_manifest(str(store)).call["settings"]
    call = {"stage": "pipeline/make_windows.py", "settings": settings | {"input": ["secret.txt"]}}
    rewrite(store, call=call, directory=str(tmp_path))
    damage_missing(store)
    before = {path: path.read_bytes() for path in store.rglob("*") if path.is_file()}
    with pytest.raises(UserError, match=rf"{tmp_path}/secret.txt.*: if that is as it should be, add --trust"):
        main([str(store), "--repair"])
    assert {path: path.read_bytes() for path in store.rglob("*") if path.is_file()} == before
    assert not list(store.rglob(".work"))


def test_places_inside_of_a_store_and_builtin_text_need_no_trust(tmp_path):
    make_windows.main(f"--input builtin:sums:lines=40 --split train --shards 2 --output {tmp_path / 'sums'}".split())
    shard_path(tmp_path / "sums", 1).unlink()
    assert main([str(tmp_path / "sums"), "--repair"]) == 0


@pytest.mark.parametrize(
    ("settings", "outside"),
    [
        ({"input": ["builtin:sums"], "corpus": "/etc/passwd", "shards": 4, "tokenizer": None}, []),
        ({"input": ["/store/a.txt", "a/../../b.txt"]}, ["/b.txt"]),
        ({"windows": "/store", "text": {"input": ["/x"], "output": "/store/../y"}}, ["/x", "/y"]),
        ({"generator": ["gpt2", "/store/inner"]}, ["/home/me/gpt2"]),
        ({"store": "gs://bucket/x", "energy": "file:///etc"}, ["gs://bucket/x", "/etc"]),
        ({"input": ["hf:somebody/set"]}, ["hf:somebody/set"]),
        ({"a_flag_of_the_future": "/x"}, ["/x"]),
    ],
)
def test_every_text_among_settings_is_a_place_unless_it_is_known_to_be_none(settings, outside):
    directory = "/home/me" if "generator" in settings else "/store"
    assert places_outside("/store", settings, directory) == outside


@pytest.mark.parametrize("cls", [WindowsSettings, MiningSettings, ImportSettings, ScoreSettings])
def test_no_setting_that_is_a_place_passes_for_a_mere_name(cls):
    places = ("DIR", "FILE", "PATTERN", "STORE")
    named = {one.name for one in fields(cls) if str(one.metadata["metavar"]).startswith(places)}
    assert not named & NO_PLACES
    assert named


@pytest.mark.parametrize("link", ["shards", "tokenizer"])
def test_a_repair_removes_nothing_where_a_link_leads(store, tmp_path, link):
    precious = tmp_path / "precious"
    shutil.move(store / link, precious)
    (precious / "diary.txt").write_text("mine")
    for path in precious.glob("tokenizer.json"):
        path.write_text("{}")
    (store / link).symlink_to(precious)
    before = {path.name: path.read_bytes() for path in precious.iterdir()}
    with suppress(UserError):
        main([str(store), "--repair", "--trust"])
    assert (precious / "diary.txt").read_text() == "mine"
    assert {path.name for path in precious.iterdir()} >= before.keys()
