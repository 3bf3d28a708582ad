"""Pairs that others have as a store of negatives: nothing is lost, models are trained on it, bounds are refused."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evaluation import perplexity_bounds, score
from pipeline import export_pairs, import_pairs
from pipeline.export_pairs import ExportPairsSettings
from pipeline.import_pairs import ImportPairsSettings
from pipeline.runtime.errors import UserError
from pipeline.stores.reader import Store
from pipeline.text.tokenizer import load_tokenizer
from pipeline.verify_store import main as verify_main
from pipeline.verify_store import verify
from tests.helpers.commands import Stores, words
from tests.helpers.stores import shard_path
from tests.helpers.trainings import train

ROWS = [
    {"prompt": words(8, n), "chosen": " " + words(5, 100 + n), "rejected": " " + words(6, 200 + n)} for n in range(60)
]


def write(path: Path, rows: list[dict]) -> str:
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def made(path: str, output: Path, tokenizer: str, **settings: object) -> Store:
    given = {"corpus": "pairs", "split": "train", "tokenizer": tokenizer, "output": str(output)} | settings
    import_pairs.import_pairs(ImportPairsSettings(input=(path,), **given))
    return Store(str(output), "negatives")


def texts(store: Store) -> set[tuple[str, str, tuple[str, ...]]]:
    """What the rows say, decoded."""
    decode, found = load_tokenizer(store.path).decode, set()
    for row in store.rows():
        context, better = row["tokens"][: row["context_length"]], row["tokens"][row["context_length"] :]
        found.add((decode(context), decode(better), tuple(map(decode, row["negatives"]))))
    return found


WANTED = {(row["prompt"], row["chosen"], (row["rejected"],)) for row in ROWS}


@pytest.mark.parametrize("ending", ["parquet", "jsonl"])
def test_preferences_come_in_as_they_are(tmp_path, tokenizer, ending):
    store = made(write(tmp_path / f"pairs.{ending}", ROWS), tmp_path / "store", tokenizer)
    assert texts(store) == WANTED
    assert verify(store.path) == []
    assert store.manifest.generator is None
    assert {row["positive_log_p"] for row in store.rows(["positive_log_p"])} == {None}


@pytest.mark.parametrize(
    ("rows", "flags"),
    [
        ([{"anchor": r["prompt"], "positive": r["chosen"], "negative": r["rejected"]} for r in ROWS], {}),
        ([{"query": r["prompt"], "docs": [r["rejected"], r["chosen"]], "labels": [0, 1]} for r in ROWS], {}),
        (
            [
                {"question": r["prompt"], "human_answers": [r["chosen"]], "chatgpt_answers": [r["rejected"]]}
                for r in ROWS
            ],
            {},
        ),
        (
            [{"q": r["prompt"], "good": r["chosen"], "bad": r["rejected"], "note": 3} for r in ROWS],
            {"prompt": "q", "better": "good", "others": ("bad",)},
        ),
        (
            [
                {
                    "prompt": [{"role": "user", "content": r["prompt"]}],
                    "chosen": [{"role": "assistant", "content": r["chosen"]}],
                    "rejected": [{"role": "assistant", "content": r["rejected"]}],
                }
                for r in ROWS
            ],
            {},
        ),
    ],
)
def test_other_forms_say_the_same(tmp_path, tokenizer, rows, flags):
    assert texts(made(write(tmp_path / "pairs.jsonl", rows), tmp_path / "store", tokenizer, **flags)) == WANTED


def test_several_candidates_and_several_good_answers(tmp_path, tokenizer):
    tuples = [{"anchor": "a b", "positive": " one", "negative_1": " two", "negative_2": " three"}]
    store = made(write(tmp_path / "tuples.jsonl", tuples), tmp_path / "tuples", tokenizer)
    assert texts(store) == {("a b", " one", (" two", " three"))}
    answers = [{"question": "why?", "human_answers": [" so", " thus"], "chatgpt_answers": [" as", " since"]}]
    store = made(write(tmp_path / "answers.jsonl", answers), tmp_path / "answers", tokenizer)
    assert texts(store) == {("why?", " so", (" as", " since")), ("why?", " thus", (" as", " since"))}
    graded = [{"query": "q", "docs": [" a", " b", " c"], "labels": [0.5, 1.0, 0.1]}]
    store = made(write(tmp_path / "graded.jsonl", graded), tmp_path / "graded", tokenizer)
    assert texts(store) == {("q", " b", (" a", " c"))}


def test_without_a_prompt_what_all_begin_with_is_the_context(tmp_path, tokenizer):
    rows = [
        {"chosen": "the whale said, no", "rejected": "the whale said, yes and no"},
        {"chosen": "a", "rejected": "a"},
    ]
    store = made(write(tmp_path / "pairs.jsonl", rows), tmp_path / "store", tokenizer)
    found = texts(store)
    assert {(context + better, context + others[0]) for context, better, others in found} == {
        (row["chosen"], row["rejected"]) for row in rows
    }
    assert any(context.startswith("the whale said,") for context, _, _ in found)
    assert all(len(row["tokens"]) > row["context_length"] for row in store.rows())


def test_long_texts_are_cut_where_they_are_farthest_from_each_other(tmp_path, tokenizer):
    encode = load_tokenizer(tokenizer).encode
    row = {"prompt": words(200, 1), "chosen": words(200, 2), "rejected": words(3, 3)}
    store = made(write(tmp_path / "pairs.jsonl", [row]), tmp_path / "store", tokenizer, window=40)
    prompt, better, other = encode([row["prompt"], row["chosen"], row["rejected"]])
    (only,) = store.rows()
    assert only["tokens"].tolist() == prompt[-20:] + better[:20]
    assert [ids.tolist() if hasattr(ids, "tolist") else list(ids) for ids in only["negatives"]] == [other]


def test_out_and_in_again_is_the_same(tmp_path, tokenizer):
    store = made(write(tmp_path / "pairs.jsonl", ROWS), tmp_path / "store", tokenizer)
    settings = ExportPairsSettings(store=store.path, output=str(tmp_path / "set"), split="train")
    export_pairs.export_pairs(settings)
    again = made(str(tmp_path / "set/data/*.parquet"), tmp_path / "again", tokenizer)
    assert texts(again) == texts(store)
    assert again.manifest.digest == store.manifest.digest


def test_the_store_is_made_once_and_repaired_exactly(tmp_path, tokenizer, capsys):
    path = write(tmp_path / "pairs.jsonl", ROWS)
    store = made(path, tmp_path / "store", tokenizer)
    made(path, tmp_path / "store", tokenizer)
    assert "nothing to do" in capsys.readouterr().out
    before = shard_path(store.path, 0).read_bytes()
    shard_path(store.path, 0).write_bytes(before[:-10])
    assert verify_main([store.path, "--repair", "--trust"]) == 0
    assert shard_path(store.path, 0).read_bytes() == before


@pytest.mark.slow
def test_a_reranker_learns_from_pairs_and_bounds_refuse_them(tmp_path, tokenizer):
    rows = [{"query": words(6, n), "docs": ["good " * 3, "bad " * 3, "worse"], "labels": [1, 0, 0]} for n in range(200)]
    train_store = made(write(tmp_path / "train.jsonl", rows), tmp_path / "train", tokenizer)
    valid_store = made(write(tmp_path / "valid.jsonl", rows[:50]), tmp_path / "valid", tokenizer, split="valid")
    model = tmp_path / "model"
    flags = "--objective ranking --negatives 2"
    ended = train(Stores(train_store, valid_store), model, flags, script="train_energy")
    assert ended.returncode == 0, ended.stderr
    assert json.loads((model / "config.json").read_text())["provenance"]["accuracy"] == 1.0
    assert score.main(["--energy", str(model), "--store", valid_store.path, "--output", f"{tmp_path}/energies"]) == 0
    given = ["--negatives", valid_store.path, "--energies", f"{tmp_path}/energies", "--output", f"{tmp_path}/bounds"]
    with pytest.raises(UserError, match=rf"{valid_store.path}: no language model drew .* bounds"):
        perplexity_bounds.main(given)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"left": "a", "right": "b"}], "line 1: columns left, right are not of a known form"),
        ([{"prompt": "a", "chosen": "b", "rejected": 3}], "line 1: rejected: not a text, but int"),
        ([{"prompt": "a", "chosen": "", "rejected": "b"}], "one of the texts is empty"),
        ([{"query": "a", "docs": ["b"], "labels": [1, 2]}], "as many numbers as there are texts"),
        ([["a", "b"]], "line 1: not an object with columns, but list"),
        ([], "there are no pairs in it"),
    ],
)
def test_what_is_no_pair_is_named(tmp_path, tokenizer, rows, message):
    with pytest.raises(UserError, match=message):
        made(write(tmp_path / "pairs.jsonl", rows), tmp_path / "store", tokenizer)
    assert not (tmp_path / "store").exists()


def test_files_that_are_none_are_named(tmp_path, tokenizer):
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 no")
    (tmp_path / "broken.jsonl").write_text("{")
    for name in ("broken.parquet", "broken.jsonl"):
        with pytest.raises(UserError, match=f"{name}: it cannot be read as pairs"):
            made(str(tmp_path / name), tmp_path / "store", tokenizer)
    with pytest.raises(UserError, match="no file matches"):
        made(str(tmp_path / "none.jsonl"), tmp_path / "store", tokenizer)
    with pytest.raises(UserError, match="--better and --others: name both"):
        made(write(tmp_path / "pairs.jsonl", ROWS), tmp_path / "store", tokenizer, better="chosen")
