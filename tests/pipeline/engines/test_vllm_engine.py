"""What is vLLM's own: its traps, its start and its end, and its agreement with plain torch on a larger model."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from pipeline.engines.generator import Generator, open_generator
from pipeline.engines.sampling import Sampling, request_seed
from pipeline.engines.torch_engine import TorchEngine
from pipeline.engines.vllm_engine import VllmEngine, kept_mass
from pipeline.engines.vllm_process import CPU_BLOCK
from pipeline.models.conv_lm import ConvConfig
from pipeline.models.language_model import open_language_model
from pipeline.models.model_folder import quiet
from pipeline.runtime.errors import UserError
from tests.pipeline.engines.test_generator import save_model

pytestmark = [pytest.mark.vllm, pytest.mark.usefixtures("one_thread")]

WINDOW = 127
SIZES = {"vocabulary": 500, "n_embd": 64, "n_head": 2, "n_layer": 4, "n_positions": WINDOW + 1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    """Tokens 2i and 2i + 1 have the same embedding, so their logits tie."""
    path = save_model(tmp_path_factory.mktemp("model"), **SIZES)
    with quiet():
        model = AutoModelForCausalLM.from_pretrained(path)
        weights = model.get_input_embeddings().weight.data
        weights[1::2] = weights[0::2]
        model.save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def generator(folder) -> Iterator[Generator]:
    opened = open_generator(folder, Sampling(), window_length=WINDOW)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def reference(folder) -> TorchEngine:
    return TorchEngine(open_language_model(folder))


def texts(count: int, length: int, seed: int = 0) -> list[np.ndarray]:
    return list(np.random.default_rng(seed).integers(0, 500, (count, length), np.int32))


def test_it_agrees_with_torch_on_what_text_is_worth(generator, reference):
    contexts = [text[: 7 * number] for number, text in enumerate(texts(16, 120))]
    completions = [text[: WINDOW - len(context)] for text, context in zip(texts(16, WINDOW, 1), contexts, strict=True)]
    completions[0], completions[3] = completions[0][:1], completions[3][:1]
    prompts = [np.insert(context, 0, 499) for context in contexts]
    expected = reference.log_prob(prompts, completions)
    np.testing.assert_allclose(generator.log_prob(contexts, completions), expected, atol=1e-4, rtol=0)


def test_a_context_that_is_read_from_the_cache_gives_the_same_samples(generator, reference):
    contexts = [text[:length] for length in (CPU_BLOCK * 2 - 1, CPU_BLOCK * 2, 90) for text in texts(3, 90)]
    seeds = [request_seed(0, str(number), 0) for number in range(len(contexts))]
    first = generator.sample(contexts, [30] * 9, seeds, n=6)
    second = generator.sample(contexts, [30] * 9, seeds, n=6)
    for context, one, other in zip(contexts, first, second, strict=True):
        np.testing.assert_array_equal(one.tokens, other.tokens)
        assert len({tuple(row) for row in one.tokens.tolist()}) == 6
        expected = reference.log_prob([np.insert(context, 0, 499)] * 6, list(one.tokens))
        np.testing.assert_allclose(one.log_p, expected, atol=1e-4)
        np.testing.assert_allclose(other.log_p, expected, atol=1e-4)


def test_sampling_and_scoring_at_once_gives_what_each_gives_alone(generator, reference):
    contexts = [np.arange(number, number + 20, dtype=np.int32) % 50 for number in range(6)]
    given = [np.arange(5, dtype=np.int32) + number for number in range(6)]
    drawn, log_p = generator.sample_and_score(contexts, given, list(range(6)), 2)
    alone = generator.sample(contexts, [5] * 6, list(range(6)), 2)
    assert all(np.array_equal(one.tokens, other.tokens) for one, other in zip(drawn, alone, strict=True))
    assert log_p == pytest.approx(
        reference.log_prob([np.insert(context, 0, 499) for context in contexts], given), abs=1e-4
    )


def test_a_request_gets_the_same_sample_in_any_company_and_another_window_another_one(generator):
    contexts = [*texts(5, 50), *texts(5, 50)]  # each text twice, as two windows
    seeds = [request_seed(0, str(number), 50) for number in range(10)]
    whole = [drawn.tokens.tolist() for drawn in generator.sample(contexts, [40] * 10, seeds)]
    turned = generator.sample(contexts[::-1], [40] * 10, seeds[::-1])
    assert [drawn.tokens.tolist() for drawn in turned] == whole[::-1]
    alone = [generator.sample([contexts[number]], [40], [seeds[number]])[0].tokens.tolist() for number in (0, 7)]
    assert alone == [whole[0], whole[7]]
    assert all(one != other for one, other in zip(whole[:5], whole[5:], strict=True))


def test_samples_are_the_same_in_whatever_chunks_they_are_drawn(generator):
    contexts, seeds = texts(4, 50), [request_seed(0, str(number), 50) for number in range(4)]
    whole = generator.sample(contexts, [20] * 4, seeds, n=6)
    later = generator.sample(contexts, [20] * 4, [seed + 2 for seed in seeds], n=4)
    assert [drawn.tokens.tolist() for drawn in later] == [drawn.tokens[2:].tolist() for drawn in whole]


def test_top_k_counts_the_tokens_that_tie_with_the_last_one(generator, reference):
    sampling = Sampling("top_k", top_k=3)  # which keeps four, because they come in pairs
    prompts = [np.insert(text, 0, 499) for text in texts(4, 30)]
    for prompt, drawn in zip(
        prompts, generator.engine.sample(prompts, [20] * 4, [1, 2, 3, 4], sampling, 2), strict=True
    ):
        for tokens, log_p, log_q in zip(drawn.tokens, drawn.log_p, drawn.log_q, strict=True):
            ids = torch.tensor(np.concatenate([prompt, tokens]))[None].long()
            with torch.no_grad():
                steps = torch.log_softmax(reference.network(ids).logits[0, -21:-1].double(), -1)
            best = steps.topk(4).values.logsumexp(-1)
            chosen = steps.gather(1, ids[0, -20:, None])[:, 0]
            assert log_p == pytest.approx(chosen.sum().item(), abs=1e-4)
            assert log_q == pytest.approx((chosen - best).sum().item(), abs=1e-4)


def test_mass_is_not_guessed_where_more_tokens_tie_than_vllm_told():
    log_p = np.log(np.array([[0.4, 0.2, 0.1, 0.1, 0.05], [0.4, 0.2, 0.1, 0.1, 0.1]]))
    np.testing.assert_allclose(kept_mass(log_p, 3, 9), [0.8, np.nan])
    np.testing.assert_allclose(kept_mass(log_p, 3, 5), [0.8, 0.9])
    np.testing.assert_allclose(kept_mass(log_p, 1, 9), [0.4, 0.4])


def test_a_rule_that_the_engine_was_not_started_for_is_refused(generator):
    with pytest.raises(ValueError, match="nucleus=False cannot follow the rule nucleus"):
        generator.engine.sample([np.array([1], np.int32)], [1], [0], Sampling("nucleus"), 1)


def test_completions_that_vllm_has_cut_are_not_taken_for_whole_ones(generator):
    with pytest.raises(RuntimeError, match=r"vLLM gave completions of \[28, 28\] tokens, not 2 of 40"):
        generator.engine.sample(texts(1, 100), [40], [0], Sampling(), 2)


def test_nothing_asked_for_is_nothing_done(generator):
    assert generator.sample([], [], []) == []
    assert generator.log_prob([], []).shape == (0,)


@pytest.mark.slow
def test_a_process_can_use_one_engine_after_another_and_the_first_again(folder, generator, tmp_path):
    context, threads = texts(1, 10)[0], torch.get_num_threads()
    before = generator.sample([context], [10], [1])[0].tokens
    other = open_generator(save_model(tmp_path, direction="right_to_left"), Sampling("nucleus"), window_length=8)
    assert other.sample([np.array([0])], [4], [1])[0].tokens.shape == (1, 4)
    np.testing.assert_array_equal(generator.sample([context], [10], [1])[0].tokens, before)
    other.close()  # which is not running any more
    np.testing.assert_array_equal(generator.sample([context], [10], [1])[0].tokens, before)
    torch.set_num_threads(threads + 1)
    assert torch.get_num_threads() == threads + 1  # vLLM would have turned this into nothing
    torch.set_num_threads(threads)


def test_models_that_vllm_has_not_are_sent_to_the_other_engine(tmp_path):
    with quiet():
        AutoModelForCausalLM.from_config(ConvConfig(50, 16, 32, 3, 4, bos_token_id=1)).save_pretrained(tmp_path)
    with pytest.raises(UserError, match="vLLM has no residual_ebm_conv models: use --engine torch"):
        VllmEngine(open_language_model(str(tmp_path)), 20)


def test_heads_of_a_size_that_vllm_has_not_on_cpu_are_named(tmp_path):
    if torch.cuda.is_available():
        pytest.skip("GPUs have more sizes")
    with pytest.raises(UserError, match=r"heads of size 24, vLLM on CPU has 32, 64, .*: use --engine torch"):
        VllmEngine(open_language_model(save_model(tmp_path, n_embd=48, n_head=2)), 15)


@pytest.mark.slow
def test_what_vllm_has_against_a_model_is_said_and_the_process_can_go_on(generator, tmp_path):
    path = save_model(tmp_path)
    config = json.loads(Path(path, "config.json").read_text())
    Path(path, "config.json").write_text(json.dumps(config | {"activation_function": "no such thing"}))
    with pytest.raises(UserError, match=r"vLLM cannot load it \(.*no such thing.*\): use --engine torch"):
        VllmEngine(open_language_model(path), 15)
    assert generator.sample(texts(1, 10), [10], [1])[0].tokens.shape == (1, 10)
