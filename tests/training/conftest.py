"""Stores of negatives that the energy models of the tests learn from."""

from pathlib import Path

import pytest

from pipeline import mine_negatives
from pipeline.stores.reader import Store
from tests.helpers.commands import Stores
from tests.helpers.mining import save_generator


def mined(windows: Store, generator: str, output: Path, flags: str = "") -> Store:
    given = ["--windows", windows.path, "--generator", generator, "--output", str(output), "--engine", "torch"]
    assert mine_negatives.main([*given, "--context_lengths=5,8", *flags.split()]) == 0
    return Store(str(output))


@pytest.fixture(scope="session")
def generators(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Two language models that know nothing of sums, one for each direction."""
    folder = tmp_path_factory.mktemp("generators")
    return {
        direction: save_generator(folder / direction, direction, seed=number)
        for number, direction in enumerate(("left_to_right", "right_to_left"))
    }


@pytest.fixture(scope="session")
def negatives(stores: Stores, generators: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Stores:
    """Three negatives of every sum, two lengths of context."""
    folder = tmp_path_factory.mktemp("negatives")
    generator = generators["left_to_right"]
    return Stores(
        mined(stores.train, generator, folder / "train", "--negatives 3"),
        mined(stores.valid, generator, folder / "valid", "--negatives 3"),
    )


@pytest.fixture(scope="session")
def backwards(stores: Stores, generators: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Store:
    """One negative of every sum of the smaller store, from the other direction, with top-k."""
    output = tmp_path_factory.mktemp("negatives") / "backwards"
    return mined(stores.valid, generators["right_to_left"], output, "--sampling top_k --top_k 3")
