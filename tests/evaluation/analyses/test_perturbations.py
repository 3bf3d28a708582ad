"""Perturbations, one by one, against both models themselves."""

import json

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from evaluation.analyses import perturbations
from evaluation.analyses.perturbations import replacements, swaps
from pipeline.engines.sampling import request_seed
from pipeline.runtime.errors import UserError
from training.energy.folder import open_energy_model


def test_each_perturbation_changes_what_it_says():
    window = np.array([5, 0, 5, 5, 13], np.int32)
    changed = replacements(window, 14, seed=3)
    assert ((changed != window) == np.eye(5, dtype=bool)).all()
    assert 0 <= changed.min() <= changed.max() < 14
    assert (changed == replacements(window, 14, seed=3)).all()
    assert swaps(window).tolist() == [[0, 5, 5, 5, 13], [5, 5, 0, 5, 13], [5, 0, 5, 5, 13], [5, 0, 5, 13, 5]]


def test_random_tokens_are_any_other_equally_often():
    counts = np.zeros(14)
    for seed in range(2000):
        counts += np.bincount(np.diag(replacements(np.zeros(5, np.int32), 14, seed)), minlength=14)
    assert counts[0] == 0
    assert np.abs(counts[1:] / counts.sum() - 1 / 13).max() < 0.01


@torch.no_grad()
def test_mean_changes_are_those_of_the_models(models, stores, generators, analyse, tmp_path):
    options = {"energy": models["bit-nano"], "generator": generators["left_to_right"], "windows": stores.valid.path}
    result = analyse(perturbations, **options, limit=4)
    energy = open_energy_model(models["bit-nano"]).load()
    lm = AutoModelForCausalLM.from_pretrained(generators["left_to_right"]).eval()

    def nll(windows: torch.Tensor) -> np.ndarray:
        turned = torch.cat([torch.full((len(windows), 1), 13), windows], 1)
        steps = lm(turned[:, :-1]).logits.double().log_softmax(-1).gather(2, windows[:, :, None])
        return -steps.sum((1, 2)).numpy()

    windows = [stores.valid[number]["tokens"] for number in range(4)]
    found = {(row["perturbation"], row["position"]): row for row in result["rows"]}
    assert len(found) == 13 + 12
    for place in range(12):
        changes = []
        for window in windows:
            if window[place] != window[place + 1]:
                other = window.copy()
                other[[place, place + 1]] = window[[place + 1, place]]
                both = torch.tensor(np.stack([window, other])).long()
                changes.append((np.diff(energy(both).numpy())[0], np.diff(nll(both))[0]))
        row = found["swap", place + 1]
        assert row["windows"] == len(changes)
        if changes:
            assert (row["energy"], row["nll"]) == pytest.approx(np.mean(changes, 0), abs=1e-4)
    for place in (0, 6, 12):
        changes = []
        for number in range(4):
            row = stores.valid[number]
            other = replacements(row["tokens"], 14, request_seed(0, row["window_id"], 0))[place]
            both = torch.tensor(np.stack([row["tokens"], other])).long()
            changes.append((np.diff(energy(both).numpy())[0], np.diff(nll(both))[0]))
        row = found["replacement", place + 1]
        assert (row["energy"], row["nll"]) == pytest.approx(np.mean(changes, 0), abs=1e-4)
        assert row["nll_error"] == pytest.approx(np.std(changes, 0, ddof=1)[1] / 2, abs=1e-4)
    kept = json.loads((tmp_path / "perturbations/windows.json").read_text())
    assert len(kept) == 4
    again = analyse(perturbations, **options, limit=4)
    assert again == result
    assert analyse(perturbations, **options, limit=4, seed=1)["rows"] != result["rows"]


@torch.no_grad()
def test_a_linear_energy_changes_by_the_tokens_difference_and_not_by_swaps(models, stores, generators, analyse):
    result = analyse(
        perturbations,
        energy=models["linear"],
        generator=generators["left_to_right"],
        windows=stores.valid.path,
        limit=3,
    )
    swapped = [row["energy"] for row in result["rows"] if row["perturbation"] == "swap" and row["windows"]]
    assert swapped == pytest.approx([0.0] * len(swapped), abs=1e-5)
    assert any(abs(row["nll"]) > 1e-3 for row in result["rows"] if row["perturbation"] == "swap" and row["windows"])
    scalars = open_energy_model(models["linear"]).load().network.energies.weight[:, 0].double().numpy()
    first = next(row for row in result["rows"] if row["position"] == 1)
    old = [stores.valid[number]["tokens"][0] for number in range(3)]
    possible = scalars[:, None] - scalars[old]
    assert possible.min(0).mean() <= first["energy"] <= possible.max(0).mean()


@pytest.mark.slow
def test_bad_input_is_named(models, stores, generators, world, tmp_path):
    good = {"energy": models["linear"], "generator": generators["left_to_right"], "windows": stores.valid.path}
    cases = [
        ({"windows": f"{tmp_path}/none"}, "no finished store of windows there: python pipeline/make_windows.py"),
        ({"energy": f"{world.folder}/energy"}, "different vocabularies"),
        ({"generator": f"{world.folder}/lm0"}, "different vocabularies"),
        ({"limit": "0"}, "--limit 0: at least 1"),
    ]
    for change, message in cases:
        with pytest.raises(UserError) as error:
            perturbations.main(
                [f"--{name}={value}" for name, value in (good | {"output": f"{tmp_path}/out"} | change).items()]
            )
        assert message in str(error.value), change
