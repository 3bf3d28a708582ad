"""A package's public face: names that are imported when they are first used, so that importing costs nothing."""

from collections.abc import Callable
from importlib import import_module
from typing import Any


def exports(package: str, homes: dict[str, str]) -> Callable[[str], Any]:
    """A package's `__getattr__`: each name from the module that is its home."""

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes[name]), name)

    return find
