"""Which engines there are, and which of them a command takes if none is named."""

from importlib.util import find_spec

VLLM, TORCH = "vllm", "torch"
ENGINES = (VLLM, TORCH)
ENGINE_HELP = "vllm, or torch: any model (default: vllm where it is installed)"


def default_engine() -> str:
    """vLLM, which has builds for Linux alone, or torch where it is not installed."""
    return VLLM if find_spec("vllm") is not None else TORCH
