"""Copies between splits that exist already: who they are, what is written, what is refused."""

import gzip
import json
import random

import pytest

from pipeline import find_copies
from pipeline.runtime.errors import UserError
from tests.helpers.commands import DATA, run


def words(seed: int, count: int = 100) -> list[str]:
    return [f"word{number}" for number in random.Random(seed).choices(range(5000), k=count)]


@pytest.fixture
def splits(tmp_path):
    train = [words(seed) for seed in range(50)]
    test = {"whole": train[3], "half": train[4][:60] + words(100, 40), "tenth": train[5][:20] + words(101, 80)}
    (tmp_path / "train.1.jsonl").write_text("".join(json.dumps({"text": " ".join(text)}) + "\n" for text in train[:4]))
    rows = "".join(json.dumps({"text": " ".join(text)}) + "\n" for text in train[4:])
    (tmp_path / "train.2.jsonl.gz").write_bytes(gzip.compress(rows.encode()))
    lines = [json.dumps({"id": id, "text": " ".join(text)}) for id, text in test.items()]
    (tmp_path / "test.jsonl").write_text("\n".join([*lines, "not JSON"]))
    return tmp_path


def test_documents_over_the_threshold_are_named_with_their_shares(splits):
    given = ["--input", f"{splits}/train*", "--among", f"{splits}/test.jsonl", "--output", f"{splits}/found.json"]
    ended = run("pipeline/find_copies.py", *given)
    assert ended.returncode == 0
    lines = ended.stdout.splitlines()
    assert lines[0] == "2 of 4 documents have more than 50% of their runs of 8 words in 50 others"
    assert [line.split() for line in lines[1:3]] == [
        ["100%", f"{splits}/test.jsonl", "whole"],
        ["57%", f"{splits}/test.jsonl", "half"],
    ]
    assert "1 documents cannot be read" in lines[3]
    found = json.loads((splits / "found.json").read_text())
    assert [(copy["id"], copy["share"]) for copy in found["copies"]] == [("whole", 1), ("half", (60 - 7) / (100 - 7))]
    found = find_copies.find_copies(
        find_copies.CopiesSettings(input=(f"{splits}/train*",), among=(f"{splits}/test.jsonl",), max_copied=0.1)
    )
    assert [copy["id"] for copy in found["copies"]] == ["whole", "half", "tenth"]


def test_a_file_is_not_searched_for_copies_of_itself(splits, capsys):
    assert find_copies.main(["--input", f"{splits}/t*", "--among", f"{splits}/test.jsonl"]) == 0
    assert "2 of 4 documents" in capsys.readouterr().out
    with pytest.raises(UserError, match=r"nothing but the files of --among"):
        find_copies.main(["--input", f"{splits}/test.jsonl", "--among", f"{splits}/test.jsonl"])
    with pytest.raises(UserError, match=r"--among .*other.*: no file matches"):
        find_copies.main(["--input", f"{splits}/t*", "--among", f"{splits}/other*"])


@pytest.mark.skipif(not DATA.exists(), reason="the real texts are not here")
def test_eight_of_the_news_test_articles_are_copies():
    """As many as sets of tuples of words count."""
    given = find_copies.CopiesSettings(
        input=(f"{DATA}/news/train.jsonl",), among=(f"{DATA}/news/valid.jsonl", f"{DATA}/news/test.jsonl")
    )
    found = [copy["file"].rpartition("/")[2] for copy in find_copies.find_copies(given)["copies"]]
    assert (found.count("test.jsonl"), found.count("valid.jsonl")) == (8, 8)
