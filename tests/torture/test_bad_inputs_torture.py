"""Ten times as many bad inputs, of other seeds."""

import pytest

from tests.test_bad_inputs import CASES, KINDS, try_all, world

__all__ = ["world"]


@pytest.mark.parametrize("make", KINDS)
def test_bad_input_ends_in_one_line_or_well(world, make):
    try_all(world, make, range(CASES, 11 * CASES))
