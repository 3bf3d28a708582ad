"""Which engines there are, and which of them a command takes if none is named."""

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from pipeline.runtime.settings import setting

VLLM, TORCH = "vllm", "torch"
ENGINES = (VLLM, TORCH)
ENGINE_HELP = "vllm, or torch: any model (default: vllm where it is installed)"


@dataclass(frozen=True)
class EngineOptions:
    """How an engine uses a device. What is sampled from is what is scored: both in one precision, which is recorded."""

    precision: str | None = None  # None: fp32 on CPUs, elsewhere that of the weights
    gpu_memory: float = 0.9  # of a GPU, for weights and caches
    sequences: int | None = None  # at once; None: as many as are worth having
    tensor_parallel: int = 1  # GPUs that share one model


USUAL = EngineOptions()


def accelerator_setting(who: str, group: str = "") -> Any:
    """The flag for what a fleet gives to the workers that run a network, and to no others."""
    return setting(
        None,
        metavar="TYPE",
        help=f"what a fleet's {who} workers have, such as "
        "type:nvidia-l4;count:1;machine_type:g2-standard-8;install-nvidia-driver:5xx",
        group=group,
    )


def default_engine() -> str:
    """vLLM, which has builds for Linux alone, or torch where it is not installed."""
    return VLLM if find_spec("vllm") is not None else TORCH
