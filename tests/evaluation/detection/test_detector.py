"""Whole texts, against the bare model a block at a time."""

import math

import numpy as np
import pytest
import torch

from evaluation.detection.detector import Detector
from pipeline.models.model_folder import quiet
from pipeline.runtime.errors import UserError
from pipeline.text.tokenizer import load_tokenizer
from tests.evaluation.conftest import TINY
from tests.helpers.commands import words
from training.energy.folder import open_energy_model
from training.energy.model import EnergyModel
from training.energy.presets import PRESETS

pytestmark = pytest.mark.usefixtures("one_thread")


@torch.no_grad()
def by_hand(text: str, folder: str, block: int = 160) -> tuple[float, int, int]:
    """Score, blocks and tokens of one text: the bare model, a block at a time."""
    ids = load_tokenizer(folder).encode([" ".join(text.split())])[0]
    blocks = [ids[start : start + block] for start in range(0, len(ids), block)]
    kept = [part for place, part in enumerate(blocks) if not place or len(part) >= block / 2]
    model = open_energy_model(folder).load()
    return float(np.mean([-model(torch.tensor([part])).item() for part in kept])), len(kept), len(ids)


@pytest.mark.parametrize("name", TINY)
def test_a_texts_score_is_the_mean_over_its_blocks(name, text_models):
    texts = [words(count, count) for count in (1, 30, 60, 200, 333, 700)]
    detector = Detector(text_models[name], batch_size=3)
    for text, found in zip(texts, detector.score(texts), strict=True):
        score, blocks, tokens = by_hand(text, text_models[name])
        assert found.score == pytest.approx(score, abs=1e-4)
        assert (found.blocks, found.tokens, found.short, found.problem) == (blocks, tokens, tokens < 160, None)
        assert found.probability == pytest.approx(1 / (1 + math.exp(-score)), abs=1e-4)
    assert max(found.blocks for found in detector.score(texts)) > 10


def test_texts_of_any_number_of_tokens(text_models):
    encoder = load_tokenizer(text_models["linear"])
    detector = Detector(text_models["linear"])
    ids = encoder.encode([" ".join(words(400, 1).split())])[0]
    lengths = {}
    for wanted in (1, 159, 160, 161, 320):
        # As many words as give so many tokens, or a few more: what the detector counts is what the tokenizer gives.
        text = encoder.decode(ids[:wanted]).strip("\ufffd")
        (found,) = detector.score([text])
        lengths[wanted] = (found.tokens, found.blocks, found.short)
        assert found.score == pytest.approx(by_hand(text, text_models["linear"])[0], abs=1e-4)
    assert lengths[1][1:] == (1, True)
    assert lengths[320][1:] == (2, False)
    assert detector.score([""])[0].problem == "no text"
    assert detector.score(["", "a \ud800", "a"])[1].problem.startswith("no text in UTF-8")


def test_a_block_is_no_longer_than_the_model_can_read(tmp_path, tokenizer):
    encoder = load_tokenizer(tokenizer)
    model = EnergyModel(PRESETS["unit-nano"].build(encoder.description, 16))
    network = model.config.network | {"n_positions": 33, "max_position_embeddings": 33}
    narrow = EnergyModel(type(model.config)(**model.config.to_dict() | {"network": network}))
    with quiet():
        narrow.save_pretrained(tmp_path / "narrow")
    encoder.save(str(tmp_path / "narrow"))
    detector = Detector(str(tmp_path / "narrow"))
    assert detector.block == 32
    text = words(100, 0)
    assert detector.score([text])[0].score == pytest.approx(by_hand(text, str(tmp_path / "narrow"), 32)[0], abs=1e-4)
    with pytest.raises(UserError, match="--block 33: windows of 33 tokens do not fit the 33 positions"):
        Detector(str(tmp_path / "narrow"), block=33)
