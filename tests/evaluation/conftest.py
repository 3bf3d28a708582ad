"""The stores that energies are computed from."""

from tests.training.conftest import backwards, generators, negatives  # noqa: F401
