"""Measurements of a joint model: energies of a store's samples, and perplexity between its bounds.

Whatever else a job can be told is given by the names of its settings: `samples_curve=True`, `batch_size=512`.
"""

from typing import Any

from evaluation.perplexity_bounds import BoundsSettings, perplexity_bounds
from evaluation.results.tables import BoundsTable
from evaluation.score import ScoreSettings, score
from pipeline.models.model_folder import ModelFolder
from pipeline.steps.stores import name_of, path_of
from pipeline.stores.reader import Store


def energies_of(negatives: Store | str, energy: ModelFolder | str, output: str, **settings: Any) -> Store:
    """A store of the energies of real windows and samples."""
    score(ScoreSettings(store=path_of(negatives), energy=name_of(energy), output=output, **settings))
    return Store(output, kind="energies")


def bounds_of(negatives: Store | str, energies: Store | str, output: str, **settings: Any) -> BoundsTable:
    """Perplexity of the base language model and of the joint one, from samples at temperature 1 and their energies."""
    given = BoundsSettings(negatives=path_of(negatives), energies=path_of(energies), output=output, **settings)
    return perplexity_bounds(given)
