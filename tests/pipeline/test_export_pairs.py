"""Negatives as data sets of other libraries, read by those libraries."""

import json
from pathlib import Path

import datasets
import pytest

from pipeline import export_pairs, make_windows, mine_negatives
from pipeline.export_pairs import ExportPairsSettings
from pipeline.runtime.errors import UserError
from pipeline.stores.reader import Store
from pipeline.text.tokenizer import load_tokenizer
from schemas.division import divide
from tests.helpers.commands import words
from tests.helpers.mining import save_generator

CONTEXT = 12


@pytest.fixture(scope="module")
def world(tmp_path_factory, tokenizer) -> Path:
    """Negatives of text with letters of several bytes, from left to right, from right to left, and of another split."""
    folder = tmp_path_factory.mktemp("pairs")
    encoder = load_tokenizer(tokenizer)
    for split, seed in (("train", 0), ("valid", 1)):
        (folder / f"{split}.txt").write_text(words(600, seed))
        given = f"--input {folder}/{split}.txt --corpus words --split {split} --tokenizer {tokenizer} --shards 3"
        make_windows.main(f"{given} --window 24 --stride 24 --output {folder}/windows-{split}".split())
    sizes = {"vocab_size": encoder.vocabulary_size, "n_positions": 32}
    for name, direction in (("forwards", "left_to_right"), ("backwards", "right_to_left")):
        model = save_generator(folder / name, direction, **sizes)
        encoder.save(model)
    for store, split, model in (
        ("train", "train", "forwards"),
        ("valid", "valid", "forwards"),
        ("back", "train", "backwards"),
    ):
        given = f"--windows {folder}/windows-{split} --generator {folder}/{model} --engine torch --negatives 2"
        mine_negatives.main(f"{given} --context_lengths {CONTEXT} --output {folder}/{store}".split())
    return folder


def export(store: Path, output: Path, **settings: object) -> None:
    export_pairs.export_pairs(ExportPairsSettings(store=str(store), output=str(output), **settings))


def loaded(folder: Path, split: str = "train") -> datasets.Dataset:
    return datasets.load_dataset(str(folder), split=split, cache_dir=str(folder.parent / "cache"))


def texts_by_hand(store: Path) -> list[tuple[str, str, list[str]]]:
    """Whole texts and the context's own, straight from the ids."""
    encoder, found = load_tokenizer(str(store)), []
    for row in Store(str(store)).rows():
        context, _ = divide(row["tokens"], row["context_length"], row["direction"])
        backwards = row["direction"] == "right_to_left"
        sampled = [[*ids, *context] if backwards else [*context, *ids] for ids in row["negatives"]]
        found.append((encoder.decode(context), encoder.decode(row["tokens"]), [encoder.decode(ids) for ids in sampled]))
    return found


@pytest.mark.parametrize("file_format", ["parquet", "jsonl"])
def test_preferences_are_the_texts_of_the_store(world, tmp_path, file_format):
    export(world / "train", tmp_path / "set", file_format=file_format)
    rows = loaded(tmp_path / "set")
    assert rows.column_names == ["prompt", "chosen", "rejected"]
    wanted = [(real, other) for _, real, others in texts_by_hand(world / "train") for other in others]
    assert [(row["prompt"] + row["chosen"], row["prompt"] + row["rejected"]) for row in rows] == wanted
    contexts = [context for context, _, others in texts_by_hand(world / "train") for _ in others]
    short = [context[len(row["prompt"]) :] for context, row in zip(contexts, rows, strict=True)]
    # A prompt is the context, but for a letter of several bytes that it ends in, or letters that all texts share.
    assert all(left in ("", "\ufffd") or left.startswith("\ufffd") for left in short)
    assert sum(left == "" for left in short) > len(short) / 2


def test_messages_triplets_tuples_and_lists_have_the_columns_that_libraries_want(world, tmp_path):
    export(world / "train", tmp_path / "chat", conversational=True)
    export(world / "train", tmp_path / "plain")
    for message, plain in zip(loaded(tmp_path / "chat"), loaded(tmp_path / "plain"), strict=True):
        assert message["prompt"] == [{"role": "user", "content": plain["prompt"]}]
        assert message["chosen"] == [{"role": "assistant", "content": plain["chosen"]}]
        assert message["rejected"] == [{"role": "assistant", "content": plain["rejected"]}]
    export(world / "train", tmp_path / "triplet", format="triplet")
    triplets = loaded(tmp_path / "triplet")
    assert triplets.column_names == ["anchor", "positive", "negative"]
    export(world / "train", tmp_path / "tuple", format="n-tuple")
    tuples = loaded(tmp_path / "tuple")
    assert tuples.column_names == ["anchor", "positive", "negative_1", "negative_2"]
    assert len(triplets) == 2 * len(tuples) == 2 * len(Store(str(world / "train")))
    assert [row["negative_2"] for row in tuples] == triplets["negative"][1::2]
    export(world / "train", tmp_path / "list", format="list")
    lists = loaded(tmp_path / "list")
    assert lists.column_names == ["query", "docs", "labels"]
    assert [row["docs"] for row in lists] == [[row[name] for name in tuples.column_names[1:]] for row in tuples]
    assert {tuple(row["labels"]) for row in lists} == {(1, 0, 0)}


def test_labelled_texts_are_whole_and_their_labels_have_names(world, tmp_path):
    export(world / "back", tmp_path / "set", format="labelled")
    rows = loaded(tmp_path / "set")
    assert rows.features["label"].names == ["generated", "real"]
    wanted = [
        pair for _, real, others in texts_by_hand(world / "back") for pair in [(real, 1), *((one, 0) for one in others)]
    ]
    assert [(row["text"], row["label"]) for row in rows] == wanted


def test_texts_that_were_completed_backwards_have_nothing_before_them(world, tmp_path):
    export(world / "back", tmp_path / "set")
    wanted = [(real, other) for _, real, others in texts_by_hand(world / "back") for other in others]
    rows = loaded(tmp_path / "set")
    assert [(row["prompt"] + row["chosen"], row["prompt"] + row["rejected"]) for row in rows] == wanted


def test_splits_share_a_folder_and_its_page_says_where_they_come_from(world, tmp_path):
    for name in ("train", "valid"):
        export(world / name, tmp_path / "set", licence="cc-by-4.0")
    assert {split: len(loaded(tmp_path / "set", split)) for split in ("train", "valid")} == {
        name: 2 * len(Store(str(world / name))) for name in ("train", "valid")
    }
    page = (tmp_path / "set/README.md").read_text()
    assert page.startswith("---\nlicense: cc-by-4.0\n")
    assert "| train | " in page
    assert "| forwards | rule temperature" in page
    assert Store(str(world / "train")).manifest.digest[:16] in page


def test_what_is_missing_is_made_and_what_is_there_is_kept(world, tmp_path):
    export(world / "train", tmp_path / "set")
    data = sorted((tmp_path / "set/data").iterdir())
    before = {path.name: path.read_bytes() for path in data}
    data[1].unlink()
    kept = data[0].stat().st_mtime_ns
    export(world / "train", tmp_path / "set")
    assert {path.name: path.read_bytes() for path in sorted((tmp_path / "set/data").iterdir())} == before
    assert data[0].stat().st_mtime_ns == kept
    with pytest.raises(UserError, match=r"its split train was exported from another store or with other settings"):
        export(world / "train", tmp_path / "set", format="labelled")
    export(world / "train", tmp_path / "set", format="labelled", overwrite=True)
    assert loaded(tmp_path / "set").column_names == ["text", "label"]


def test_another_word_where_documents_are_joined(world, tmp_path):
    given = f"--input {tmp_path}/two.jsonl --corpus two --split train --tokenizer {world}/train/tokenizer"
    (tmp_path / "two.jsonl").write_text("".join(json.dumps({"text": words(10, seed)}) + "\n" for seed in range(20)))
    make_windows.main(f"{given} --window 24 --stride 24 --output {tmp_path}/windows".split())
    given = f"--windows {tmp_path}/windows --generator {world}/forwards --engine torch --context_lengths 20"
    mine_negatives.main(f"{given} --output {tmp_path}/store".split())
    export(tmp_path / "store", tmp_path / "own")
    export(tmp_path / "store", tmp_path / "other", joint="\n\n")
    own, other = (loaded(tmp_path / name) for name in ("own", "other"))
    assert any("<|endoftext|>" in row["prompt"] for row in own)
    assert not any("<|endoftext|>" in row["prompt"] for row in other)


def test_what_cannot_be_exported_is_named(world, tmp_path):
    with pytest.raises(UserError, match="a store of windows, but one of negatives is needed"):
        export(world / "windows-train", tmp_path / "set")
    with pytest.raises(UserError, match="--conversational: for --format preference alone"):
        export(world / "train", tmp_path / "set", format="labelled", conversational=True)
    with pytest.raises(UserError, match=r"--split '\.\./up'"):
        export(world / "train", tmp_path / "set", split="../up")
    assert not (tmp_path / "set").exists()
