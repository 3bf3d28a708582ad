"""Division of text: by whole documents or by place, shares kept, nothing lost, nothing interleaved."""

import random

import pytest

from pipeline.runtime.errors import UserError
from pipeline.text.splits import HALVES, WHOLE, by_document, by_place, choose_way, lines_of
from tests.helpers.commands import words


@pytest.mark.parametrize("shares", [WHOLE, HALVES])
@pytest.mark.parametrize("text", [words(20_000, 1), "x" * 50_001, "one line of words " * 3000, "two\n\nlines"])
def test_stretches_are_the_text_in_order_with_their_shares(shares, text):
    found = by_place(text, shares)
    assert list(found) == list(shares)
    assert "".join(found.values()) == text
    if len(text) > 1000:
        for split, share in shares.items():
            assert len(found[split]) / len(text) == pytest.approx(share, abs=0.026)


def test_cuts_are_at_ends_of_paragraphs_else_lines_else_sentences_else_words():
    for mark in ("\n\n", "\n", ". ", " "):
        text = mark.join(words(12, seed).replace("\n", "-").replace(" ", "_") for seed in range(500))
        parts = [*by_place(text, WHOLE).values(), *lines_of(text, 5000)]
        assert len(parts) > 5
        assert all(part.endswith(mark) or text.endswith(part) for part in parts)


def test_lines_are_about_as_long_as_they_should_be():
    text = words(20_000, 2)
    lines = lines_of(text, 4000)
    assert "".join(lines) == text
    assert all(2900 < len(line) < 5100 for line in lines)
    assert lines_of("short", 4000) == ["short"]
    assert lines_of("x" * 5999, 4000) == ["x" * 5999]


@pytest.mark.parametrize("count", [3, 20, 60, 61, 999])
def test_documents_are_divided_in_their_shares_in_any_order(count):
    texts = [words(20, seed) for seed in range(count)]
    splits = by_document(texts, WHOLE)
    few = max(1, round(0.05 * count))
    assert {split: splits.count(split) for split in WHOLE} == {"train": count - 2 * few, "valid": few, "test": few}
    order = random.Random(3).sample(range(count), count)
    assert by_document([texts[place] for place in order], WHOLE) == [splits[place] for place in order]


def test_equal_documents_are_in_one_split():
    texts = [words(20, seed) for seed in range(100)]
    splits = by_document([*texts, *texts], HALVES)
    assert splits[:100] == splits[100:]
    assert {split: splits[:100].count(split) for split in HALVES} == {
        "train-1": 45,
        "train-2": 45,
        "valid": 5,
        "test": 5,
    }


def test_too_few_documents_are_refused():
    with pytest.raises(UserError, match="--by document: 2 different documents for 3 files: see --by place"):
        by_document(["a", "b", "a"], WHOLE)


def test_the_way_is_chosen_by_number_and_length_of_documents():
    texts = [f"{number:03} " + "x" * 96 for number in range(100)]
    assert choose_way(texts[:60])[0] == "document"
    assert choose_way(texts[:59]) == ("place", "59 different documents are fewer than 60")
    assert choose_way(texts[:59] * 2)[0] == "place"
    assert choose_way([*texts, "x" * 500])[0] == "document"
    assert choose_way([*texts, "x" * 600]) == ("place", "of 101 documents the longest is more than 5% of the text")
