"""A small store of windows, a generator for it, and what undisturbed mining makes of them."""

import pytest

from tests.helpers.mining import make_sums, mine, save_generator


@pytest.fixture(scope="package")
def generator(tmp_path_factory) -> str:
    return save_generator(tmp_path_factory.mktemp("generators") / "forwards")


@pytest.fixture(scope="package")
def windows(tmp_path_factory) -> str:
    return make_sums(tmp_path_factory.mktemp("windows") / "sums")


@pytest.fixture(scope="package")
def undisturbed(windows, generator, tmp_path_factory) -> str:
    output = tmp_path_factory.mktemp("undisturbed") / "store"
    assert mine(windows, generator, output, flags="--negatives 2") == 0
    return str(output)
