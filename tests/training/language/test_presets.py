import pytest
import torch
from transformers import AutoModelForCausalLM

from pipeline.runtime.errors import UserError
from training.language.presets import PRESETS, find_preset

VOCABULARY = 50_257


def millions(name, base=None):
    """(embeddings, all parameters), counted on a model that takes no memory."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(PRESETS[name].build(VOCABULARY, 256, base))
    count = sum(parameter.numel() for parameter in model.parameters())
    return model.get_input_embeddings().weight.numel() / 1e6, count / 1e6


@pytest.mark.parametrize(
    ("name", "embeddings", "others"),
    [
        ("transf-small", 26, 19),
        ("transf-big", 51, 151),
        ("base-lm", 51, 151),
        ("transf-huge", 77, 1360),
        ("conv", 13, 164),
    ],
)
def test_sizes_are_those_of_the_papers_generators(name, embeddings, others):
    found, total = millions(name)
    assert round(found) == embeddings
    assert round(total - found) == others


def test_conv_has_the_papers_total():
    assert round(millions("conv")[1]) == 176


@pytest.mark.parametrize(
    ("name", "total"), [("transf-big", 203), ("base-lm-24l", 203), ("balm", 408), ("balm-24l", 408)]
)
def test_sizes_are_those_of_the_papers_language_models(name, total):
    assert round(millions(name)[1]) == total


@pytest.mark.parametrize(("name", "base"), [("ralm", "base-lm"), ("ralm-24l", "base-lm-24l")])
def test_a_ralm_is_its_base_and_203_millions_more(name, base):
    config = PRESETS[base].build(VOCABULARY, 256, None)
    assert round(millions(name, config)[1] - millions(base)[1]) == 203


def test_recipes_are_those_of_the_papers_appendix():
    """max lr, batch a GPU times GPUs, warm-up, steps, gradient norm, as printed."""
    rows = {
        "base-lm": (1e-4, 32 * 64, 2000, 180_000, 10),
        "ralm": (1e-4, 64 * 64, 2000, 180_000, 10),
        "balm": (1e-4, 32 * 64, 2000, 180_000, 10),
        "base-lm-24l": (3e-4, 50 * 64, 2000, 90_000, 0.25),
        "ralm-24l": (1.5e-4, 28 * 64, 1000, 90_000, 0.25),
        "balm-24l": (3e-4, 28 * 64, 2000, 90_000, 0.25),
    }
    for name, row in rows.items():
        recipe = PRESETS[name].recipe
        found = (recipe.max_lr, recipe.batch_size, recipe.warmup_steps, recipe.max_steps, recipe.max_grad_norm)
        assert found == row, name


def test_an_unknown_preset_lists_those_there_are():
    with pytest.raises(UserError, match=r"--preset transf-tall: there are transf-small, .*transf-tiny"):
        find_preset("transf-tall")


def test_language_models_are_trained_in_16_bits_where_a_gpu_has_them():
    assert {preset.recipe.mixed_precision for preset in PRESETS.values()} == {"bf16"}
