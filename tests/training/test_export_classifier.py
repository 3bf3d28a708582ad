"""A bit as a standard class: the same energies, by somebody who has transformers alone."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from evaluation.detection.detector import Detector
from pipeline.runtime.errors import UserError
from pipeline.text.tokenizer import load_tokenizer
from tests.helpers.commands import words
from tests.helpers.pretrained import loud, save
from training import export_classifier
from training.energy.model import EnergyModel
from training.energy.presets import PRESETS


def saved(preset: str, tokenizer: str, folder: Path) -> str:
    torch.manual_seed(0)
    model = loud(EnergyModel(PRESETS[preset].build(load_tokenizer(tokenizer).description, 65)))
    return save(model, folder / preset, tokenizer)


@torch.no_grad()
def test_the_exported_classifier_gives_every_text_the_same_energy(tokenizer, tmp_path):
    model, output = saved("bit-tiny", tokenizer, tmp_path), str(tmp_path / "standard")
    assert export_classifier.main([model, "--output", output]) == 0
    texts = [" ".join(words(count, seed).split()) for seed, count in enumerate([3, 7, 9, 5, 1])]
    network = AutoModelForSequenceClassification.from_pretrained(output).eval()
    logits = network(**AutoTokenizer.from_pretrained(output)(texts, padding=True, return_tensors="pt")).logits[:, 0]
    expected = [one.score for one in Detector(model, block=60).score(texts)]
    assert logits.numpy() == pytest.approx(np.array(expected), abs=1e-5)
    assert np.std(expected) > 0.01
    assert type(network).__name__ == "ElectraForSequenceClassification"
    with pytest.raises(UserError, match="it is there already"):
        export_classifier.main([model, "--output", output])
    assert AutoModelForSequenceClassification.from_pretrained(output).num_labels == 1


def test_what_fits_no_class_is_refused_and_leaves_nothing(tokenizer, tmp_path):
    for preset in ("linear", "unit-nano"):
        with pytest.raises(UserError, match="fits no class of transformers' exactly"):
            export_classifier.main([saved(preset, tokenizer, tmp_path), "--output", str(tmp_path / "standard")])
    assert not (tmp_path / "standard").exists()
