import json

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel

from pipeline import show_samples
from pipeline.models.conv_lm import ConvConfig, ConvLM
from pipeline.models.language_model import open_language_model
from pipeline.models.model_folder import quiet
from pipeline.models.residual_lm import Ralm, RalmConfig
from pipeline.runtime.errors import UserError
from pipeline.text.builtin_corpora import ALPHABET
from pipeline.text.tokenizer import character_tokenizer, load_tokenizer

GPT2 = {"vocab_size": 14, "n_embd": 32, "n_layer": 2, "n_head": 1, "n_positions": 32, "bos_token_id": 13}


def save(model, folder):
    with quiet():
        model.save_pretrained(folder)
    character_tokenizer(ALPHABET).save(str(folder))
    return str(folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(**GPT2, eos_token_id=13))
    return save(model, tmp_path_factory.mktemp("model"))


def test_a_gated_convolution_is_what_dauphin_and_others_wrote_down():
    """One layer by hand: h = (x + (x*W + b) . sigmoid(x*V + c)) / sqrt(2), zeros before the first token."""
    torch.manual_seed(0)
    model = ConvLM(ConvConfig(vocab_size=11, embedding_size=4, hidden_size=6, layers=1, kernel=3)).eval()
    ids = torch.randint(0, 11, (2, 7))
    with torch.no_grad():
        x = model.widen(model.embedding(ids))
        weight, bias = model.layers[0].convolution.weight, model.layers[0].convolution.bias
        h = torch.empty_like(x)
        for t in range(7):
            both = bias.clone().expand(2, -1).clone()
            for back in range(3):
                if t - back >= 0:
                    both += x[:, t - back] @ weight[:, :, 2 - back].T
            h[:, t] = (x[:, t] + both[:, :6] * torch.sigmoid(both[:, 6:])) / 2**0.5
        expected = model.output(model.narrow(h))
        assert torch.allclose(model(ids).logits, expected, atol=1e-6)


@pytest.mark.parametrize(
    "model",
    [
        ConvLM(ConvConfig(vocab_size=14, embedding_size=8, hidden_size=16, layers=3)),
        Ralm(RalmConfig(base={"model_type": "gpt2"} | GPT2, residual={"model_type": "gpt2"} | GPT2)),
    ],
    ids=["conv", "ralm"],
)
def test_our_models_are_the_same_after_saving_and_see_nothing_ahead(model, tmp_path):
    model = model.eval()
    ids = torch.randint(0, 14, (3, 9), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        before = model(ids).logits
        changed = torch.cat([ids[:, :5], (ids[:, 5:] + 1) % 14], dim=1)
        assert torch.equal(model(changed).logits[:, :5], before[:, :5])
        assert not torch.allclose(model(changed).logits[:, 5:], before[:, 5:])
        opened = open_language_model(save(model, tmp_path))
        assert torch.equal(opened.load()(ids).logits, before)
    assert opened.positions == (None if isinstance(model, ConvLM) else 32)


def test_ralm_multiplies_two_distributions_and_renormalises():
    torch.manual_seed(3)
    model = Ralm(RalmConfig(base={"model_type": "gpt2"} | GPT2, residual={"model_type": "gpt2"} | GPT2)).eval()
    for part in (model.base, model.residual):
        for weight in part.parameters():
            weight.data *= 5
    ids = torch.randint(0, 14, (2, 6))
    with torch.no_grad():
        p_phi, p_theta = (F.softmax(part(ids).logits.double(), -1) for part in (model.base, model.residual))
        product = p_phi * p_theta
        found = F.softmax(model(ids).logits.double(), -1)
    assert torch.allclose(found, product / product.sum(-1, keepdim=True), atol=1e-7)
    assert torch.allclose(found.sum(-1), torch.ones(2, 6).double())


def test_the_base_of_a_ralm_is_frozen_and_stays_in_evaluation():
    model = Ralm(RalmConfig(base={"model_type": "gpt2"} | GPT2, residual={"model_type": "gpt2"} | GPT2)).train()
    assert not any(weight.requires_grad for weight in model.base.parameters())
    assert all(weight.requires_grad for weight in model.residual.parameters())
    assert (model.base.training, model.residual.training) == (False, True)


def test_weights_that_are_not_numbers_are_refused(folder, tmp_path):
    model = AutoModelForCausalLM.from_pretrained(folder)
    model.transformer.h[1].mlp.c_fc.weight.data[3, 4] = float("nan")
    with pytest.raises(UserError, match=r"model.safetensors: transformer.h.1.mlp.c_fc.weight has values that are not"):
        open_language_model(save(model, tmp_path)).load()


def test_windows_that_do_not_fit_are_refused(folder, tokenizer):
    model = open_language_model(folder)
    fitting = load_tokenizer(folder).description
    model.check_fits(31, fitting, "the store")
    with pytest.raises(UserError, match=r"the store: windows of 32 tokens .* the 32 positions of"):
        model.check_fits(32, fitting, "the store")
    with pytest.raises(UserError, match=r"the store and .* have different vocabularies"):
        model.check_fits(31, load_tokenizer(tokenizer).description, "the store")


def test_what_is_no_language_model_is_named(folder, tmp_path):
    with pytest.raises(UserError, match=f"{tmp_path}: not a model's folder, there is no config.json"):
        open_language_model(str(tmp_path))
    with pytest.raises(UserError, match="nobody/nothing: neither a model's folder nor a hub name"):
        open_language_model("nobody/nothing")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2", "direction": "sideways"}))
    with pytest.raises(UserError, match=r"config.json has the direction 'sideways'"):
        open_language_model(str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    with pytest.raises(UserError, match="there are no weights"):
        open_language_model(str(tmp_path)).load()
    (tmp_path / "model.safetensors").write_bytes(b"not weights at all")
    with pytest.raises(UserError, match=r"model.safetensors: these weights cannot be read"):
        open_language_model(str(tmp_path)).load()


def test_a_model_is_known_by_its_weights(folder, tmp_path):
    same = save(AutoModelForCausalLM.from_pretrained(folder), tmp_path / "same")
    model = AutoModelForCausalLM.from_pretrained(folder)
    model.transformer.wte.weight.data[0, 0] += 1e-3
    other = save(model, tmp_path / "other")
    digests = [open_language_model(path).weights_digest for path in (folder, same, other)]
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize("direction", ["left_to_right", "right_to_left"])
def test_samples_are_shown_beside_the_truth(stores, direction, tmp_path, capsys):
    torch.manual_seed(0)
    folder = save(GPT2LMHeadModel(GPT2Config(**GPT2, eos_token_id=13, direction=direction)), tmp_path)
    flags = f"--generator {folder} --windows {stores.valid.path} --context_length 8 --engine torch --samples 3"
    show_samples.main(flags.split())
    lines = [line.strip() for line in capsys.readouterr().out.splitlines() if line]
    tokens = stores.valid.take(range(3))["tokens"].to_pylist()
    decode = load_tokenizer(stores.valid.path).decode
    for ids, (context, truth, *samples) in zip(tokens, np.array(lines).reshape(3, 5), strict=True):
        kept, rest = (ids[:8], ids[8:]) if direction == "left_to_right" else (ids[-8:], ids[:-8])
        assert context == f"context  {decode(kept)!r}".replace("'", "")
        assert truth.endswith(f"{decode(rest)!r}   (the true one)".replace("'", ""))
        assert all(float(sample.split()[0]) < 0 for sample in samples)
        assert len(set(samples)) == 3
