"""Splits as the command makes them: contiguous, disjoint, without copies, and the same every time."""

import json
import random
from pathlib import Path

import pytest

from pipeline import split_texts
from pipeline.runtime.errors import UserError
from pipeline.text.splits import HALVES, WHOLE
from tests.helpers.commands import run

BOOK = [f"line {number} of a long text\n" for number in range(20_000)]


def words(seed: int, count: int = 200) -> str:
    return " ".join(f"word{number}" for number in random.Random(seed).choices(range(5000), k=count))


def write_documents(path: Path, texts: list[str]) -> None:
    path.write_text("".join(json.dumps({"id": f"d{number}", "text": text}) + "\n" for number, text in enumerate(texts)))


def divided(folder: Path, name: str, *flags: str) -> tuple[dict[str, list[dict[str, str]]], dict]:
    """The lines of each file, and the summary."""
    output = folder / f"out-{len(list(folder.iterdir()))}"
    assert split_texts.main(["--input", f"{folder}/{name}", "--output", str(output), *flags]) == 0
    splits = HALVES if "--halves" in flags else WHOLE
    assert {path.name for path in output.iterdir()} == {*(f"{split}.jsonl" for split in splits), "splits.json"}
    found = {split: list(map(json.loads, (output / f"{split}.jsonl").read_text().splitlines())) for split in splits}
    return found, json.loads((output / "splits.json").read_text())


@pytest.mark.parametrize("flags", [[], ["--halves"]])
def test_a_book_is_divided_by_place_into_contiguous_stretches(tmp_path, flags):
    (tmp_path / "a.txt").write_text("".join(BOOK))
    found, summary = divided(tmp_path, "a.txt", *flags)
    assert summary["by"] == "place"
    assert summary["reason"] == "1 different documents are fewer than 60"
    assert "".join(line["text"] for lines in found.values() for line in lines) == "".join(BOOK)
    ids = [line["id"] for lines in found.values() for line in lines]
    assert ids == [f"{tmp_path}/a.txt:{place}" for place in range(len(ids))]
    assert all(10_000 < len(line["text"]) < 30_000 for lines in found.values() for line in lines)
    sizes = {split: counts["characters"] / len("".join(BOOK)) for split, counts in summary["splits"].items()}
    assert sizes == pytest.approx(HALVES if flags else WHOLE, abs=0.01)
    assert divided(tmp_path, "a.txt", *flags)[0] == found


@pytest.mark.parametrize("flags", [[], ["--halves"]])
def test_many_documents_are_divided_as_wholes(tmp_path, flags):
    texts = [words(seed) for seed in range(99)] + [words(7), "", words(99, 5000)]
    write_documents(tmp_path / "a.jsonl", texts)
    found, summary = divided(tmp_path, "a.jsonl", "--piece", "4000", "--by", "document", *flags)
    assert (summary["by"], summary["reason"]) == ("document", "--by says so")
    split_of = {}
    for split, lines in found.items():
        for line in lines:
            split_of.setdefault(line["id"].rpartition(":")[0].rpartition(":")[2], set()).add(split)
    assert len(split_of) == 101
    assert all(len(splits) == 1 for splits in split_of.values())
    assert split_of["d7"] == split_of["d99"]  # the same text
    long = [line["text"] for lines in found.values() for line in lines if ":d101:" in line["id"]]
    assert len(long) > 5
    assert "".join(long) == texts[101]
    assert divided(tmp_path, "a.jsonl", *flags)[1]["by"] == "place"  # one has more than a twentieth of all text
    write_documents(tmp_path / "b.jsonl", texts[:60])
    found, summary = divided(tmp_path, "b.jsonl", *flags)
    assert summary["by"] == "document"
    assert [len(lines) for lines in found.values()] == ([27, 27, 3, 3] if flags else [54, 3, 3])
    assert sorted(line["text"] for lines in found.values() for line in lines) == sorted(texts[:60])


def test_copies_are_left_out_of_valid_and_test_and_named(tmp_path, capsys):
    """Every text stands there twice, with another last word: wherever the two are apart, the later one is a copy."""
    texts = [words(seed) for seed in range(100)]
    write_documents(tmp_path / "a.jsonl", [*texts, *(f"{text} end" for text in texts)])
    everything, _ = divided(tmp_path, "a.jsonl", "--max_copied", "1")
    assert "left out" not in capsys.readouterr().out
    first = {split: {line["text"].removesuffix(" end") for line in lines} for split, lines in everything.items()}
    expected = {
        "valid": {line["id"] for line in everything["valid"] if line["text"].removesuffix(" end") in first["train"]},
        "test": {
            line["id"]
            for line in everything["test"]
            if line["text"].removesuffix(" end") in first["train"] | first["valid"]
        },
    }
    found, summary = divided(tmp_path, "a.jsonl")
    assert found["train"] == everything["train"]
    for split, ids in expected.items():
        assert len(ids) >= 4
        assert {copy["id"] for copy in summary["copies"] if copy["split"] == split} == ids
        assert {line["id"] for line in everything[split]} - {line["id"] for line in found[split]} == ids
    assert {copy["share"] for copy in summary["copies"]} <= {1, 193 / 194}
    said = capsys.readouterr().out
    assert (
        f"{len(expected['valid'])} of valid and {len(expected['test'])} of test, copies: more than 50% of their runs"
        in said
    )
    assert f"and {len(summary['copies']) - 10} more" in said


def test_a_text_in_two_editions_leaves_no_copies_across_a_seam(tmp_path):
    """The second has a long foreword, so its seams are elsewhere: what of its train is in the first's test goes."""
    book = "\n".join(words(seed, 12) for seed in range(8000))
    (tmp_path / "a.txt").write_text(book)
    (tmp_path / "b.txt").write_text("\n".join(words(-1 - seed, 12) for seed in range(800)) + "\n" + book)
    found, summary = divided(tmp_path, "*.txt", "--piece", "2000")
    assert any(copy["id"].startswith(f"{tmp_path}/b.txt") for copy in summary["copies"])
    train = {line for one in found["train"] for line in one["text"].splitlines()}
    for split in ("valid", "test"):
        for one in found[split]:
            lines = one["text"].splitlines()
            assert sum(line in train for line in lines) <= 0.55 * len(lines)


def test_files_of_an_earlier_run_do_not_stay(tmp_path):
    (tmp_path / "a.txt").write_text("".join(BOOK))
    given = ["--input", f"{tmp_path}/a.txt", "--output", f"{tmp_path}/out"]
    split_texts.main([*given, "--halves"])
    assert (tmp_path / "out/train-2.jsonl").exists()
    split_texts.main(given)
    assert sorted(path.stem for path in (tmp_path / "out").iterdir()) == ["splits", "test", "train", "valid"]


def test_settings_can_be_taken_from_a_summary(tmp_path):
    (tmp_path / "a.txt").write_text("".join(BOOK))
    split_texts.main(["--input", f"{tmp_path}/a.txt", "--output", f"{tmp_path}/out", "--halves", "--piece", "5000"])
    split_texts.main(["--settings", f"{tmp_path}/out/splits.json", "--output", f"{tmp_path}/again"])
    for name in ("train-1", "train-2", "valid", "test"):
        assert (tmp_path / f"out/{name}.jsonl").read_bytes() == (tmp_path / f"again/{name}.jsonl").read_bytes()


def test_bad_input_is_named(tmp_path, capsys):
    (tmp_path / "short.txt").write_text("short")
    (tmp_path / "same.jsonl").write_text((json.dumps({"text": words(1)}) + "\n") * 5)
    (tmp_path / "train.jsonl").write_text(json.dumps({"text": words(1)}))
    cases = [
        ("short.txt", "", "too little text: nothing of it is left for"),
        ("same.jsonl", "--by document", "1 different documents for 3 files"),
        ("train.jsonl", f"--output {tmp_path}", "it is a file that is written"),
        ("none.txt", "", "no file matches"),
        ("same.jsonl", "--max_copied 2", "between 0 and 1"),
    ]
    for name, flags, message in cases:
        with pytest.raises(UserError) as error:
            split_texts.main(["--input", f"{tmp_path}/{name}", "--output", f"{tmp_path}/out", *flags.split()])
        assert message in str(error.value), name
    (tmp_path / "book.txt").write_text("".join(BOOK))
    (tmp_path / "broken.txt").write_bytes(b"no \xff text")
    divided(tmp_path, "b*.txt")
    said = capsys.readouterr().out
    assert f"1 documents, the first is {tmp_path}/broken.txt: invalid UTF-8 (see --encoding)" in said


def test_help_says_why_there_are_halves():
    said = " ".join(run("pipeline/split_texts.py", "--help").stdout.split())
    assert "an energy that is trained on the same text learns to see memory" in said
