"""The settings of a test, from what training and test were made from."""

import pytest

from evaluation.detection.labels import Origin, origin, setting_of, warning_about


def made(corpora: str, architectures: str, digests: str = "") -> Origin:
    return Origin(*(frozenset(words.split()) for words in (corpora, architectures, digests)))


@pytest.mark.parametrize(
    ("train", "test", "expected"),
    [
        (made("books", "conv"), made("books", "conv"), "in-domain"),
        (made("books", "conv"), made("books", "transf"), "cross-architecture"),
        (made("books", "conv"), made("wiki", "conv"), "cross-corpus"),
        (made("books", "conv"), made("wiki", "transf"), "wild"),
        (made("books wiki", "conv"), made("wiki", "conv"), "in-domain"),
        (made("books wiki", "conv transf"), made("news", "transf"), "cross-corpus"),
        (made("books", "conv"), made("books wiki", "conv"), "cross-corpus"),
        (made("books", ""), made("books", "conv"), "unknown"),
    ],
)
def test_every_setting_is_found_from_what_training_and_test_were_made_from(train, test, expected):
    assert setting_of(train, test) == expected


def test_the_training_generator_itself_is_warned_about():
    assert warning_about(made("b", "c", "1 2"), made("b", "c", "2"))
    assert warning_about(made("b", "c", "1"), made("b", "c", "2")) is None
    stores = [{"corpus": "b", "generator": {"architecture": "c", "digest": "1"}}, {"corpus": None, "generator": None}]
    assert origin(stores) == made("b", "c", "1")
