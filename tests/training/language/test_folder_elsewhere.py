"""Folders of our own architectures, opened by transformers in a process that knows nothing of this project."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, PretrainedConfig

from pipeline.models.language_model import open_language_model
from pipeline.models.model_folder import quiet
from pipeline.text.tokenizer import load_tokenizer
from tests.helpers.processes import run_group
from training.language.presets import PRESETS

ELSEWHERE = """
import json, sys
import torch
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], trust_remote_code=sys.argv[3] == "trusted").eval()
assert not {"pipeline", "training"} & {name.split(".")[0] for name in sys.modules}
with torch.no_grad():
    print(json.dumps(model(torch.tensor(json.loads(sys.argv[2]))).logits.tolist()))
"""


def configs() -> dict[str, PretrainedConfig]:
    conv, gpt2 = (PRESETS[name].build(14, 32, None) for name in ("conv-tiny", "transf-nano"))
    return {"conv": conv} | {
        f"ralm of {name}": PRESETS["ralm-tiny"].build(14, 32, base) for name, base in (("gpt2", gpt2), ("conv", conv))
    }


def elsewhere(folder: Path, ids: torch.Tensor, trust: str) -> subprocess.CompletedProcess[str]:
    """Where Python finds this project neither by its path nor in the working folder."""
    command = [sys.executable, "-P", "-c", ELSEWHERE, str(folder), json.dumps(ids.tolist()), trust]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"HF_HOME": str(folder.parent / "cache"), "HF_HUB_OFFLINE": "1"}
    return run_group(command, cold=True, cwd="/", env=environment)


@pytest.mark.slow
@pytest.mark.parametrize("name", configs())
def test_our_architectures_load_where_this_project_is_not(name, tokenizer, tmp_path):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(configs()[name]).eval()
    with quiet():
        model.save_pretrained(tmp_path / "model")
    load_tokenizer(tokenizer).save(str(tmp_path / "model"))
    ids = torch.randint(0, 14, (2, 7))
    with torch.no_grad():
        expected = model(ids).logits
        here = open_language_model(str(tmp_path / "model")).load()
        assert torch.equal(here(ids).logits, expected)
    assert type(here) is type(model)  # ours, not a copy of it
    ended = elsewhere(tmp_path / "model", ids, "trusted")
    assert ended.returncode == 0, ended.stderr
    assert torch.allclose(torch.tensor(json.loads(ended.stdout)), expected, atol=1e-6)


@pytest.mark.slow
def test_what_is_not_trusted_is_not_run_and_says_why(tmp_path):
    with quiet():
        AutoModelForCausalLM.from_config(configs()["conv"]).save_pretrained(tmp_path / "model")
    ended = elsewhere(tmp_path / "model", torch.zeros((1, 2), dtype=torch.long), "")
    assert ended.returncode == 1
    assert "trust_remote_code=True" in ended.stderr
