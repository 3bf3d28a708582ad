"""The stores that energies are computed from, and a world in which everything is known."""

import pytest

from tests.evaluation.world import World
from tests.training.conftest import backwards, generators, negatives  # noqa: F401


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("world"))
