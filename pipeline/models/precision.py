"""Precision: in how many bits a network computes, by what is asked for, what it was made for, and what a device can."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pipeline.runtime.errors import UserError

if TYPE_CHECKING:
    import torch

FP32, BF16, FP16 = "fp32", "bf16", "fp16"
PRECISIONS = (FP32, BF16, FP16)


@dataclass(frozen=True)
class Hardware:
    """What precision depends on of a device."""

    kind: str = "cpu"  # or cuda
    bf16: bool = False  # in its own circuits: what only emulates it is slower than with fp32


def hardware_of(device: "torch.device | str") -> Hardware:
    """Of this machine's device. What torch emulates does not count: a GPU has bf16 from compute capability 8.0 on."""
    import torch  # here, as the names of precisions are flags' choices, and those need no torch

    kind = torch.device(device).type
    return Hardware(kind, kind == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False))


def training_precision(asked: str | None, recipe: str | None, hardware: Hardware, zero_stage: int) -> str:
    """Of a training: what is asked for, else on GPUs what the recipe has, else fp32.

    Where bf16 cannot be had it is fp16, whose losses DeepSpeed scales. Without ZeRO there would be no fp32 weights
    beside those in bf16, and small steps would be lost: fp32.
    """
    if asked == FP16 and hardware.kind == "cpu":
        raise UserError("--precision fp16: for GPUs alone: take fp32 here")
    if asked is not None:
        return asked
    if recipe is None or hardware.kind == "cpu":
        return FP32
    if recipe == BF16 and not hardware.bf16:
        return FP16
    return FP32 if recipe == BF16 and zero_stage == 0 else recipe


def dtype_of(precision: str) -> "torch.dtype":
    """torch's name for it."""
    import torch

    return {FP32: torch.float32, BF16: torch.bfloat16, FP16: torch.float16}[precision]


def loading_dtype(
    asked: str | None, stored: "torch.dtype | None", hardware: Hardware
) -> "torch.dtype | Literal['auto']":
    """Of a trained network: what is asked for, else fp32 on CPUs, and elsewhere that of its weights, if they can."""
    import torch

    if asked is not None:
        return dtype_of(asked)
    if hardware.kind == "cpu" or (stored == torch.bfloat16 and not hardware.bf16):
        return torch.float32
    return "auto"
