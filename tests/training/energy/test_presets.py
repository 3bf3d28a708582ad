import pytest
import torch
from transformers import BertForMaskedLM

from pipeline.models.residual_lm import config_of
from training.energy.model import EnergyConfig, EnergyModel
from training.energy.presets import PRESETS, RECIPES

GPT2 = {"vocabulary_size": 50_257, "eos_token_id": 50_256}
SUMS = {"vocabulary_size": 14, "eos_token_id": 13}


def millions(name: str) -> tuple[float, float]:
    """(embeddings, all parameters), counted on a model that takes no memory."""
    with torch.device("meta"):
        model = EnergyModel(PRESETS[name].build(GPT2, 161))
    count = sum(parameter.numel() for parameter in model.parameters())
    return model.get_input_embeddings().weight.numel() / 1e6, count / 1e6


@pytest.mark.parametrize(
    ("name", "embeddings", "others"),
    [("bilstm-small", 26, 23), ("bilstm-big", 39, 90), ("unit", 51, 151), ("bit-med", 51, 151)],
)
def test_sizes_are_those_of_the_papers_table(name, embeddings, others):
    found, total = millions(name)
    assert (round(found), round(total - found)) == (embeddings, others)


def test_a_linear_model_is_one_number_a_token():
    assert round(millions("linear")[1], 1) == 0.1
    assert millions("linear")[1] == GPT2["vocabulary_size"] / 1e6


@pytest.mark.parametrize(("name", "total"), [("bit-base", 125), ("bit-large", 355)])
def test_robertas_sizes_are_the_papers_with_the_head_that_they_were_pretrained_with(name, total):
    """125 and 355 million are RoBERTa's own counts, in which the head that predicts hidden tokens is included."""
    with torch.device("meta"):
        model = BertForMaskedLM(config_of(PRESETS[name].build(GPT2, 161).network))
    assert round(sum(parameter.numel() for parameter in model.parameters()) / 1e6) == total


def test_recipes_are_those_of_the_papers_two_tables():
    """max lr, rows a GPU, GPUs, fp16, warm-up, steps (None: not printed), gradient norm."""
    lines = {
        ("linear", "discrimination"): (0.01, 1024, 1, True, 1000, None, 0.25),
        ("bilstm-small", "discrimination"): (0.0002, 128, 8, True, 1000, None, 0.25),
        ("bilstm-big", "discrimination"): (0.0002, 128, 8, True, 1000, None, 0.25),
        ("unit", "discrimination"): (0.0003, 32, 64, True, 2000, 180_000, 0.25),
        ("bit-large", "discrimination"): (0.00005, 20, 192, True, 2000, 180_000, 10),
        ("unit", "joint"): (0.0003, 64, 64, True, 2000, 180_000, 10),
        ("bit-base", "joint"): (0.00005, 60, 64, False, 2000, 90_000, 0.25),
        ("bit-large", "joint"): (0.0003, 64, 64, True, 2000, 90_000, 10),
        ("unit", "joint-24l"): (0.0003, 64, 64, True, 2000, 180_000, 10),
        ("bit-base", "joint-24l"): (0.00005, 60, 64, False, 2000, 90_000, 0.25),
        ("bit-med", "joint-24l"): (0.00005, 32, 64, False, 2000, 90_000, 0.25),
        ("bit-large", "joint-24l"): (0.00005, 20, 64, False, 2000, 90_000, 0.25),
    }
    for (name, recipe), (lr, rows, gpus, fp16, warmup, steps, norm) in lines.items():
        found = PRESETS[name].recipe(recipe, name)
        assert (found.max_lr, found.rows_at_once, found.batch_size) == (lr, rows, rows * gpus), name
        assert (found.mixed_precision == "fp16", found.warmup_steps, found.max_grad_norm) == (fp16, warmup, norm), name
        assert steps is None or found.max_steps == steps, name
        simple = name.startswith(("linear", "bilstm"))
        assert found.schedule == ("inverse_square_root" if simple else "cosine"), name
    assert {recipe for _, recipe in lines} == set(RECIPES)


def test_the_longest_sequence_leaves_room_for_what_is_put_first():
    assert PRESETS["bit-nano"].build(SUMS, 14).longest == 255
    assert PRESETS["bit-nano"].build(SUMS, 301).longest == 300
    assert PRESETS["linear"].build(SUMS, 14).longest is None
    roberta = {"model_type": "roberta", "max_position_embeddings": 514, "pad_token_id": 1}
    assert EnergyConfig("bit", 14, roberta, own_tokenizer=True).longest == 512
