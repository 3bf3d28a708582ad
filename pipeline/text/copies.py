"""Copies: documents much of whose text stands in other documents too, told by the runs of eight words that they share.

A shingle is eight words that follow each other, lower-cased. Documents that are asked about are held in memory, as
64-bit hashes of their shingles, about 32 bytes a word; the text that is searched passes by, piece by piece.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

SHINGLE_WORDS = 8
MOST_COPIED = 0.5  # of a document's shingles, in splits that a measurement can be trusted on
WORD = re.compile(r"\w+")
FACTOR = np.uint64(0x9E3779B97F4A7C15)  # odd, so that no word's hash is lost

Hashes = NDArray[np.uint64]
NONE: Hashes = np.empty(0, np.uint64)


@dataclass(frozen=True)
class Shingles:
    """The distinct shingles of some documents."""

    hashes: Hashes  # of all documents, sorted, each once
    places: NDArray[np.int64]  # among them, of the shingles of one document after the other
    ends: NDArray[np.int64]  # of each document in `places`


def gather(documents: Iterable[Iterable[str]]) -> Shingles:
    """The shingles of documents, each of which comes in pieces of text."""
    found = [np.unique(np.concatenate([NONE, *shingles(document)])) for document in documents]
    hashes, places = np.unique(np.concatenate([NONE, *found]), return_inverse=True)
    return Shingles(hashes, places.reshape(-1), np.cumsum([len(one) for one in found], dtype=np.int64))


def found_in(searched: Iterable[Iterable[str]], asked: Shingles) -> NDArray[np.bool_]:
    """Which of the hashes stand in the documents that are searched."""
    found = np.zeros(len(asked.hashes), bool)
    if not len(found):
        return found
    for document in searched:
        for hashes in shingles(document):
            hashes = np.unique(hashes)  # in order, they are looked up several times faster
            places = np.searchsorted(asked.hashes, hashes)
            places[places == len(found)] = 0
            found[places[asked.hashes[places] == hashes]] = True
    return found


def copied_shares(asked: Shingles, found: NDArray[np.bool_]) -> NDArray[np.float64]:
    """For each document, how much of it was found: of its distinct shingles, from 0 to 1. Without a word it is 0."""
    sums = np.concatenate([[0], np.cumsum(found[asked.places])])
    starts = np.concatenate([[0], asked.ends[:-1]]).astype(np.int64)
    return np.asarray((sums[asked.ends] - sums[starts]) / np.maximum(asked.ends - starts, 1), np.float64)


def shingles(document: Iterable[str]) -> Iterator[Hashes]:
    """The hashes of a document's shingles in their order. One that is shorter than a shingle is one as a whole."""
    held, short = NONE, True
    for words in _words(document):
        held = np.concatenate([held, np.fromiter(map(_hash, words), np.uint64, len(words))])
        if len(held) >= SHINGLE_WORDS:
            yield _combined(held, SHINGLE_WORDS)
            held, short = held[1 - SHINGLE_WORDS :], False
    if short and len(held):
        yield _combined(held, len(held))


def _words(document: Iterable[str]) -> Iterator[list[str]]:
    """Lower-cased words, wherever the pieces of a document end."""
    rest = ""
    for piece in document:
        text = rest + piece
        end = max(text.rfind(" "), text.rfind("\n")) + 1
        yield WORD.findall(text[:end].lower())
        rest = text[end:]
    yield WORD.findall(rest.lower())


@lru_cache(maxsize=1 << 17)
def _hash(word: str) -> int:
    return int.from_bytes(hashlib.blake2b(word.encode("utf-8", "replace"), digest_size=8).digest())


def _combined(words: Hashes, width: int) -> Hashes:
    """A hash of each `width` words that follow each other, their order included."""
    count = len(words) - width + 1
    combined = np.zeros(count, np.uint64)
    for place in range(width):
        combined = combined * FACTOR + words[place : place + count]  # modulo 2^64
    return combined
