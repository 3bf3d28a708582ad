"""What is known of a model before it is sent to a fleet: vLLM itself is asked."""

import sys

import pytest
import torch
from transformers import OpenAIGPTConfig, OpenAIGPTLMHeadModel

from pipeline.engines.vllm_models import check_before_submission
from pipeline.models.language_model import open_language_model
from pipeline.models.model_folder import quiet
from pipeline.runtime.errors import UserError
from tests.pipeline.engines.test_generator import save_model

pytestmark = pytest.mark.vllm


def test_an_architecture_that_vllm_has_not_is_refused(tmp_path):
    config = OpenAIGPTConfig(vocab_size=50, n_positions=64, n_embd=32, n_layer=1, n_head=1, bos_token_id=1)
    with quiet():
        OpenAIGPTLMHeadModel(config).save_pretrained(tmp_path)
    message = r"vLLM cannot run it \(Model architectures \['OpenAIGPTLMHeadModel'\] are not supported.*\): use --engine"
    with pytest.raises(UserError, match=message) as error:
        check_before_submission(open_language_model(str(tmp_path)), 20, on_gpus=True)
    assert len(str(error.value).splitlines()) == 1


def test_heads_are_looked_at_where_workers_have_no_gpus(tmp_path):
    if torch.cuda.is_available():
        pytest.skip("the CPU build alone knows its sizes")
    model = open_language_model(save_model(tmp_path, n_embd=48, n_head=2))
    check_before_submission(model, 15, on_gpus=True)
    with pytest.raises(UserError, match=r"heads of size 24, vLLM on CPU has 32, 64, .*: use --engine torch"):
        check_before_submission(model, 15, on_gpus=False)


def test_who_submits_need_not_have_vllm(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm", None)
    monkeypatch.setattr("pipeline.engines.vllm_models.find_spec", lambda name: None)
    check_before_submission(open_language_model(save_model(tmp_path, n_embd=48, n_head=2)), 15, on_gpus=False)
