"""Near copies: documents that share most of their runs of eight words, found by MinHash without comparing all pairs.

Of each document's shingles (see copies.py) a signature is kept: for each of 128 hash functions the smallest hash. Two
signatures agree in a place with a probability that is the Jaccard similarity of the shingles, those that two documents
share as a part of all that either has. Signatures are cut into bands; documents that agree in a whole band are compared
by their signatures, of which a byte a place is enough, and are near copies if they agree in the wanted share of places
or more. Near copies of near copies form a group, of which the one with the smallest digest stays. Nothing depends on
the order of the documents.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from pipeline.runtime.randomness import U64, mix
from pipeline.text.copies import FACTOR, shingles

PLACES = 128
LEAST_FOUND = 0.98  # of pairs exactly as similar as is asked for, that agree in a band
AT_ONCE = 1 << 12  # shingles that are hashed together: all hashes of them stay in a processor's cache
CHANCE = 1 / 256  # that two different hashes have the same byte
COMPARED = 32  # documents that agree in a band and are compared each with each; of more, each with the first
FACTORS = mix(np.arange(PLACES, dtype=np.uint64), seed=8) | np.uint64(1)
SHIFTS = mix(np.arange(PLACES, dtype=np.uint64), seed=9)

Signatures = NDArray[np.uint32]
Digests = NDArray[np.void]
PAIR = np.dtype([("one", "V16"), ("other", "V16")])


def signature(document: Iterable[str]) -> Signatures | None:
    """Of a document that comes in pieces of text; None where there is no word in it."""
    smallest = np.full(PLACES, np.iinfo(np.uint64).max, np.uint64)
    words = False
    for hashes in shingles(document):
        words = words or bool(len(hashes))
        for start in range(0, len(hashes), AT_ONCE):
            some = hashes[start : start + AT_ONCE, None] * FACTORS + SHIFTS  # modulo 2^64
            smallest = np.minimum(smallest, some.min(axis=0))
    return (smallest >> np.uint64(32)).astype(np.uint32) if words else None


def choose_bands(similarity: float) -> tuple[int, int]:
    """Bands and their rows: as long as they can be while pairs of that similarity are still found nearly always."""
    for rows in range(PLACES, 1, -1):
        bands = PLACES // rows
        if 1 - (1 - similarity**rows) ** bands >= LEAST_FOUND:
            return bands, rows
    return PLACES, 1


def band_hashes(signatures: Signatures, bands: int, rows: int) -> U64:
    """A hash of each band of each signature; those of different bands differ."""
    cut = signatures[:, : bands * rows].reshape(len(signatures), bands, rows).astype(np.uint64)
    combined = np.broadcast_to(np.arange(bands, dtype=np.uint64), cut.shape[:2])
    for row in range(rows):
        combined = combined * FACTOR + cut[:, :, row]
    return mix(combined, seed=10)


def similar_pairs(hashes: U64, digests: Digests, places: NDArray[np.uint8], similarity: float) -> NDArray[np.void]:
    """Pairs of near copies that agree in a band. Documents are given once a band, with their signatures' bytes."""
    halves = digests.view(">u8").reshape(-1, 2)
    order = np.lexsort((halves[:, 1], halves[:, 0], hashes))
    hashes, digests, places = hashes[order], digests[order], places[order]
    least = CHANCE + similarity * (1 - CHANCE)
    edges = np.flatnonzero(np.concatenate([[True], hashes[1:] != hashes[:-1], [True]]))
    found = [np.empty(0, PAIR)]
    for run in np.flatnonzero(np.diff(edges) > 1):
        start, end = int(edges[run]), int(edges[run + 1])
        ones = range(start, end - 1) if end - start <= COMPARED else [start]
        for one in ones:
            others = np.arange(one + 1, end)
            agreeing = (places[others] == places[one]).mean(axis=1)
            near = others[(agreeing >= least) & (digests[others] != digests[one])]
            pairs = np.empty(len(near), PAIR)
            pairs["one"], pairs["other"] = digests[one], digests[near]
            found.append(pairs)
    return np.unique(np.concatenate(found).view("V32")).view(PAIR)


def all_but_one(pairs: NDArray[np.void]) -> Digests:
    """Of the groups that pairs of near copies form, every digest but the smallest."""
    digests, places = np.unique(np.concatenate([pairs["one"], pairs["other"]]), return_inverse=True)
    one, other = places.reshape(2, -1)
    label = np.arange(len(digests))
    while True:
        least = np.minimum(label[one], label[other])
        new = label.copy()
        np.minimum.at(new, label[one], least)
        np.minimum.at(new, label[other], least)
        new = new[new]
        if np.array_equal(new, label):
            return digests[label != np.arange(len(digests))]
        label = new
