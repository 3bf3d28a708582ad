import hashlib

import numpy as np
import pytest
from scipy import stats

from training.data.order import BLOCKS_PER_SPAN, LARGE, LARGE_BLOCK, ROWS_PER_BLOCK, rows_at, spans_between

SPAN_ROWS = ROWS_PER_BLOCK * BLOCKS_PER_SPAN


@pytest.mark.parametrize(
    "total",
    [1, 5, ROWS_PER_BLOCK, ROWS_PER_BLOCK + 1, SPAN_ROWS, SPAN_ROWS + 7, 3 * SPAN_ROWS + 1000, LARGE, LARGE + 1],
)
def test_every_epoch_has_every_row_once(total):
    for epoch in range(3):
        rows = rows_at(epoch * total, (epoch + 1) * total, total, seed=7)
        assert (np.sort(rows) == np.arange(total)).all()


def test_epochs_and_seeds_differ():
    total = 1000
    orders = [rows_at(epoch * total, (epoch + 1) * total, total, seed).tolist() for seed in (0, 1) for epoch in (0, 1)]
    assert len({tuple(order) for order in orders}) == 4


@pytest.mark.parametrize("total", [20_000, LARGE + 20_000])
def test_any_place_is_reached_without_what_comes_before(total):
    seed = 3
    whole = rows_at(0, 5 * total // 2, total, seed)
    ends = [end for _, end in spans_between(0, 2 * total, total)]
    for start, stop in [(0, 10), (total // 2, total), *((end - 10, end + 10) for end in ends)]:
        np.testing.assert_array_equal(rows_at(start, stop, total, seed), whole[start:stop])


@pytest.mark.parametrize(
    ("total", "digest"),
    [
        (257, "3cb02897ac404e28"),
        (12_000, "7c901cad549c3bea"),
        (100_000, "bdbcafc04412697e"),
        (LARGE, "76d093be9a8a50dd"),
    ],
)
def test_small_stores_keep_the_order_that_trained_models_have_seen(total, digest):
    found = rows_at(0, 2 * total, total, seed=3).astype("<i8")
    assert hashlib.sha256(found.tobytes()).hexdigest()[:16] == digest


def test_a_large_store_is_read_in_rounds_that_have_a_row_of_every_block():
    total = 2 * LARGE + 1000  # the last block is short
    (start, stop), *others = spans_between(0, total, total)
    lengths = [stop - start for start, stop in ((start, stop), *others)]
    assert max(lengths) - min(lengths) <= LARGE_BLOCK  # no small span is left for the end
    blocks = rows_at(start, stop, total, seed=1) // LARGE_BLOCK
    present = len(np.unique(blocks))
    assert all(len(np.unique(part)) == present for part in blocks.reshape(-1, present))
    for begin in (0, 1000, 77_777):  # of a batch of any size, wherever it begins
        counts = np.bincount(np.unique(blocks[begin : begin + 2048], return_inverse=True)[1])
        assert counts.max() - counts.min() <= 2
    last = rows_at(others[-1][0], total, total, seed=1) // LARGE_BLOCK
    short = np.flatnonzero(last == total // LARGE_BLOCK) / len(last)
    assert len(short) == 1000
    assert stats.kstest(short, "uniform").pvalue > 0.01


def test_who_keeps_whose_company_in_a_large_store_is_drawn_anew_every_epoch():
    """Every batch of one epoch shares as many rows with every batch of the next as chance has it."""
    total, batch = LARGE + 1, 2048
    number_of = np.empty((2, total), np.int64)
    for epoch in (0, 1):
        number_of[epoch, rows_at(epoch * total, (epoch + 1) * total, total, seed=0)] = np.arange(total) // batch
    shared = np.zeros((129, 129))
    np.add.at(shared, tuple(number_of), 1)
    shared = shared[:128, :128]  # without the last row, which is alone
    assert shared.mean() == pytest.approx(16, rel=0.01)
    assert 0.8 < shared.var() / shared.mean() < 1.25  # that of a Poisson distribution is 1


def test_the_rows_of_a_batch_come_from_all_over_the_store():
    """Rows of many batches fall evenly into ten parts of the store: a store of two corpora is mixed in each batch."""
    total, batch = 10 * SPAN_ROWS, 64
    parts = [rows_at(start, start + batch, total, seed=0) * 10 // total for start in range(0, total, batch)]
    assert np.mean([len(np.unique(part)) for part in parts]) > 8
    assert stats.chisquare(np.bincount(np.concatenate(parts), minlength=10)).pvalue > 0.01
