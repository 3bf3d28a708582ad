import hashlib
import random

import numpy as np
import pytest
from scipy import stats

from pipeline.runtime.randomness import mix
from pipeline.windows.cutting import (
    ORDERS,
    Windows,
    cut_windows,
    document_name,
    shard_start,
    shuffled_order,
    window_ids,
)


def naive_windows(documents, window, stride, eos):
    """(document, offset, tokens) of every window, one token at a time."""
    stream, owners = [], []
    for number, (name, tokens) in enumerate(documents):
        if number:
            stream.append(eos)
            owners.append((owners[-1][0], owners[-1][1] + 1))
        stream += tokens
        owners += [(name, offset) for offset in range(len(tokens))]
    starts = [s for s in range(0, len(stream), stride) if s + window <= len(stream)]
    return [(*owners[start], stream[start : start + window]) for start in starts]


@pytest.mark.parametrize(("window", "stride"), [(2, 1), (16, 4), (16, 16), (5, 13), (160, 40), (7, 200)])
@pytest.mark.parametrize("seed", range(8))
def test_windows_are_those_of_a_naive_reading_however_the_stream_is_batched(window, stride, seed):
    rng = random.Random(seed)
    lengths = [rng.choice([1, 3, 40, 300]) for _ in range(rng.randint(1, 30))]
    documents = [(f"d{k}", [rng.randrange(1, 99) for _ in range(n)]) for k, n in enumerate(lengths)]
    runs = []
    for name, tokens in documents:
        cuts = sorted(rng.sample(range(len(tokens) + 1), min(3, len(tokens))))
        pieces = [tokens[a:b] for a, b in zip([0, *cuts], [*cuts, len(tokens)], strict=True)]
        runs += [(name, piece) for piece in pieces]
    batches, position = [], 0
    while position < len(runs):
        size = rng.randint(1, 9)
        batches.append(runs[position : position + size])
        position += size
    found = [
        (document, offset, tokens)
        for cut in cut_windows(batches, window, stride, eos=0)
        for document, offset, tokens in zip(cut.documents, cut.offsets.tolist(), cut.tokens.tolist(), strict=True)
    ]
    assert found == naive_windows(documents, window, stride, eos=0)


def test_a_stream_shorter_than_a_window_has_none():
    assert list(cut_windows([[("d", list(range(15)))]], 16, 4, eos=0)) == []


def test_an_id_depends_on_corpus_split_document_and_offset_alone():
    cut = Windows(["ab", "ab.1"], np.array([0, 40]), np.zeros((2, 3), np.int32))
    expected = [hashlib.blake2b(text, digest_size=16).digest() for text in (b"c\0s\0ab\x000", b"c\0s\0ab.1\x0040")]
    assert [bytes(id) for id in window_ids("c", "s", cut)] == expected


def test_equal_documents_have_different_names():
    assert document_name(b"\x01\x02", 0) == "0102"
    assert document_name(b"\x01\x02", 3) == "0102.3"


def test_mix_is_splitmix64():
    golden = 0x9E3779B97F4A7C15  # the published generator's first three outputs for seed 0
    states = np.array([0, golden, 2 * golden % 2**64], np.uint64)
    assert [hex(value) for value in mix(states)] == ["0xe220a8397b1dcdaf", "0x6e789e6aa1b965f4", "0x6c45d188009454f"]


@pytest.mark.parametrize("shards", [1, 3, 8])
@pytest.mark.parametrize("orders", [ORDERS, 1000, 12345678901])
def test_shards_are_even_ranges_of_the_order(shards, orders):
    starts = [shard_start(number, shards, orders) for number in range(shards + 1)]
    assert (starts[0], starts[-1]) == (0, orders)
    for order in [*range(0, orders, orders // 997), orders - 1]:
        number = order * shards // orders
        assert starts[number] <= order < starts[number + 1]


def test_the_order_is_even_and_changes_with_the_seed():
    ids = np.frombuffer(b"".join(hashlib.md5(bytes([k % 256, k // 256])).digest() for k in range(20_000)), "V16")
    first, second = shuffled_order(ids, 0), shuffled_order(ids, 1)
    for order in (first, second):
        counts = np.bincount((order >> np.uint64(59)).astype(int), minlength=32)
        assert stats.chisquare(counts).pvalue > 1e-4
    assert abs(stats.spearmanr(first, second).statistic) < 0.03
