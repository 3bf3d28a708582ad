"""Parts of a corpus: every document in exactly one of them, and which parts have documents in common."""

from hashlib import blake2b
from itertools import product

import pytest

from pipeline.runtime.errors import UserError
from pipeline.text.document_part import DocumentPart

DIGESTS = [blake2b(str(number).encode(), digest_size=16).digest() for number in range(3000)]


def test_every_document_is_in_one_part_and_parts_are_about_as_large():
    parts = [DocumentPart(number, 3) for number in (1, 2, 3)]
    assert all(sum(part.has(digest) for part in parts) == 1 for digest in DIGESTS)
    assert all(abs(sum(map(part.has, DIGESTS)) - 1000) < 100 for part in parts)


def test_parts_meet_where_a_document_is_in_both():
    parts = [DocumentPart(number, of) for of in (1, 2, 3, 4, 6) for number in range(1, of + 1)]
    for one, other in product(parts, parts):
        assert one.meets(other) == any(one.has(digest) and other.has(digest) for digest in DIGESTS)


def test_nothing_is_everything_and_nonsense_is_refused():
    assert DocumentPart.parse(None) == DocumentPart(1, 1)
    assert DocumentPart.parse("2/3") == DocumentPart(2, 3)
    for text in ("0/2", "3/2", "1", "a/b", "1/0", "-1/2", ""):
        with pytest.raises(UserError, match="a part of how many"):
            DocumentPart.parse(text)
