"""Splits: text is divided into train, valid and test by whole documents, or within each document by place.

Neighbouring pages of a book tell of the same people in the same words: no piece of one may lie in train between two
in test. Many documents are divided as wholes; of a few, each gives contiguous stretches, with a seam between two.
"""

import hashlib
from collections.abc import Sequence
from itertools import pairwise

from pipeline.runtime.errors import UserError

BY_DOCUMENT, BY_PLACE = "document", "place"
LEAST_DOCUMENTS = 60  # of which a twentieth is three
REACH = 2000  # characters, at most, from where a cut should be to where a paragraph or a line ends

Shares = dict[str, float]

WHOLE: Shares = {"train": 0.9, "valid": 0.05, "test": 0.05}
HALVES: Shares = {"train-1": 0.45, "train-2": 0.45, "valid": 0.05, "test": 0.05}


def choose_way(texts: Sequence[str]) -> tuple[str, str]:
    """Whether to divide by document or by place, and why: valid and test should have a few documents each."""
    distinct = len(set(texts))
    longest, smallest = max(map(len, texts), default=0), min(WHOLE.values())
    if distinct < LEAST_DOCUMENTS:
        return BY_PLACE, f"{distinct:,} different documents are fewer than {LEAST_DOCUMENTS}"
    if longest > smallest * sum(map(len, texts)):
        return BY_PLACE, f"of {distinct:,} documents the longest is more than {smallest:.0%} of the text"
    return BY_DOCUMENT, f"{distinct:,} different documents, none with more than {smallest:.0%} of the text"


def by_document(texts: Sequence[str], shares: Shares) -> list[str]:
    """The split of each text, by the order of the texts' hashes: the same in any order of files, equal ones together.

    Each split has its share of the different texts, rounded, and at least one.
    """
    digests = [hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).digest() for text in texts]
    ordered = sorted(set(digests))
    first, *others = shares
    sizes = {split: max(1, round(shares[split] * len(ordered))) for split in others}
    sizes = {first: len(ordered) - sum(sizes.values())} | sizes
    if sizes[first] < 1:
        raise UserError(f"--by document: {len(ordered)} different documents for {len(shares)} files: see --by place")
    splits = [split for split, size in sizes.items() for _ in range(size)]
    split_of = dict(zip(ordered, splits, strict=True))
    return [split_of[digest] for digest in digests]


def by_place(text: str, shares: Shares) -> dict[str, str]:
    """A document's contiguous stretches, in the order of the shares."""
    ends, total = [], 0.0
    for share in list(shares.values())[:-1]:
        total += share
        ends.append(round(total * len(text)))
    return dict(zip(shares, cut(text, ends, round(min(shares.values()) * len(text)) // 2), strict=True))


def lines_of(text: str, size: int) -> list[str]:
    """A stretch in parts of about `size` characters, all about as long."""
    count = max(1, round(len(text) / size))
    return cut(text, [round(len(text) * part / count) for part in range(1, count)], size // 4)


def cut(text: str, ends: Sequence[int], reach: int) -> list[str]:
    """The parts of a text: each ends where it should, or up to `reach` characters before, where a paragraph ends.

    Where none does, a line, a sentence or a word.
    """
    places = [0, *(best_end(text, end, min(reach, REACH)) for end in ends), len(text)]
    return [text[start:end] for start, end in pairwise(places)]


def best_end(text: str, end: int, reach: int) -> int:
    for mark in ("\n\n", "\n", ". ", " "):
        found = text.rfind(mark, max(end - reach, 0), end)
        if found >= 0:
            return found + len(mark)
    return end
