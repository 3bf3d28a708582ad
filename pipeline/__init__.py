"""Text to windows to negatives: corpora, tokenising, stores, generators, mining."""

from typing import TYPE_CHECKING

from pipeline.runtime.exports import exports

if TYPE_CHECKING:
    from pipeline.engines.generator import Generator, open_generator
    from pipeline.engines.sampling import Sampling
    from pipeline.mining.settings import MiningSettings
    from pipeline.runtime.errors import UserError
    from pipeline.stores.reader import Store
    from pipeline.stores.writer import StoreWriter
    from pipeline.windows.settings import WindowsSettings

__all__ = [
    "Generator",
    "MiningSettings",
    "Sampling",
    "Store",
    "StoreWriter",
    "UserError",
    "WindowsSettings",
    "open_generator",
]
__getattr__ = exports(
    __name__,
    {
        "Generator": "pipeline.engines.generator",
        "MiningSettings": "pipeline.mining.settings",
        "Sampling": "pipeline.engines.sampling",
        "Store": "pipeline.stores.reader",
        "StoreWriter": "pipeline.stores.writer",
        "UserError": "pipeline.runtime.errors",
        "WindowsSettings": "pipeline.windows.settings",
        "open_generator": "pipeline.engines.generator",
    },
)
