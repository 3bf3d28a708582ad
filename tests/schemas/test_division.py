"""A window divided and joined."""

import numpy as np
import pytest

from schemas.division import DIRECTIONS, RIGHT_TO_LEFT, completion_start, divide, join, nearest, reading_order

WINDOW = np.arange(10, dtype=np.int32)


def test_a_context_is_the_beginning_or_the_end():
    context, completion = divide(WINDOW, 7, "left_to_right")
    assert (context.tolist(), completion.tolist()) == ([0, 1, 2, 3, 4, 5, 6], [7, 8, 9])
    context, completion = divide(WINDOW, 7, RIGHT_TO_LEFT)
    assert (context.tolist(), completion.tolist()) == ([3, 4, 5, 6, 7, 8, 9], [0, 1, 2])


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("length", [0, 1, 9, 10])
def test_joining_undoes_dividing(direction, length):
    context, completion = divide(WINDOW, length, direction)
    assert len(context) == length
    assert join(context, completion, direction).tolist() == WINDOW.tolist()
    start = completion_start(length, direction)
    assert WINDOW[start : start + len(completion)].tolist() == completion.tolist()
    many = np.stack([WINDOW, WINDOW + 10])
    assert np.array_equal(join(*divide(many, length, direction), direction), many)


def test_what_adjoins_the_completion_is_kept_of_a_long_context():
    assert nearest(WINDOW, 3, "left_to_right").tolist() == [7, 8, 9]
    assert nearest(WINDOW, 3, RIGHT_TO_LEFT).tolist() == [0, 1, 2]
    for direction in DIRECTIONS:
        assert nearest(WINDOW, 99, direction).tolist() == WINDOW.tolist()
        assert nearest(WINDOW, 0, direction).tolist() == []


def test_a_right_to_left_model_reads_from_the_end():
    assert reading_order(WINDOW, "left_to_right").tolist() == list(range(10))
    assert reading_order(np.stack([WINDOW]), RIGHT_TO_LEFT).tolist() == [list(range(9, -1, -1))]
