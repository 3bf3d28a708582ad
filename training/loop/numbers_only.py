"""Reading what DeepSpeed has pickled: numbers, and the few plain classes that it keeps beside them.

A pickle can run whatever its maker wants. DeepSpeed reads its checkpoints as such, and asks torch for that by name; so
torch is told by the one means that overrules it, its environment variable, to make numbers of them and nothing else.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

FORCE = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
OPPOSITE = "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"  # torch refuses to read anything with both of them


@contextmanager
def numbers_only() -> Iterator[None]:
    """While the block runs, torch reads nothing that could run."""
    before = {name: os.environ.pop(name, None) for name in (FORCE, OPPOSITE)}
    os.environ[FORCE] = "1"
    try:
        with torch.serialization.safe_globals(plain_classes()):
            yield
    finally:
        del os.environ[FORCE]
        os.environ.update({name: value for name, value in before.items() if value is not None})


def plain_classes() -> list[Any]:
    """What DeepSpeed's checkpoints hold beside numbers: making one of these does nothing but keep what it is given."""
    from deepspeed.runtime.fp16.loss_scaler import DynamicLossScaler, LossScaler
    from deepspeed.runtime.zero.config import ZeroStageEnum
    from deepspeed.utils.tensor_fragment import fragment_address

    return [DynamicLossScaler, LossScaler, ZeroStageEnum, fragment_address]
