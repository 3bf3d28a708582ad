import json
import os
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import schemas
from evaluation import score
from evaluation.detection.detector import Detector
from pipeline import import_texts
from pipeline.models.model_folder import quiet
from pipeline.runtime.errors import UserError
from pipeline.stores.manifest import read_manifest
from pipeline.stores.reader import Store
from pipeline.text.tokenizer import load_tokenizer
from pipeline.verify_store import main as verify_main
from pipeline.verify_store import verify
from tests.helpers.commands import DATA, run, shard_bytes
from tests.helpers.stores import shard_path
from tests.helpers.trainings import losses
from training.data.order import rows_at
from training.energy.folder import open_energy_model
from training.energy.model import EnergyModel
from training.energy.presets import PRESETS

WORDS = ["the", "of", "and", "whale", "sea", "ship", "boat", "captain", "white", "harpoon", "deck", "sail"]
BLOCK = 16

pytestmark = pytest.mark.usefixtures("one_thread")


def texts(kind: str, count: int, seed: int) -> list[str]:
    """Real and generated ones prefer other words; they are of all lengths."""
    rng = random.Random(f"{kind} {seed}")
    weights = [1, 2, 3, 4] * 3 if kind == "real" else [4, 3, 2, 1] * 3
    return [" ".join(rng.choices(WORDS, weights, k=rng.randint(1, 60))) for _ in range(count)]


def write(folder: Path, name: str, given: list[str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"id": number, "ended": True, "text": text}) for number, text in enumerate(given)]
    (folder / name).write_text("\n".join(lines) + "\n")
    return folder / name


def imported(real: Path, generated: Path, tokenizer: str, output: Path, *flags: str) -> Store:
    given = ["--real", str(real), "--generated", str(generated), "--tokenizer", tokenizer, "--output", str(output)]
    assert import_texts.main([*given, f"--block={BLOCK}", *flags]) == 0
    return Store(str(output), kind="negatives")


@pytest.fixture(scope="module")
def wild(tmp_path_factory, tokenizer) -> dict[str, Store]:
    """A few real texts and a few more generated ones for training, and for validation the other way round."""
    folder = tmp_path_factory.mktemp("wild")
    found = {}
    for split, counts in (("train", (150, 200)), ("valid", (60, 40))):
        real = write(folder, f"webtext.{split}.jsonl", texts("real", counts[0], len(split)))
        generated = write(folder, f"small-117M-k40.{split}.jsonl", texts("generated", counts[1], len(split)))
        found[split] = imported(real, generated, tokenizer, folder / split)
    return found


def blocks_by_hand(given: list[str], tokenizer: str) -> list[tuple[int, ...]]:
    found = []
    for ids in load_tokenizer(tokenizer).encode([" ".join(text.split()) for text in given]):
        cuts = [tuple(ids[start : start + BLOCK]) for start in range(0, len(ids), BLOCK)]
        found += [ids for place, ids in enumerate(cuts) if not place or len(ids) >= BLOCK / 2]
    return found


@pytest.mark.parametrize("split", ["train", "valid"])
def test_every_block_is_in_a_row_real_ones_as_positives(wild, split, tokenizer):
    store = wild[split]
    counts = {"train": (150, 200), "valid": (60, 40)}[split]
    real, generated = (
        blocks_by_hand(texts(kind, count, len(split)), tokenizer)
        for kind, count in zip(("real", "generated"), counts, strict=True)
    )
    rows = store.take(range(len(store))).to_pylist()
    assert len(rows) == max(len(real), len(generated))
    assert len({len(block) for block in real}) > 5  # ragged, as texts are
    firsts = [row for row in rows if row["first_sample"] == 0]
    assert sorted(tuple(row["tokens"]) for row in firsts) == sorted(real)
    assert {tuple(ids) for row in rows for ids in row["negatives"]} == set(generated)
    assert len({(row["window_id"], row["first_sample"]) for row in rows}) == len(rows)
    for row in rows:
        assert [row[name] for name in ("positive_log_p", "log_p", "log_q")] == [None] * 3
        assert (row["context_length"], row["direction"], len(row["negatives"])) == (0, "left_to_right", 1)
        assert (row["corpus"], row["split"]) == ("webtext", split)
    assert store.schema.equals(schemas.NEGATIVES)
    assert verify(store.path) == []


def test_the_manifest_says_what_the_texts_are(wild):
    manifest = wild["train"].manifest
    assert (manifest.settings["corpus"], manifest.settings["split"]) == ("webtext", "train")
    assert (manifest.settings["window"], manifest.settings["context_lengths"]) == (BLOCK, [0])
    assert (manifest.generator["name"], manifest.generator["architecture"]) == ("small-117M-k40", "small-117M")
    assert manifest.generator["direction"] == "left_to_right"
    assert [Path(entry["file"]).name for entry in manifest.inputs] == [
        "webtext.train.jsonl",
        "small-117M-k40.train.jsonl",
    ]
    assert (manifest.counts["real_texts"], manifest.counts["generated_texts"]) == (150, 200)


def test_a_rerun_makes_nothing_and_another_order_of_files_the_same(wild, tokenizer, tmp_path, capsys):
    store = wild["train"]
    folder = Path(store.path).parent
    before = {path: path.stat().st_mtime_ns for path in Path(store.path).rglob("*")}
    imported(folder / "webtext.train.jsonl", folder / "small-117M-k40.train.jsonl", tokenizer, Path(store.path))
    assert "nothing to do" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in Path(store.path).rglob("*")} == before
    real = texts("real", 150, 5)
    write(tmp_path, "webtext.train.jsonl", real[100:])
    write(tmp_path / "more", "webtext.train.jsonl", real[:100])
    again = imported(
        tmp_path / "webtext.train.jsonl",
        folder / "small-117M-k40.train.jsonl",
        tokenizer,
        tmp_path / "again",
        f"--real={tmp_path}/more/*.jsonl",
    )
    assert again.manifest.digest == store.manifest.digest
    other = imported(
        folder / "webtext.train.jsonl",
        folder / "small-117M-k40.train.jsonl",
        tokenizer,
        tmp_path / "other",
        "--seed=1",
        "--surplus=drop",
    )
    assert len(other) == min(other.manifest.counts["real_blocks"], other.manifest.counts["generated_blocks"])
    assert other.take([0])["tokens"].to_pylist() != store.take([0])["tokens"].to_pylist()


def test_a_damaged_shard_is_made_again(wild, tmp_path):
    store = tmp_path / "store"
    shutil.copytree(wild["valid"].path, store)
    before = shard_bytes(str(store))
    shard_path(store, 0).write_bytes(b"nonsense")
    assert verify_main([str(store)]) == 1
    assert verify_main([str(store), "--repair", "--trust"]) == 0
    assert shard_bytes(str(store)) == before


def test_changed_and_bad_texts_are_named_and_harm_nothing(tokenizer, tmp_path):
    real = write(tmp_path, "webtext.valid.jsonl", texts("real", 10, 0))
    generated = write(tmp_path, "small.valid.jsonl", texts("generated", 10, 0))
    output = tmp_path / "store"
    imported(real, generated, tokenizer, output)
    before = shard_bytes(str(output))
    real.write_text(real.read_text().replace("whale", "whole"))
    with pytest.raises(UserError, match=r"webtext\.valid\.jsonl: it has changed since"):
        imported(real, generated, tokenizer, output)
    assert shard_bytes(str(output)) == before
    broken = write(tmp_path, "broken.valid.jsonl", texts("generated", 99, 0))
    broken.write_text(broken.read_text() + "{broken\n")
    empty = write(tmp_path, "empty.valid.jsonl", ["", "  \n "])
    odd = write(tmp_path, "odd.jsonl", ["a text"])
    cases = [
        ([real, tmp_path / "nowhere.jsonl"], [], "--generated .*nowhere.jsonl: no file matches"),
        ([real, odd], [], "--generator: give it"),
        ([real, odd], ["--generator=odd"], "--split: give it"),
        ([real, empty], [], "--generated: there is no text in .*empty.valid.jsonl"),
        ([real, broken], ["--max_reject_fraction=0.001"], "1 of 110 documents cannot be used"),
        ([real, generated], ["--block=1"], "--block 1: at least 2"),
        ([real, generated], ["--block=8"], "made with other settings"),
    ]
    for (first, second), flags, message in cases:
        place = output if "other settings" in message else tmp_path / "new"
        with pytest.raises(UserError, match=message):
            imported(first, second, tokenizer, place, *flags)
        assert not (tmp_path / "new").exists()
    store = imported(real, broken, tokenizer, tmp_path / "new")
    assert store.manifest.counts["rejected"] == 1
    assert "not JSON" in (tmp_path / "new/rejects/documents.jsonl").read_text()


@pytest.fixture(scope="module")
def untrained(tmp_path_factory, tokenizer) -> str:
    folder = tmp_path_factory.mktemp("energy") / "untrained"
    encoder = load_tokenizer(tokenizer)
    torch.manual_seed(0)
    with quiet():
        EnergyModel(PRESETS["bit-nano"].build(encoder.description, BLOCK + 1)).save_pretrained(folder)
    encoder.save(str(folder))
    return str(folder)


def test_scoring_gives_each_block_the_bare_models_energy(wild, untrained, tmp_path):
    store = wild["train"]
    assert score.main(["--energy", untrained, "--store", store.path, "--output", str(tmp_path / "energies")]) == 0
    scored = Store(str(tmp_path / "energies"), kind="energies")
    found = {(row["window_id"], row["sample"]): row["energy"] for row in scored.take(range(len(scored))).to_pylist()}
    model = open_energy_model(untrained).load()
    rows = store.take(range(len(store))).to_pylist()
    with torch.no_grad():
        for row in rows[::9]:
            assert found[row["window_id"], -1] == pytest.approx(model(torch.tensor([row["tokens"]])).item(), abs=1e-4)
            generated = model(torch.tensor(row["negatives"])).item()
            assert found[row["window_id"], row["first_sample"]] == pytest.approx(generated, abs=1e-4)
    assert len(found) == len(scored) == store.manifest.counts["real_blocks"] + len(store)


@pytest.mark.slow
def test_fine_tuning_on_texts_of_any_length_is_exact_and_improves_detection(wild, untrained, tmp_path):
    flags = "--max_steps 40 --batch_size 32 --micro_batch_size 16 --max_lr 3e-3 --warmup_steps 5 --max_grad_norm 1"
    output = tmp_path / "tuned"
    given = ["--init", untrained, "--train", wild["train"].path, "--valid", wild["valid"].path, "--output", output]
    environment = os.environ | {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}
    ended = run("training/train_energy.py", *given, *flags.split(), env=environment)
    assert ended.returncode == 0, ended.stderr
    curve = losses(output)
    model = open_energy_model(untrained).load()
    first = wild["train"].take(rows_at(0, 32, len(wild["train"]), 0)).to_pylist()
    with torch.no_grad():
        real, generated = (
            torch.tensor([model(torch.tensor([ids])).item() for ids in windows])
            for windows in ([row["tokens"] for row in first], [row["negatives"][0] for row in first])
        )
    by_hand = (F.softplus(real) + F.softplus(-generated)).mean() / 2
    assert curve[0] == pytest.approx(by_hand.item(), abs=1e-4)
    assert np.mean(curve[-5:]) < curve[0] - 0.1
    fresh = {kind: texts(kind, 60, 99) for kind in ("real", "generated")}
    accuracy = {}
    for name in (untrained, str(output)):
        detector = Detector(name, BLOCK)
        called = {kind: [found.is_real for found in detector.score(given)] for kind, given in fresh.items()}
        accuracy[name] = (np.mean(called["real"]) + 1 - np.mean(called["generated"])) / 2
    assert accuracy[str(output)] > max(0.75, accuracy[untrained] + 0.1)


@pytest.mark.skipif(not (DATA / "wild-gpt2").is_dir(), reason="the published texts are not here")
def test_files_as_openai_published_them(tokenizer, tmp_path):
    folder = DATA / "wild-gpt2"
    given = [folder / "webtext.test.jsonl", folder / "small-117M-k40.test.jsonl"]
    store = imported(*given, tokenizer, tmp_path / "store")
    manifest = read_manifest(store.path)
    assert (manifest.settings["corpus"], manifest.generator["name"]) == ("webtext", "small-117M-k40")
    assert manifest.counts["rejected"] == 0
