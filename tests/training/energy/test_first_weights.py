"""First weights: whatever an energy model starts from, it must compute with it what the source computes."""

import json

import pytest
import torch
from tokenizers import Tokenizer
from transformers import (
    BertForMaskedLM,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForMaskedLM,
    RobertaModel,
)

from pipeline.runtime.errors import UserError
from pipeline.text.tokenizer import load_tokenizer
from tests.helpers.commands import words
from tests.helpers.pretrained import BIT, loud, permuted_roberta, save
from training import train_energy
from training.energy.first_weights import copy_first_weights, find_first_weights
from training.energy.folder import EnergyModelFolder
from training.energy.model import EnergyModel
from training.energy.presets import PRESETS
from training.language.presets import PRESETS as LM_PRESETS

NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


@pytest.fixture(scope="module")
def encoder(tokenizer):
    return load_tokenizer(tokenizer)


def start(preset: str | None, init: str, encoder, window: int = 16) -> tuple[EnergyModel, str]:
    found = find_first_weights(init, preset, encoder.description)
    built = PRESETS[preset].build if preset else None
    model = EnergyModel(built(encoder.description, window + 1) if built else found.config)
    return model.eval(), str(copy_first_weights(model, found, encoder, window))


@torch.no_grad()
def test_a_bit_that_starts_from_roberta_finds_every_piece_under_its_own_id(encoder, tmp_path):
    tokenizer, theirs = permuted_roberta(encoder)
    config = RobertaConfig(
        vocab_size=len(tokenizer), max_position_embeddings=514, type_vocab_size=1, **BIT, **NO_DROPOUT
    )
    config.layer_norm_eps = 1e-5
    roberta = loud(RobertaForMaskedLM(config))
    model, report = start("bit-nano", save(roberta, tmp_path / "roberta", tokenizer), encoder)
    ids = torch.tensor([*encoder.encode([words(40, 1)])[0][:32], encoder.eos_token_id]).view(3, 11)
    mapped = torch.tensor([[0, *(theirs[int(id)] for id in row)] for row in ids])
    head = model.network.energy
    expected = roberta.roberta(mapped).last_hidden_state[:, 0] @ head.weight[0] + head.bias
    assert torch.allclose(model(ids), expected, atol=1e-5)
    scrambled = roberta.roberta(torch.cat([torch.zeros(3, 1, dtype=torch.long), ids], 1)).last_hidden_state[:, 0]
    assert not torch.allclose(model(ids), scrambled @ head.weight[0] + head.bias, atol=1e-2)
    assert "network.energy.weight, network.energy.bias" in report
    assert "the first 256 of 512 positions" in report
    assert "every piece was found" in report
    mask = model.network.transformer.get_input_embeddings().weight[encoder.vocabulary_size + 1]
    assert torch.equal(mask, roberta.get_input_embeddings().weight[tokenizer.mask_token_id])


def test_an_encoder_of_other_pieces_is_refused_with_the_way_out(encoder, tmp_path):
    tokenizer, _ = permuted_roberta(encoder)
    content = json.loads(tokenizer.backend_tokenizer.to_str())
    content["model"]["vocab"] = {
        f"{piece}x" if id > 200 else piece: id for piece, id in content["model"]["vocab"].items()
    }
    content["model"]["merges"], content["added_tokens"] = [], []
    other = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(json.dumps(content)), cls_token="<s>")
    folder = save(RobertaModel(RobertaConfig(vocab_size=500, **BIT)), tmp_path / "other", other)
    with pytest.raises(UserError, match="pieces are not in its vocabulary: take --preset encoder"):
        start("bit-nano", folder, encoder)


def test_a_shape_that_does_not_fit_is_named_by_its_tensor(encoder, tmp_path, tokenizer):
    roberta, _ = permuted_roberta(encoder)
    shapes = {
        "wide": (BIT | {"hidden_size": 128}, r"embeddings.LayerNorm.bias is \(128,\) there and \(32,\) here"),
        "deep": (
            BIT | {"num_hidden_layers": 3},
            r"encoder.layer.2.attention.output.LayerNorm.bias is .* and absent here",
        ),
        "flat": (BIT | {"num_hidden_layers": 1}, r"encoder.layer.1.attention.output.LayerNorm.bias is absent there"),
        "short": (
            BIT | {"max_position_embeddings": 100},
            r"position_embeddings.weight is \(98, 32\) there and \(256, 32\)",
        ),
    }
    for name, (sizes, message) in shapes.items():
        config = RobertaConfig(**{"vocab_size": 500, "max_position_embeddings": 514, "type_vocab_size": 1} | sizes)
        folder = save(RobertaModel(config), tmp_path / name, roberta)
        with pytest.raises(UserError, match=message):
            start("bit-nano", folder, encoder)
    lm = GPT2LMHeadModel(LM_PRESETS["transf-nano"].build(encoder.vocabulary_size, 256, None))
    with pytest.raises(UserError, match=r"h.0.attn.c_attn.bias is \(96,\) there and \(384,\) here"):
        start("unit-tiny", save(lm, tmp_path / "lm", tokenizer), encoder)


@torch.no_grad()
def test_a_unit_starts_from_a_language_model(encoder, tmp_path, tokenizer):
    preset = "unit-nano"
    lm = loud(GPT2LMHeadModel(LM_PRESETS["transf-nano"].build(encoder.vocabulary_size, 400, None)))
    lm.config.eos_token_id = encoder.eos_token_id
    model, report = start(preset, save(lm, tmp_path / "lm", tokenizer), encoder)
    ids = torch.randint(0, 400, (4, 16))
    before = torch.full((4, 1), encoder.eos_token_id)
    states = lm.transformer(torch.cat([before, ids], 1)).last_hidden_state[:, 1:]
    head = model.network.energy
    assert torch.allclose(model(ids), states.mean(1) @ head.weight[0] + head.bias, atol=1e-5)
    assert "the first 256 of 400 positions" in report
    lm.config.direction = "right_to_left"
    with pytest.raises(UserError, match="reads right to left"):
        start(preset, save(lm, tmp_path / "backwards", tokenizer), encoder)


@torch.no_grad()
def test_a_bit_starts_from_a_masked_language_model_of_ours(encoder, tmp_path, tokenizer):
    from training.train_lm import masked_config

    config = masked_config("bit-nano", encoder.description, 17)
    masked = loud(BertForMaskedLM(config))
    model, report = start("bit-nano", save(masked, tmp_path / "masked", tokenizer), encoder)
    ids = torch.randint(0, 400, (4, 16))
    states = masked.bert(torch.cat([torch.full((4, 1), 400), ids], 1)).last_hidden_state[:, 0]
    head = model.network.energy
    assert torch.allclose(model(ids), states @ head.weight[0] + head.bias, atol=1e-5)
    assert "new: network.energy.weight, network.energy.bias" in report


@torch.no_grad()
def test_an_energy_model_goes_on_from_another(encoder, tmp_path, tokenizer):
    first = loud(EnergyModel(PRESETS["bilstm-tiny"].build(encoder.description, 17)))
    folder = save(first, tmp_path / "first", tokenizer)
    for preset in (None, "bilstm-tiny"):
        model, report = start(preset, folder, encoder)
        ids = torch.randint(0, 400, (3, 16))
        assert torch.allclose(model(ids), first(ids), atol=1e-6)
        assert "new: nothing" in report
    assert isinstance(find_first_weights(folder, None, encoder.description).folder, EnergyModelFolder)
    with pytest.raises(UserError, match=r"network.embeddings.weight is \(400, 64\) there and absent here"):
        start("bit-nano", folder, encoder)
    lm = save(GPT2LMHeadModel(LM_PRESETS["transf-nano"].build(400, 256, None)), tmp_path / "lm", tokenizer)
    with pytest.raises(UserError, match="a bilstm model starts from nothing"):
        start("bilstm-tiny", lm, encoder)


@pytest.mark.slow
def test_flags_that_lack_a_model_to_start_from_say_so(negatives, tmp_path):
    flags = ["--train", negatives.train.path, "--valid", negatives.valid.path, "--output", str(tmp_path / "model")]
    with pytest.raises(UserError, match="the shape of --preset encoder is that of a model to start from"):
        train_energy.main([*flags, "--preset", "encoder"])


@torch.no_grad()
def test_a_language_model_without_its_causal_mask_reads_both_ways(encoder, tokenizer, tmp_path):
    config = LM_PRESETS["transf-nano"].build(encoder.vocabulary_size, 32, None)
    config.bos_token_id = config.eos_token_id = encoder.eos_token_id
    lm = loud(GPT2LMHeadModel(config))
    model, report = start("unmasked", save(lm, tmp_path / "lm", tokenizer), encoder)
    ids = torch.tensor(encoder.encode([words(40, 1)])[0][:30]).view(3, 10)
    whole = torch.cat([torch.full((3, 1), encoder.eos_token_id), ids], 1)
    lm.set_attn_implementation("eager")
    sees_all = torch.zeros(3, 1, 11, 11)  # added to the attention's scores: nothing is hidden
    states = lm.transformer(whole, attention_mask=sees_all, use_cache=False).last_hidden_state
    head = model.network.energy
    assert torch.allclose(model(ids), states[:, 0] @ head.weight[0] + head.bias, atol=1e-5)
    assert "network.energy.weight, network.energy.bias" in report
    later = ids.clone()
    later[:, -1] = (later[:, -1] + 1) % encoder.vocabulary_size
    assert not torch.isclose(model(later), model(ids), atol=1e-4).any()
    padded = torch.cat([ids, torch.zeros(3, 4, dtype=torch.long)], 1)
    mask = torch.tensor([[1] * 10 + [0] * 4] * 3)
    assert torch.allclose(model(padded, mask), model(ids), atol=1e-5)
    model.save_pretrained(tmp_path / "energy")
    assert torch.allclose(EnergyModel.from_pretrained(tmp_path / "energy").eval()(ids), model(ids), atol=1e-6)
