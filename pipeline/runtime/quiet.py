"""Libraries that say more than anybody asked for."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_log(level: int) -> Iterator[None]:
    """Keeps messages up to a level from being logged while the block runs; what was kept back before stays so."""
    before = logging.root.manager.disable
    logging.disable(max(level, before))
    try:
        yield
    finally:
        logging.disable(before)
