"""The stores that energies are computed from, a world in which everything is known, and what jobs make of it."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from evaluation import accuracy_grid, perplexity_bounds, report, sample_joint
from evaluation.analyses import densities
from pipeline import make_windows
from pipeline.models.model_folder import quiet
from pipeline.stores.reader import Store
from pipeline.text.builtin_corpora import ALPHABET
from pipeline.text.tokenizer import character_tokenizer, load_tokenizer
from tests.helpers.world import SAMPLES, World
from tests.training.conftest import backwards, generators, negatives  # noqa: F401
from tests.training.energy.test_model import model_of
from training.energy.model import EnergyModel
from training.energy.presets import PRESETS
from training.train_energy import describe_store

TINY = ("linear", "bilstm-tiny", "unit-nano", "bit-nano")
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
CHROMIUM = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
CHROMIUM += ["--disable-component-update", "--disable-sync"]


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="session")
def energy_models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """One energy model of each kind over letters, with weights that are not small."""
    folder = tmp_path_factory.mktemp("energy_models")
    for name in TINY:
        with quiet():
            model_of(name).save_pretrained(folder / name)
        character_tokenizer(ALPHABET).save(str(folder / name))
    return {name: str(folder / name) for name in TINY}


@pytest.fixture(scope="session")
def text_models(tmp_path_factory: pytest.TempPathFactory, tokenizer: str) -> dict[str, str]:
    """The same over pieces of words, for windows of 160."""
    folder = tmp_path_factory.mktemp("text_models")
    encoder = load_tokenizer(tokenizer)
    for name in TINY:
        torch.manual_seed(0)
        model = EnergyModel(PRESETS[name].build(encoder.description, 161))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.1 * torch.randn_like(parameter)
        with quiet():
            model.save_pretrained(folder / name)
        encoder.save(str(folder / name))
    return {name: str(folder / name) for name in TINY}


@pytest.fixture(scope="session")
def results(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the real jobs leave: bounds with everything in them, a grid with a cell left out, samples, an analysis."""
    folder = tmp_path_factory.mktemp("report")
    models = {"energy": {"preset": "bit-nano", "objective": "balanced", "accuracy": 0.875, "parameters": 12_345}}
    models["lm0"] = {"preset": "transf-nano", "corpus": "letters", "perplexity": 4.25, "seed": 7, "step": 100}
    models["energy"]["stores"] = [describe_store(Store(world.samples))]
    for name, provenance in models.items():
        shutil.copytree(world.folder / name, folder / "models" / name)
        config = folder / "models" / name / "config.json"
        config.write_text(json.dumps(json.loads(config.read_text()) | {"provenance": provenance}))
    energy, lm = (str(folder / "models" / name) for name in ("energy", "lm0"))

    documents = [json.dumps({"text": "abcd" * 9})] * 3 + ["{broken"]
    (folder / "texts.jsonl").write_text("\n".join(documents))
    make_windows.main(
        f"--input {folder}/texts.jsonl --corpus letters --split train --tokenizer {world.folder}/tokenizer --window 5 "
        f"--stride 5 --max_reject_fraction 0.5 --output {folder}/stores/train".split()
    )
    shutil.copytree(world.folder / "windows", folder / "stores/test")

    every = world.mine("every", f"--context_lengths 2,3,4 --every_context_length --negatives {SAMPLES}")
    common = f"--negatives {world.samples} --energies {world.energies} --output {folder}/results/bounds"
    perplexity_bounds.main(f"{common} --samples_curve --matches --language_model {world.folder}/lm1".split())
    exact = f"--positions --exact_windows 5 --energy {energy} --generator {lm}"
    scored = world.score("energy", every)
    perplexity_bounds.main(
        f"--negatives {every} --energies {scored} --output {folder}/results/by-position {exact}".split()
    )
    grid = {
        "title": "Letters",
        "paper": "in_domain",
        "row_means": True,
        "rows": [
            {"name": "BiT", "energy": energy, "paper": "UniT"},
            {"name": "Lost", "energy": str(folder / "nowhere")},
        ],
        "columns": [{"name": "letters", "stores": [world.samples], "paper": "Books"}],
    }
    (folder / "grid.yaml").write_text(yaml.safe_dump(grid))
    arguments = f"--grid {folder}/grid.yaml --output {folder}/results/grid --energies {folder}/stores/energies"
    assert accuracy_grid.main(arguments.split()) == 1
    sample_joint.main(
        f"--energy {energy} --generator {lm} --windows {world.folder}/windows --context_length 2 --limit 15 "
        f"--samples 20 --top_k 3 --output {folder}/results/samples".split()
    )
    both = f"--negatives {world.samples} --energies {world.energies}"
    densities.main(f"{both} --output {folder}/results/densities".split())
    return folder


@pytest.fixture(scope="session")
def html(results: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("page") / "report.html"
    assert report.main(["--input", str(results), "--output", str(output)]) == 0
    return output


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium: the machine's, or playwright's own."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install -e '.[dev]'")
    with api.sync_playwright() as playwright:
        found = next(filter(None, map(shutil.which, BROWSERS)), playwright.chromium.executable_path)
        if not os.path.exists(found):
            pytest.skip("no browser on this machine: apt-get install chromium, or playwright install chromium")
        opened = playwright.chromium.launch(executable_path=found, args=CHROMIUM)
        yield opened
        opened.close()
