import numpy as np
import pytest

from training.data.mixture import Mixture
from training.data.order import ROWS_PER_BLOCK, rows_at


def test_a_mixture_numbers_the_rows_of_all_stores(negatives, backwards):
    mixture = Mixture([negatives.valid, backwards, negatives.train])
    assert len(mixture) == 200 + 200 + 3000
    rows = np.array([3399, 0, 399, 200, 199, 400])
    found = mixture.take(rows, ["window_id", "direction"]).to_pylist()
    sources = [(negatives.train, 2999), (negatives.valid, 0), (backwards, 199), (backwards, 0), (negatives.valid, 199)]
    expected = [{name: store[row][name] for name in ("window_id", "direction")} for store, row in sources]
    assert found[:5] == expected
    assert found[5]["window_id"] == negatives.train[0]["window_id"]


def test_stores_are_mixed_in_proportion_from_the_first_steps_on():
    """A fifth of the rows is the second store's: so is a fifth of every stretch of the training."""
    total = 50 * ROWS_PER_BLOCK
    order = rows_at(0, total, total, seed=3)
    second = order >= 0.8 * total
    shares = second.reshape(-1, 640).mean(1)
    assert sorted(order) == list(range(total))
    assert abs(shares - 0.2).max() < 0.08


def test_validation_takes_as_many_rows_of_every_store(negatives, backwards):
    mixture = Mixture([negatives.train, negatives.valid, backwards])  # 3,000, 200 and 200 rows
    rows, weights = mixture.spread(150)
    assert rows.tolist() == [*range(50), *range(3000, 3050), *range(3200, 3250)]
    assert set(weights) == {1.0}


def test_where_a_store_has_fewer_rows_than_its_share_they_weigh_more(negatives, backwards):
    rows, weights = Mixture([negatives.train, backwards]).spread(1000)
    assert rows.tolist() == [*range(500), *range(3000, 3200)]
    assert weights[:500].sum() == pytest.approx(weights[500:].sum())
    assert weights.sum() == pytest.approx(700)
