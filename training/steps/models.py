"""Models from stores: a language model of windows, an energy model of negatives.

Whatever else a training can be told is given by the names of its settings: `preset="bit-tiny"`, `max_steps=1000`.
"""

from collections.abc import Sequence
from typing import Any

from pipeline.models.language_model import LanguageModelFolder, open_language_model
from pipeline.runtime.errors import UserError
from pipeline.steps.stores import path_of
from pipeline.stores.reader import Store
from training.energy.folder import EnergyModelFolder, open_energy_model
from training.train_energy import EnergySettings, train_energy
from training.train_lm import LanguageModelSettings, train_lm

Stores = Store | str | Sequence[Store | str]


def train_language_model(train: Store | str, valid: Store | str, output: str, **settings: Any) -> LanguageModelFolder:
    """Trains on windows, unless it was done before; in this process alone."""
    given = LanguageModelSettings(train=path_of(train), valid=path_of(valid), output=output, **settings)
    check_ended(train_lm(given), output)
    return open_language_model(output)


def train_energy_model(train: Stores, valid: Stores, output: str, **settings: Any) -> EnergyModelFolder:
    """Trains on negatives, of one store or of several, unless it was done before; in this process alone."""
    given = EnergySettings(train=paths_of(train), valid=paths_of(valid), output=output, **settings)
    check_ended(train_energy(given), output)
    return open_energy_model(output)


def paths_of(stores: Stores) -> tuple[str, ...]:
    return tuple(map(path_of, [stores] if isinstance(stores, Store | str) else stores))


def check_ended(code: int, output: str) -> None:
    if code:
        raise UserError(f"{output}: the training did not end well: what is wrong was printed above")
