"""Energy models of every kind that call some windows real and some not, and samples of joint models."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from evaluation import sample_joint
from pipeline.models.model_folder import quiet
from pipeline.text.builtin_corpora import ALPHABET
from pipeline.text.tokenizer import character_tokenizer
from tests.training.energy.test_model import model_of

KINDS = ("linear", "bilstm-tiny", "unit-nano", "bit-nano")


@pytest.fixture(scope="session")
def models(tmp_path_factory, stores) -> dict[str, str]:
    """One of each kind; the median energy of real windows is 0, where a bias can make it so."""
    folder = tmp_path_factory.mktemp("energy-models")
    windows = torch.tensor(np.stack([row["tokens"] for row in stores.valid.rows(["tokens"])]))
    for number, name in enumerate((*KINDS, "other")):
        model = model_of("bit-nano" if name == "other" else name, seed=number)
        with torch.no_grad():
            if name != "linear":
                model.network.energy.bias -= model(windows).median()
        with quiet():
            model.save_pretrained(folder / name)
        character_tokenizer(ALPHABET).save(str(folder / name))
    return {name: str(folder / name) for name in (*KINDS, "other")}


@pytest.fixture(scope="session")
def joint_samples(tmp_path_factory, stores, generators, models) -> dict[str, str]:
    """Of 60 contexts each, 20 completions of 8 tokens; a folder for each direction."""
    folder = tmp_path_factory.mktemp("joint-samples")
    for direction, generator in generators.items():
        given = f"--energy {models['bit-nano']} --generator {generator} --windows {stores.valid.path}"
        flags = f"--context_length 5 --limit 60 --samples 20 --sampling temperature --output {folder / direction}"
        assert sample_joint.main([*given.split(), *flags.split()]) == 0
    return {direction: str(folder / direction) for direction in generators}


@pytest.fixture
def analyse(tmp_path, capsys) -> Callable[..., dict[str, Any]]:
    """Runs a job and returns what it found, having looked at what every job leaves behind."""

    def run(job: Any, **options: Any) -> dict[str, Any]:
        output = tmp_path / job.__name__.rsplit(".", 1)[-1]
        flags = [f"--{name}={value}" if value is not True else f"--{name}" for name, value in options.items()]
        assert job.main([*flags, f"--output={output}"]) == 0
        result = json.loads(Path(output, "analysis.json").read_text())
        assert result["analysis"] == job.__name__.rsplit(".", 1)[-1]
        assert result["title"] in capsys.readouterr().out
        assert result["rows"]
        assert all(len(entry["digest"]) == 64 for entry in result["inputs"])
        assert Path(output, "figure.svg").read_text().startswith("<?xml")
        assert Path(output, "figure.png").read_bytes().startswith(b"\x89PNG")
        return result

    return run
