"""Shares of copied text, against sets of words counted by themselves."""

import random
import re

import numpy as np
import pytest

from pipeline.text.copies import SHINGLE_WORDS, copied_shares, found_in, gather, shingles


def runs_of(text: str) -> set[tuple[str, ...]]:
    """The same by another way: tuples of words, in a set."""
    words = re.findall(r"\w+", text.lower())
    count = max(1, len(words) - SHINGLE_WORDS + 1)
    return {tuple(words[start : start + SHINGLE_WORDS]) for start in range(count)} if words else set()


def made_up(seed: int, count: int, vocabulary: int = 5000) -> list[str]:
    return [f"word{number}" for number in random.Random(seed).choices(range(vocabulary), k=count)]


def shares_of(asked: list[str], searched: list[str]) -> list[float]:
    held = gather([text] for text in asked)
    return copied_shares(held, found_in(([text] for text in searched), held)).tolist()


def test_shares_are_those_of_sets_of_words():
    train = [made_up(seed, 300) for seed in range(20)]
    asked = [
        train[3],  # all of it
        train[4][:200] + made_up(100, 100),  # two thirds, but for the seam
        [word for place, word in enumerate(train[5]) if place % 8 != 7],  # never eight in a row
        [word for place, word in enumerate(train[6]) if place % 20 != 19],
        made_up(101, 300),
        made_up(102, 4000, vocabulary=2),  # its shingles come again and again: they count once
        train[7][:5],  # a fragment is not a shingle of what it is from
        [],
    ]
    train.append(made_up(102, 4000, vocabulary=2)[:500])
    texts, searched = [" ".join(words) for words in asked], [" ".join(words).upper() for words in train]
    there = set().union(*map(runs_of, searched))
    expected = [len(runs_of(text) & there) / max(len(runs_of(text)), 1) for text in texts]
    assert shares_of(texts, searched) == pytest.approx(expected, abs=1e-12)
    assert expected[0] == 1
    assert expected[1] == (200 - 7) / (300 - 7)
    assert expected[2] == expected[4] == expected[6] == expected[7] == 0
    assert 0.4 < expected[3] < 0.7
    assert 0.5 < expected[5] < 1


def test_a_text_shorter_than_a_shingle_is_one():
    assert shares_of(["Stop press!", "stop"], ["nothing", "STOP, press", "stop press and more of it than that"]) == [
        1,
        0,
    ]


def test_case_marks_and_white_space_are_no_difference_and_order_is():
    text = "It was the best of times, it was the worst of times."
    assert shares_of([text], ["it WAS the\n\nbest of (times) it   was the worst of times"]) == [1]
    assert shares_of([text], [" ".join(reversed(text.split()))]) == [0]


@pytest.mark.parametrize("size", [1, 3, 7, 50, 1000])
def test_where_the_pieces_of_a_document_end_makes_no_difference(size):
    text = " ".join(made_up(1, 200)) + "\nTHE END ΟΔΥΣΣΕΥΣ"
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    whole = np.concatenate(list(shingles([text])))
    assert np.array_equal(np.concatenate(list(shingles(pieces))), whole)
    assert len(whole) == len(runs_of(text)) == 203 - SHINGLE_WORDS + 1


def test_nothing_is_copied_from_nothing():
    assert shares_of([], ["a text"]) == []
    assert shares_of(["", "!"], ["", "a text"]) == [0, 0]
    assert shares_of(["a text"], []) == [0]
