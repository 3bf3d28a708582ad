"""Energies of windows, whatever the batches and the lengths."""

import numpy as np
import pyarrow as pa
import pytest
import torch

import schemas
from evaluation.joint.scorers import EnergyScorer, score_rows
from training.energy.folder import open_energy_model


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
