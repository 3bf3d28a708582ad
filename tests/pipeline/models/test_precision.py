"""Precision as a function of what is asked for and of the device. There is no GPU here: what one can is given."""

import pytest
import torch

from pipeline.models.precision import BF16, FP16, FP32, Hardware, hardware_of, loading_dtype, training_precision

CPU, AMPERE, TURING = Hardware(), Hardware("cuda", bf16=True), Hardware("cuda", bf16=False)


def test_this_machines_processor_has_fp32():
    assert hardware_of("cpu") == CPU


@pytest.mark.parametrize(
    ("asked", "recipe", "hardware", "stage", "precision"),
    [
        (None, BF16, AMPERE, 1, BF16),
        (None, BF16, TURING, 1, FP16),
        (None, BF16, CPU, 1, FP32),
        (None, BF16, AMPERE, 0, FP32),  # nothing would keep fp32 weights
        (None, BF16, TURING, 0, FP16),  # DeepSpeed's fp16 does
        (None, FP16, AMPERE, 2, FP16),  # the paper's energy models
        (None, FP16, CPU, 2, FP32),
        (None, None, AMPERE, 1, FP32),
        (FP32, BF16, AMPERE, 1, FP32),
        (BF16, None, CPU, 1, BF16),
    ],
)
def test_a_training_has_16_bits_on_gpus_where_its_recipe_says_so(asked, recipe, hardware, stage, precision):
    assert training_precision(asked, recipe, hardware, stage) == precision


@pytest.mark.parametrize(
    ("asked", "stored", "hardware", "dtype"),
    [
        (None, torch.bfloat16, CPU, torch.float32),
        (None, torch.bfloat16, AMPERE, "auto"),
        (None, torch.bfloat16, TURING, torch.float32),  # whose numbers may be too large for fp16
        (None, torch.float16, TURING, "auto"),
        (None, None, AMPERE, "auto"),
        (FP32, torch.bfloat16, AMPERE, torch.float32),
        (BF16, torch.float32, CPU, torch.bfloat16),
    ],
)
def test_a_trained_network_is_loaded_as_its_weights_are_where_the_device_can(asked, stored, hardware, dtype):
    assert loading_dtype(asked, stored, hardware) == dtype
