"""Whether two stores were made from documents in common, as far as digests show."""

import pytest

from pipeline.stores.reader import Store
from pipeline.text.inputs import share_text, text_of


@pytest.mark.parametrize(
    ("inputs", "parts", "shared"),
    [
        (("ab", "bc"), (None, None), True),
        (("ab", "cd"), (None, None), False),
        (("ab", "ab"), ("1/2", "2/2"), False),
        (("ab", "ab"), ("1/2", "3/4"), True),
        (("ab", "ab"), ("1/2", None), True),
        (("", "ab"), (None, None), None),
    ],
)
def test_texts_share_documents_if_a_file_is_in_both_and_its_parts_meet(inputs, parts, shared):
    texts = [{"inputs": list(names), "documents": part} for names, part in zip(inputs, parts, strict=True)]
    assert share_text(*texts) is shared
    assert share_text(*texts[::-1]) is shared


def test_of_a_model_from_elsewhere_nothing_is_known():
    assert share_text(None, {"inputs": ["a"], "documents": None}) is None


def test_stores_of_the_same_files_share_text_and_their_halves_do_not(texts, windows):
    whole, first, second = (
        text_of(Store(windows(texts / "*.jsonl", output=name, flags=flags)).manifest)
        for name, flags in (("whole", ""), ("first", "--documents 1/2"), ("second", "--documents 2/2"))
    )
    assert share_text(whole, first) is share_text(second, whole) is share_text(first, first) is True
    assert share_text(first, second) is False
    assert share_text(whole, text_of(Store(windows(texts / "*.txt", output="others")).manifest)) is False


def test_lines_that_are_drawn_from_a_rule_are_no_text(windows):
    assert text_of(Store(windows("builtin:sums:lines=50", flags="--window 13")).manifest)["inputs"] == []
