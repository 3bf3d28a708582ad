"""Language models and energy models, and the one trainer that both use."""

from typing import TYPE_CHECKING

from pipeline.runtime.exports import exports

if TYPE_CHECKING:
    from training.energy.folder import open_energy_model
    from training.energy.model import EnergyModel
    from training.steps.models import train_energy_model, train_language_model

__all__ = ["EnergyModel", "open_energy_model", "train_energy_model", "train_language_model"]
__getattr__ = exports(
    __name__,
    {
        "EnergyModel": "training.energy.model",
        "open_energy_model": "training.energy.folder",
        "train_energy_model": "training.steps.models",
        "train_language_model": "training.steps.models",
    },
)
