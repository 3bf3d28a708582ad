"""Made-up results, as the jobs would write them."""

from collections.abc import Callable
from typing import Any

import pytest

from evaluation.reporting.inputs import Result


def apart(lower: float, upper: float, low: float | None, high: float | None) -> dict[str, Any]:
    """A difference in percent, by both bounds, and its interval."""
    return {"percent": {"lower": lower, "upper": upper, "low": low, "high": high}}


@pytest.fixture
def bounds() -> Callable[..., Result]:
    """A result of perplexity_bounds.py, with what is given in place of, or beside, what every one has."""

    def make(name: str = "results/books", **more: Any) -> Result:
        content: dict[str, Any] = {
            "corpus": "books",
            "split": "test",
            "generator": {"architecture": "transf-tiny"},
            "energy": {"preset": "bit-tiny", "kind": "bit"},
            "contexts": 2000,
            "samples": 100,
            "base_perplexity": 20.0,
            "joint_perplexity": {"lower": 16.0, "midpoint": 16.5, "upper": 17.0},
            "effective_samples": {"median": 40.25, "least": 3.5},
            "warnings": [],
            "differences": {"over": "documents", "count": 25, "base": apart(-20.0, -15.0, -21.0, -14.0)},
        }
        return Result("bounds", name, name, content | more)

    return make
