"""Whatever a language model starts from, it is trained without dropout, by whatever name its architecture calls it."""

import json
from pathlib import Path

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    GPT2Config,
    GPTNeoXConfig,
    LlamaConfig,
    MptConfig,
    OPTConfig,
    PretrainedConfig,
)

from pipeline.models.model_folder import quiet
from pipeline.text.tokenizer import load_tokenizer
from tests.helpers.commands import Stores
from training import train_lm
from training.language.dropout import without_dropout
from training.language.presets import PRESETS
from training.train_lm import LanguageModelSettings, Sources

SIZES = {"vocab_size": 14, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
CONFIGS = {
    "gpt2": lambda: GPT2Config(vocab_size=14, n_embd=32, n_layer=2, n_head=2, n_positions=32),
    "llama": lambda: LlamaConfig(**SIZES, intermediate_size=64, attention_dropout=0.5),
    "gpt-neox": lambda: GPTNeoXConfig(**SIZES, intermediate_size=64, hidden_dropout=0.5, attention_dropout=0.5),
    "opt": lambda: OPTConfig(
        **SIZES, ffn_dim=64, word_embed_proj_dim=32, dropout=0.5, attention_dropout=0.5, layerdrop=0.5
    ),
    "bloom": lambda: BloomConfig(vocab_size=14, hidden_size=32, n_layer=2, n_head=2, hidden_dropout=0.5),
    "mpt": lambda: MptConfig(
        vocab_size=14, d_model=32, n_layers=2, n_heads=2, max_seq_len=32, attn_config={"attn_pdrop": 1}
    ),
}
IDS = torch.randint(0, 14, (4, 12), generator=torch.Generator().manual_seed(0))


@torch.no_grad()
def drops(config: PretrainedConfig) -> bool:
    """Whether a network of this configuration computes something else when it is trained."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config)
    return not all(torch.equal(model.train()(IDS).logits, model.eval()(IDS).logits) for _ in range(5))


def trained_config(config: PretrainedConfig, stores: Stores, folder: Path) -> PretrainedConfig:
    """What `train_lm --init` makes of a model of this configuration."""
    with quiet():
        AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    load_tokenizer(stores.train.path).save(str(folder))
    paths = {"train": stores.train.path, "valid": stores.valid.path, "output": str(folder / "output")}
    settings = LanguageModelSettings(init=str(folder), **paths)
    return train_lm.choose_architecture(settings, stores.train, Sources.open(settings))


@pytest.mark.parametrize("name", CONFIGS)
def test_a_model_that_goes_on_from_another_drops_nothing(name, stores, tmp_path):
    config = CONFIGS[name]()
    assert drops(config)
    assert not drops(trained_config(config, stores, tmp_path))


@pytest.mark.parametrize("name", CONFIGS)
def test_a_ralm_drops_nothing_and_leaves_its_base_as_it_was(name, stores, tmp_path):
    config = CONFIGS[name]()
    ralm = PRESETS["ralm-tiny"].build(14, 32, config)
    assert not drops(ralm)
    assert ralm.base == config.to_dict()
    ralm.residual = ralm.base  # as one that was trained with dropout elsewhere
    assert drops(ralm)
    again = trained_config(ralm, stores, tmp_path)
    assert not drops(again)
    assert again.base == json.loads(json.dumps(ralm.base))


def test_what_is_no_rate_of_dropout_stays():
    """A head that no language model has is none of its business: runs that were begun with it go on."""
    config = GPT2Config(drop_last=True, drop_after=100, summary_first_dropout=0.3)
    found = without_dropout(config)
    assert (found.drop_last, found.drop_after, found.summary_first_dropout) == (True, 100, 0.3)
    assert (found.resid_pdrop, found.embd_pdrop, found.attn_pdrop) == (0.0, 0.0, 0.0)
    assert config.resid_pdrop == 0.1
    assert without_dropout(config, heads=True).summary_first_dropout == 0.0
