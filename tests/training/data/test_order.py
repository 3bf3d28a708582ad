import numpy as np
import pytest
from scipy import stats

from training.data.order import BLOCKS_PER_SPAN, ROWS_PER_BLOCK, rows_at

SPAN_ROWS = ROWS_PER_BLOCK * BLOCKS_PER_SPAN


@pytest.mark.parametrize(
    "total", [1, 5, ROWS_PER_BLOCK, ROWS_PER_BLOCK + 1, SPAN_ROWS, SPAN_ROWS + 7, 3 * SPAN_ROWS + 1000]
)
def test_every_epoch_has_every_row_once(total):
    for epoch in range(3):
        rows = rows_at(epoch * total, (epoch + 1) * total, total, seed=7)
        assert sorted(rows.tolist()) == list(range(total))


def test_epochs_and_seeds_differ():
    total = 1000
    orders = [rows_at(epoch * total, (epoch + 1) * total, total, seed).tolist() for seed in (0, 1) for epoch in (0, 1)]
    assert len({tuple(order) for order in orders}) == 4


def test_any_place_is_reached_without_what_comes_before():
    total, seed = 20_000, 3
    whole = rows_at(0, 50_000, total, seed)
    for start, stop in ((0, 10), (16_380, 16_390), (19_990, 20_010), (39_999, 40_001), (49_000, 50_000)):
        np.testing.assert_array_equal(rows_at(start, stop, total, seed), whole[start:stop])


def test_the_rows_of_a_batch_come_from_all_over_the_store():
    """Rows of many batches fall evenly into ten parts of the store: a store of two corpora is mixed in each batch."""
    total, batch = 10 * SPAN_ROWS, 64
    parts = [rows_at(start, start + batch, total, seed=0) * 10 // total for start in range(0, total, batch)]
    assert np.mean([len(np.unique(part)) for part in parts]) > 8
    assert stats.chisquare(np.bincount(np.concatenate(parts), minlength=10)).pvalue > 0.01
