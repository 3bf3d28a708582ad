"""Studies as they are made: which comparisons, which sides, and what is refused."""

import stat
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evaluation.human import prepare
from evaluation.human.site.links import digest
from pipeline import make_windows
from pipeline.runtime.errors import UserError
from pipeline.stores.reader import Store
from pipeline.text.tokenizer import load_tokenizer
from tests.evaluation.human.conftest import Prepared, write_samples
from tests.helpers.commands import run


def comparisons(study: Prepared) -> list[dict]:
    return [dict(row) for row in study.study.reader.execute("SELECT * FROM comparison ORDER BY id")]


def test_a_study_has_what_was_asked_for_and_no_context_in_two_roles(prepared):
    rows = comparisons(prepared("--items 20 --checks 30"))
    assert Counter(row["kind"] for row in rows) == {"item": 20, "check": 30, "qualification": 4}
    contexts = {kind: {row["window_id"] for row in rows if row["kind"] == kind} for kind in ("item", "qualification")}
    checks = {row["window_id"] for row in rows if row["kind"] == "check"}
    assert len(contexts["item"]) == 20
    assert not checks & contexts["item"]
    assert not checks & contexts["qualification"]
    assert not contexts["item"] & contexts["qualification"]


def test_texts_are_those_of_the_samples_on_the_side_that_is_noted(prepared, tmp_path):
    rows = comparisons(prepared())
    texts = {row["window_id"]: row for row in pq.read_table(tmp_path / "samples/samples.parquet").to_pylist()}
    column = {"model1": "base_text", "model2": "chosen_text", "gold": "real_text", "model": "base_text"}
    for row in rows:
        samples = texts[row["window_id"]]
        assert row["context"] == samples["context_text"]
        for side in ("left", "right"):
            if row[f"{side}_source"] != "decoy":
                assert row[f"{side}_text"] == samples[column[row[f"{side}_source"]]]
            else:
                words = Counter(row[f"{side}_text"].split())
                assert [name for name, one in texts.items() if Counter(one["real_text"].split()) == words] not in (
                    [],
                    [row["window_id"]],
                )
                assert row[f"{side}_text"].startswith(" ")  # as real ones do


def test_the_seed_decides_sides_and_order_and_both_sides_occur(prepared):
    first, again, other = (
        comparisons(prepared(f"--seed {seed}", name=f"{number}.db")) for number, seed in enumerate((1, 1, 2))
    )
    assert first == again
    assert first != other
    for kind in ("item", "check"):
        assert len({row["left_source"] for row in first if row["kind"] == kind}) == 2
    assert [row["kind"] for row in first] != sorted(row["kind"] for row in first)


def test_links_are_unguessable_private_and_not_in_the_study(prepared):
    study = prepared("--raters 50")
    tokens = [link.rsplit("/", 1)[1] for link in study.links]
    assert len(set(tokens)) == 50
    assert all(len(token) >= 32 for token in tokens)
    content = study.path.read_bytes()
    assert not any(token.encode() in content for token in tokens)
    assert digest(tokens[0]).encode() in content
    assert stat.S_IMODE(Path(f"{study.path}.links.csv").stat().st_mode) == 0o600


def test_completions_that_are_equal_or_blank_are_not_compared(tmp_path):
    rows = [
        {"window_id": f"w{n}", "context_text": f"c{n}", "real_text": f"r {n}", "base_text": base, "chosen_text": "x"}
        for n, base in enumerate(["x", " x\n", "", "  ", "y", "z", "other"])
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "s.parquet")
    flags = f"--a {tmp_path}/s.parquet:base --b {tmp_path}/s.parquet:chosen --gold {tmp_path}/s.parquet"
    prepare.main(f"{flags} --items 2 --qualification_items 1 --output {tmp_path}/study.db".split())
    Path(f"{tmp_path}/study.db.links.csv").touch()
    found = comparisons(Prepared(tmp_path / "study.db", ""))
    assert {row["window_id"] for row in found if row["kind"] == "item"} <= {"w4", "w5", "w6"}


def test_real_texts_can_come_from_the_windows_themselves(tmp_path):
    store = str(tmp_path / "windows")
    make_windows.main(f"--input=builtin:sums:lines=60 --split=train --shards=1 --output={store}".split())
    windows = list(Store(store).rows(["window_id", "tokens"]))[:10]
    samples = [
        {
            "window_id": row["window_id"],
            "context": row["tokens"][:8].tolist(),
            "context_text": "",
            "base_text": "0000",
            "chosen_text": f"{number}",
        }
        for number, row in enumerate(windows)
    ]
    encoder = load_tokenizer(store)
    for sample in samples:
        sample["context_text"] = encoder.decode(sample["context"])
    pq.write_table(pa.Table.from_pylist(samples), tmp_path / "s.parquet")
    flags = f"--a {tmp_path}/s.parquet:base --b {tmp_path}/s.parquet:chosen --gold {store} --decoys other"
    prepare.main(f"{flags} --items 6 --qualification_items 4 --checks 9 --output {tmp_path}/study.db".split())
    rows = comparisons(Prepared(tmp_path / "study.db", ""))
    for row in (row for row in rows if row["kind"] == "check"):
        texts = {row[f"{side}_source"]: int(row[f"{side}_text"]) for side in ("left", "right")}
        total = sum(map(int, row["context"].removesuffix("=").split("+")))
        assert (texts["gold"], texts["decoy"] == total) == (total, False)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--items 40", "or --items 35"),
        ("--items 0", "--items 0: at least 1"),
        ("--b {}:nothing", "say which text"),
        ("--b {}", "say which text"),
        ("--a /nowhere:base", "no samples.parquet in it"),
        ("--gold /nowhere", "no samples.parquet in it"),
        ("--pass_above 1", "--pass_above 1.0: a share"),
        ("--days 0", "--days 0.0: above 0"),
        ("--b {}:base", "no context has two different completions"),
        ("--nonsense", "see --help"),
    ],
)
def test_what_cannot_be_done_is_named(tmp_path, flags, words):
    samples = write_samples(tmp_path / "samples", 40)
    usual = f"--a {samples}:base --b {samples}:chosen --gold {samples} --items 12 --qualification_items 4"
    with pytest.raises(UserError, match=words):
        prepare.main(f"{usual} --output {tmp_path}/study.db {flags.format(samples)}".split())
    assert not Path(tmp_path, "study.db").exists()


def test_votes_are_not_overwritten_and_leftovers_do_no_harm(prepared, tmp_path):
    (tmp_path / "study.db.tmp").write_text("of a killed run")
    prepared()
    assert sorted(path.name for path in tmp_path.glob("study.db*") if not path.name.endswith(("-wal", "-shm"))) == [
        "study.db",
        "study.db.links.csv",
    ]
    with pytest.raises(UserError, match="there is something already"):
        prepared()


@pytest.mark.slow
def test_commands_end_with_one_line_and_code_2(tmp_path):
    (tmp_path / "text.db").write_text("no database, but long enough to be read as if it were one" * 20)
    for script, path, *more in (("serve", "nothing.db"), ("export", "text.db", "--votes", tmp_path / "votes.csv")):
        ended = run(f"evaluation/human/{script}.py", "--study", tmp_path / path, *more)
        assert ended.returncode == 2
        assert ended.stderr.startswith("error: --study")
        assert ended.stderr.count("\n") == 1
