"""What pages say was measured, from the files that the real jobs write."""

import json
import random
from pathlib import Path

import pytest
import yaml
from huggingface_hub import ModelCard

from evaluation import accuracy_grid, detect
from evaluation.hub.metrics import read_metrics, results_of
from evaluation.push_to_hub import PushSettings, push_to_hub
from pipeline.models.model_folder import open_model_folder
from pipeline.runtime.errors import UserError


@pytest.fixture(scope="module")
def measured(world, tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("measured")
    found = {"bounds": folder / "bounds.json", "grid": folder / "grid/grid.json", "detection": folder / "scores.json"}
    found["bounds"].write_text(json.dumps(world.bounds()))
    grid = {
        "rows": [
            {"name": "BiT", "energy": f"{world.folder}/energy"},
            {"name": "LM", "likelihood": f"{world.folder}/lm1", "valid": [world.samples]},
        ],
        "columns": [{"name": "letters | [of](x)\n---", "stores": [world.samples]}],
    }
    (folder / "grid.yaml").write_text(yaml.safe_dump(grid))
    assert accuracy_grid.main(f"--grid {folder}/grid.yaml --output {folder}/grid".split()) == 0
    for name, letters in (("real", "abcd"), ("generated", "aabc")):
        texts = ("".join(random.Random(seed).choices(letters, k=20)) for seed in range(20))
        (folder / f"{name}.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    given = f"--energy {world.folder}/energy --real {folder}/real.jsonl --generated {folder}/generated.jsonl"
    detect.main(f"{given} --output {folder}/scores.parquet".split())
    return found


def page_of(folder: Path, *metrics: Path, repo: str = "user/model") -> str:
    settings = PushSettings(folder=str(folder), repo=repo, metrics=tuple(map(str, metrics)), dry_run=True)
    return push_to_hub(settings).page


def test_an_energy_models_page_has_every_number_with_its_interval(world, measured):
    page = page_of(world.folder / "energy", *measured.values())
    bounds, grid, detection = (json.loads(path.read_text()) for path in measured.values())
    joint, (cell,), (found,) = bounds["joint_perplexity"], grid["cells"][:1], detection["accuracy"]
    assert f"{joint['lower']:.4f} to {joint['upper']:.4f}" in page
    own = bounds["differences"]["base"]["percent"]
    assert own["low"] is None or f"{own['low']:+.1f} to {own['high']:+.1f} %" in page
    assert f"| {cell['accuracy']:.2%} | {cell['low']:.2%} to {cell['high']:.2%} |" in page
    low, high = found["interval"]
    assert f"| {found['balanced_accuracy']:.2%} | {low:.2%} to {high:.2%} |" in page
    for sentence in bounds["warnings"]:
        assert sentence.split()[-1].strip(".") in page
    results = ModelCard(page).data.eval_results
    assert results is not None
    values = {(result.metric_type, result.metric_value) for result in results}
    wanted = {("perplexity", joint["lower"]), ("perplexity", joint["upper"]), ("accuracy", cell["accuracy"])}
    assert values == wanted | {("accuracy", found["balanced_accuracy"])}
    assert {result.task_type for result in results} == {"text-classification"}
    named = next(result.metric_name for result in results if result.metric_value == cell["accuracy"])
    assert f"95% interval {cell['low']:.2%} to {cell['high']:.2%}" in str(named)


def test_a_language_models_page_has_its_own_numbers_alone(world, measured):
    page = page_of(world.folder / "lm0", measured["bounds"])
    bounds = json.loads(measured["bounds"].read_text())
    assert f"| {bounds['base_perplexity']:.4f} | none in the file |" in page
    assert f"{bounds['joint_perplexity']['lower']:.4f}" not in page
    assert "by its likelihood" in page_of(world.folder / "lm1", measured["grid"])


def test_numbers_of_other_models_are_refused(world, measured):
    for name in ("bounds", "grid", "detection"):
        with pytest.raises(UserError, match=r"it says nothing of .*/constant, whose weights have the digest"):
            page_of(world.folder / "constant", measured[name])


def test_data_of_like_names_are_kept_apart_and_what_is_no_number_is_left_out(world, measured):
    grid = json.loads(measured["grid"].read_text())
    cells = [grid["cells"][0] | {"column": name, "accuracy": share} for name, share in (("a b", 0.5), ("a-b", 0.75))]
    cells.append(grid["cells"][0] | {"column": "c", "accuracy": float("nan")})
    path = measured["grid"].parent / "alike.json"
    path.write_text(json.dumps(grid | {"cells": cells}))
    digest = open_model_folder(str(world.folder / "energy")).weights_digest
    results = results_of(read_metrics([str(path)], digest, "energy").metrics, "text-classification")
    assert [(result.dataset_type, result.metric_value) for result in results] == [("a-b", 0.5), ("a-b-2", 0.75)]
