from collections import Counter

import pytest
from scipy import stats

from pipeline.runtime.errors import UserError
from pipeline.text.builtin_corpora import ALPHABET, SPLITS, Lines, parse_lines, python_docs
from pipeline.text.tokenizer import character_tokenizer


def lines(language: Lines, split: str) -> list[str]:
    return "".join(language.texts(split)).splitlines(keepends=True)


def is_correct(line: str) -> bool:
    """Whether a line is a true sum in the form of `builtin:sums`."""
    left, equals, right = line.removesuffix("\n").partition("=")
    a, plus, b = left.partition("+")
    if not (equals and plus and (a + b + right).isdecimal()) or len(a) != len(b) or len(right) != len(a) + 1:
        return False
    return int(a) + int(b) == int(right)


@pytest.mark.parametrize("digits", [1, 2, 3, 9])
def test_every_line_is_a_true_sum_of_fixed_width(digits):
    sums = Lines("sums", digits, 20_000)
    found = lines(sums, "train")
    assert len(found) == 20_000
    assert {len(line) for line in found} == {sums.line_length}
    assert all(line[2 * digits + 1] == "=" and is_correct(line) for line in found)


@pytest.mark.parametrize("digits", [1, 6, 9])
def test_every_line_is_digits_and_the_same_in_order(digits):
    sorting = Lines("sorting", digits, 20_000)
    found = lines(sorting, "test")
    assert len(found) == 20_000
    assert all(line == f"{line[:digits]}={''.join(sorted(line[:digits]))}\n" for line in found)
    assert {len(line) for line in found} == {sorting.line_length}


def test_the_form_is_most_significant_digit_first_with_leading_zeros():
    assert all(is_correct(line) for line in ("042+979=1021\n", "000+001=0001", "9+9=18"))
    assert not any(is_correct(line) for line in ("042+979=1022\n", "42+979=1021", "042+979=21", "1+1", "", "a+b=cc"))


def test_splits_are_disjoint_and_all_pairs_occur():
    found = {split: set(lines(Lines("sums", 2, 200_000), split)) for split in SPLITS}
    assert not (found["train"] & found["valid"])
    assert not (found["train"] & found["test"])
    assert not (found["valid"] & found["test"])
    assert sum(map(len, found.values())) == 10_000
    assert len(found["train"]) == pytest.approx(8000, rel=0.02)


def test_lists_of_digits_keep_to_their_split_and_all_occur():
    found = [set(lines(Lines("sorting", 4, 200_000), split)) for split in SPLITS]
    assert len(set.union(*found)) == sum(map(len, found)) == 10_000


def test_pairs_are_drawn_evenly():
    counts = Counter(lines(Lines("sums", 1, 50_000), "train"))
    assert stats.chisquare(list(counts.values())).pvalue > 1e-3


def test_a_longer_corpus_begins_with_the_shorter_one():
    assert lines(Lines("sums", 3, 30_000), "valid")[:1000] == lines(Lines("sums", 3, 1000), "valid")


def test_parameters_come_from_the_inputs_name():
    assert parse_lines("builtin:sums") == Lines("sums", 3, None)
    assert parse_lines("builtin:sums:digits=5:lines=70") == Lines("sums", 5, 70)
    assert parse_lines("builtin:sorting:lines=70") == Lines("sorting", 6, 70)
    assert parse_lines("builtin:python-docs") is None
    for bad in ("builtin:sums:digits=0", "builtin:sums:digits=x", "builtin:sums:size=3", "builtin:sums:digits=10"):
        with pytest.raises(UserError, match=bad):
            parse_lines(bad)


def test_every_character_is_one_piece():
    encoder = character_tokenizer(ALPHABET)
    assert encoder.encode(["042+979=1021\n"]) == [[0, 4, 2, 10, 9, 7, 9, 11, 1, 0, 2, 1, 12]]
    assert encoder.decode(range(13)) == ALPHABET
    assert (encoder.eos_token_id, encoder.vocabulary_size) == (13, 14)


def test_python_docs_are_there_and_disjoint():
    found = {split: set(python_docs(split)) for split in SPLITS}
    assert all(found.values())
    assert not (found["train"] & found["valid"])
    assert not (found["train"] & found["test"])
    assert sum(map(len, found["train"])) > 200_000
