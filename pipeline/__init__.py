"""Text to windows to negatives: corpora, tokenising, stores, generators, mining."""

from typing import TYPE_CHECKING

from pipeline.runtime.exports import exports

if TYPE_CHECKING:
    from pipeline.engines.generator import Generator, open_generator
    from pipeline.engines.sampling import Sampling
    from pipeline.mining.settings import MiningSettings
    from pipeline.runtime.errors import UserError
    from pipeline.steps.stores import negatives_of, windows_from
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
    "negatives_of",
    "open_generator",
    "windows_from",
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
        "negatives_of": "pipeline.steps.stores",
        "open_generator": "pipeline.engines.generator",
        "windows_from": "pipeline.steps.stores",
    },
)
