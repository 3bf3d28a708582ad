"""Energies of windows, whatever the batches and the lengths."""

import numpy as np
import pyarrow as pa
import pytest
import torch

import schemas
from evaluation.joint.energy_scorer import EnergyScorer
from evaluation.joint.scorers import score_rows
from training.energy.folder import EnergyModelFolder, open_energy_model
from training.energy.inputs import Sequences
from training.energy.model import EnergyModel
from training.energy.presets import PRESETS


@pytest.mark.parametrize("size", [1, 3, 64])
def test_batches_of_any_size_give_the_same_energies(size, negatives, energy_models):
    rows = negatives.valid.take(range(30))
    folder = open_energy_model(energy_models["unit-nano"])
    found = [score_rows(rows, EnergyScorer(folder, batch))["energy"].to_numpy() for batch in (size, 1000)]
    assert np.allclose(*found, atol=1e-5)


def test_texts_of_any_length_without_log_probabilities(energy_models):
    table = pa.table(
        {
            "window_id": ["a", "b"],
            "corpus": ["wild"] * 2,
            "split": ["test"] * 2,
            "tokens": [[1, 2, 3], [4, 5]],
            "direction": ["left_to_right"] * 2,
            "context_length": [0, 0],
            "positive_log_p": [None, None],
            "first_sample": [0, 0],
            "negatives": [[[4, 5, 6, 7]], [[1, 2, 3]]],
            "log_p": [None, None],
            "log_q": [None, None],
            "seed": [0, 0],
        }
    ).cast(schemas.NEGATIVES)
    folder = open_energy_model(energy_models["bit-nano"])
    found = score_rows(table, EnergyScorer(folder)).to_pylist()
    model = folder.load()
    texts = [[1, 2, 3], [4, 5, 6, 7], [4, 5], [1, 2, 3]]
    for row, text in zip(found, texts, strict=True):
        assert row["energy"] == pytest.approx(model(torch.tensor([text])).item(), abs=1e-5)
        assert row["log_p"] is None
        assert row["log_q"] is None
    assert [row["sample"] for row in found] == [-1, 0, -1, 0]


def save_half(folder, preset: str, ids: torch.Tensor) -> EnergyModelFolder:
    """A model as a training in bf16 leaves it, whose energies of these windows differ as those of trained ones do."""
    torch.manual_seed(0)
    build = PRESETS[preset].build
    assert build is not None
    model = EnergyModel(build({"vocabulary_size": 50, "eos_token_id": 49}, 33)).eval()
    for weight in model.parameters():
        if weight.ndim == 2:
            torch.nn.init.normal_(weight, std=0.3)
    last = model.network.energies if preset == "linear" else model.network.energy
    last.weight.data *= 3 / model(ids).std().item()
    model.bfloat16().save_pretrained(folder)
    return EnergyModelFolder(preset, str(folder), model.config)


@pytest.mark.parametrize("preset", ["unit-nano", "bit-nano", "linear"])
@pytest.mark.parametrize(("precision", "error"), [("bf16", 0.1), ("fp16", 0.0125)])
def test_what_16_bits_cost_is_small_beside_how_energies_differ(preset, precision, error, tmp_path):
    """Of windows that share a context, as scoring has them: the error of computing, as the weights are the same."""
    ids = np.random.default_rng(0).integers(0, 49, (6, 8, 32))
    ids[:, :, :20] = ids[:, :1, :20]
    folder, windows = (
        save_half(tmp_path / "m", preset, torch.tensor(ids).flatten(0, 1)),
        Sequences(ids, np.full((6, 8), 32)),
    )
    exact, found = (EnergyScorer(folder, precision=each).energies(windows, 20) for each in ("fp32", precision))
    assert exact.std() == pytest.approx(3, rel=0.1)
    assert np.sqrt(((found - exact) ** 2).mean()) < error
    if preset != "linear":  # whose numbers are added up in fp32
        assert np.abs(found - exact).max() > 0
        assert (
            found != torch.from_numpy(found).bfloat16().double().numpy()
        ).mean() > 0.8  # more digits than states have
    assert np.array_equal(exact, EnergyScorer(folder).energies(windows, 20))  # CPUs have fp32 unless they are asked
