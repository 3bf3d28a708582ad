"""Energies of random text, against the model itself."""

import numpy as np
import pytest
import torch

from evaluation.analyses import random_text
from evaluation.analyses.random_text import texts_of
from pipeline.runtime.errors import UserError
from tests.training.energy.test_inputs import by_hand
from training.energy.folder import open_energy_model


@pytest.mark.parametrize("which", ["forwards", "backwards"])
def test_texts_are_what_they_are_called(which, negatives, backwards):
    store = negatives.valid if which == "forwards" else backwards
    texts = texts_of(store, limit=50, seed=0)
    rows = store.take(range(50)).to_pylist()
    for number, row in enumerate(rows):
        real, generated = by_hand(tuple(row[name] for name in ("tokens", "direction", "context_length", "negatives")))[
            :2
        ]
        assert texts["real"][number].tolist() == real
        assert texts["generated"][number].tolist() == generated
    shuffled, uniform = np.stack(texts["shuffled"]), np.stack(texts["uniform"])
    assert (np.sort(shuffled) == np.sort(np.stack(texts["real"]))).all()
    assert (shuffled != np.stack(texts["real"])).any(1).mean() > 0.9
    counts = np.bincount(uniform.ravel(), minlength=14)
    assert len(counts) == 14
    assert counts.min() > 0.5 * uniform.size / 14
    assert (np.stack(texts_of(store, 10, seed=0)["uniform"]) == uniform[:10]).all()
    assert (np.stack(texts_of(store, 10, seed=1)["uniform"]) != uniform[:10]).any()


@torch.no_grad()
def test_means_and_shares_are_the_models(models, negatives, analyse):
    result = analyse(random_text, energy=models["bit-nano"], store=negatives.valid.path, limit=40)
    model = open_energy_model(models["bit-nano"]).load()
    texts = texts_of(negatives.valid, 40, 0)
    for row in result["rows"]:
        energies = model(torch.tensor(np.stack(texts[row["text"]])).long()).double().numpy()
        assert row["windows"] == 40
        assert row["energy"] == pytest.approx(energies.mean(), abs=1e-4)
        assert row["standard_error"] == pytest.approx(energies.std(ddof=1) / np.sqrt(40), abs=1e-4)
        assert row["called_real"] == (energies < 0).mean()
    assert [row["text"] for row in result["rows"]] == ["real", "generated", "shuffled", "uniform"]


def test_bad_input_is_named(models, negatives, stores, tmp_path):
    good = {"energy": models["linear"], "store": negatives.valid.path, "output": f"{tmp_path}/out"}
    cases = [
        ({"store": f"{tmp_path}/none"}, "no finished store of negatives there: python pipeline/mine_negatives.py"),
        ({"store": stores.valid.path}, "but one of negatives is needed here"),
        ({"energy": f"{tmp_path}/none"}, "deepspeed training/train_energy.py"),
        ({"limit": "-1"}, "--limit -1: at least 1"),
    ]
    for change, message in cases:
        with pytest.raises(UserError) as error:
            random_text.main([f"--{name}={value}" for name, value in (good | change).items()])
        assert message in str(error.value), change
