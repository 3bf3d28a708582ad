"""Near copies, compared with what sets of words say: exact Jaccard similarities, plain groups."""

import hashlib
import random
import re
from itertools import pairwise

import numpy as np
import pytest

from pipeline.text.near_copies import (
    PAIR,
    all_but_one,
    band_hashes,
    choose_bands,
    signature,
    similar_pairs,
)

VOCABULARY = [f"word{number}" for number in range(3000)]


def shingle_set(text: str) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+", text.lower())
    return {tuple(words[start : start + 8]) for start in range(max(1, len(words) - 7))}


def jaccard(one: str, other: str) -> float:
    a, b = shingle_set(one), shingle_set(other)
    return len(a & b) / len(a | b)


def edited(text: str, rng: random.Random, edits: int) -> str:
    """Another version: some words replaced, which costs up to eight shingles each."""
    words = text.split()
    for place in rng.sample(range(len(words)), edits):
        words[place] = rng.choice(VOCABULARY)
    return " ".join(words)


@pytest.fixture(scope="module")
def made_up() -> list[str]:
    """Texts of 200 to 400 words, each with two versions, from nearly equal to half of it changed."""
    rng = random.Random(7)
    texts = []
    for _ in range(150):
        text = " ".join(rng.choices(VOCABULARY, k=rng.randint(200, 400)))
        texts += [text, *(edited(text, rng, rng.choice([0, 1, 2, 3, 4, 6, 10, 20])) for _ in range(2))]
    return list(dict.fromkeys(texts))


def digests_of(texts: list[str]) -> np.ndarray:
    return np.frombuffer(b"".join(hashlib.blake2b(text.encode(), digest_size=16).digest() for text in texts), "V16")


def pairs_of(texts: list[str], similarity: float) -> set[frozenset[bytes]]:
    bands, rows = choose_bands(similarity)
    signatures = np.array([signature([text]) for text in texts])
    documents = np.repeat(np.arange(len(texts)), bands)
    hashes = band_hashes(signatures, bands, rows).reshape(-1)
    places = signatures.astype(np.uint8)[documents]
    pairs = similar_pairs(hashes, digests_of(texts)[documents], places, similarity)
    return {frozenset((pair["one"].tobytes(), pair["other"].tobytes())) for pair in pairs}


def test_signatures_agree_as_often_as_shingles_are_shared(made_up):
    """Unbiased over 300 pairs, and each within what 128 draws allow."""
    pairs = [(made_up[k], made_up[k + 1]) for k in range(300)]
    truth = np.array([jaccard(*pair) for pair in pairs])
    found = np.array([(signature([one]) == signature([other])).mean() for one, other in pairs])
    assert np.abs(found - truth).max() < 4.5 * np.sqrt(0.25 / 128)
    deviations = np.sqrt(np.maximum(truth * (1 - truth), 1e-9) / 128)
    assert abs((found - truth).sum()) < 4 * np.sqrt((deviations**2).sum())
    assert ((truth > 0.2) & (truth < 0.95)).sum() > 50


@pytest.mark.parametrize("similarity", [0.5, 0.8])
def test_recall_and_precision_against_exact_similarities(made_up, similarity):
    digests = [digest.tobytes() for digest in digests_of(made_up)]
    found = pairs_of(made_up, similarity)
    truth = {
        frozenset((digests[one], digests[other])): jaccard(made_up[one], made_up[other])
        for one in range(len(made_up))
        for other in range(one + 1, min(one + 3, len(made_up)))  # versions of one text stand together
    }
    assert found <= truth.keys()  # nothing of different texts
    wanted = {pair for pair, share in truth.items() if share >= similarity}
    recall, precision = len(found & wanted) / len(wanted), len(found & wanted) / len(found)
    assert len(wanted) > 50
    assert recall > 0.9
    assert precision > 0.9
    margin = 4 * np.sqrt(similarity * (1 - similarity) / 128)  # beyond which there is no doubt
    assert {pair for pair, share in truth.items() if share >= similarity + margin} <= found
    assert all(truth[pair] > similarity - margin for pair in found)


def test_neither_order_nor_pieces_of_text_change_anything(made_up):
    some = made_up[:90]
    assert pairs_of(some, 0.8) == pairs_of(some[::-1], 0.8) == pairs_of(some + some[:20], 0.8)
    text = made_up[0]
    assert np.array_equal(signature([text]), signature([text[:333], text[333:700], text[700:]]))
    assert np.array_equal(signature([text]), signature([text.upper()]))
    assert signature(["", " … "]) is None


def test_many_versions_of_one_text_are_one_group():
    """More than are compared each with each."""
    rng = random.Random(1)
    text = " ".join(rng.choices(VOCABULARY, k=600))
    texts = [edited(text, rng, 1) for _ in range(100)]
    found = pairs_of(texts, 0.8)
    pairs = np.array([tuple(map(np.void, sorted(pair))) for pair in found], PAIR)
    assert sorted(d.tobytes() for d in all_but_one(pairs)) == sorted(d.tobytes() for d in digests_of(texts))[1:]


@pytest.mark.parametrize("similarity", [0.3, 0.5, 0.7, 0.8, 0.9, 0.99, 1.0])
def test_bands_find_what_is_as_similar_as_was_asked_for(similarity):
    bands, rows = choose_bands(similarity)
    assert bands * rows <= 128
    assert 1 - (1 - similarity**rows) ** bands >= 0.98


@pytest.mark.parametrize("seed", range(20))
def test_groups_are_those_of_a_plain_search(seed):
    rng = random.Random(seed)
    nodes = [bytes([rng.randrange(256)]) * 16 for _ in range(rng.choice([2, 10, 60]))]
    pairs = [(rng.choice(nodes), rng.choice(nodes)) for _ in range(rng.choice([0, 5, 40]))]
    if seed % 4 == 0:
        pairs = list(pairwise(nodes))  # a long chain
    groups: list[set[bytes]] = []
    for pair in pairs:
        touched = [group for group in groups if group & set(pair)]
        groups = [group for group in groups if not group & set(pair)] + [set(pair).union(*touched)]
    expected = sorted(node for group in groups for node in group - {min(group)})
    array = np.array([(np.void(one), np.void(other)) for one, other in pairs], PAIR)
    assert [digest.tobytes() for digest in all_but_one(array)] == expected
