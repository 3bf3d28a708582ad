"""Parameters against networks that are really built, arithmetic against what torch counts while they really run."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModelForMaskedLM, PreTrainedModel

from studies.costs.networks import network_of
from training.plan_memory import config_of_preset, network
from training.train_lm import masked_config

TOKENIZER = {"vocabulary_size": 300, "eos_token_id": 299}
GPT2 = {"vocabulary_size": 50_257, "eos_token_id": 50_256}
LENGTH = 24


@pytest.mark.parametrize(
    "preset", ["transf-nano", "conv-tiny", "ralm-tiny", "linear", "bilstm-tiny", "unit-nano", "bit-nano", "masked"]
)
def test_parameters_and_arithmetic_are_those_of_the_network_itself(preset):
    masked = preset == "masked"
    config = masked_config("bit-nano", TOKENIZER, 25) if masked else config_of_preset(preset, TOKENIZER, 25)
    model = AutoModelForMaskedLM.from_config(config) if masked else network(config)
    for module in model.modules():
        if isinstance(module, PreTrainedModel):
            module.config._attn_implementation = "eager"  # matrix products that can be counted
    found = network_of(config, masked)
    assert found.parameters == sum(weight.numel() for weight in model.parameters())
    assert found.trained == sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    if preset == "bilstm-tiny":  # whose kernel torch does not look into
        assert found.multiplied == 2 * 4 * 64 * ((64 + 64) + (128 + 64)) + 128
        return
    ids = torch.randint(0, 300, (1, LENGTH + masked))
    with FlopCounterMode(display=False) as forward:
        output = model(ids)
    loss = (output if torch.is_tensor(output) else output.logits).sum()
    with FlopCounterMode(display=False) as backward:
        loss.backward()
    once = 2 * LENGTH * 32 if preset in ("unit-nano", "bit-nano") else 0  # the energy is of one state, not of each
    assert found.sequence(LENGTH) - once == forward.get_total_flops()
    assert found.training(LENGTH) - 3 * once == forward.get_total_flops() + backward.get_total_flops()


def test_the_papers_sizes_by_hand():
    """GPT-2's blocks: 12 d^2 + 13 d each, two embeddings, a last norm; of bit, RoBERTa's; embeddings are looked up."""
    big = network_of(config_of_preset("transf-big", GPT2, 161))
    width, blocks, vocabulary = 1024, 12, 50_257
    assert big.parameters == blocks * (12 * width**2 + 13 * width) + (vocabulary + 256) * width + 2 * width
    assert big.multiplied == blocks * 12 * width**2 + vocabulary * width
    assert big.cached == 2 * blocks * width
    assert big.training(160) == 6 * 160 * big.multiplied + 12 * 160**2 * blocks * width
    large = network_of(config_of_preset("bit-large", GPT2, 161))
    assert large.multiplied == 24 * 12 * 1024**2 + 1024
    assert large.sequence(160) == large.forward(161)
    for preset, millions in (("transf-small", 45), ("conv", 176), ("balm", 408), ("bilstm-big", 129), ("unit", 203)):
        assert round(network_of(config_of_preset(preset, GPT2, 161)).parameters / 1e6) == millions
