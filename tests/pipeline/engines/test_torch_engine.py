import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, MistralConfig

from pipeline.engines import torch_engine
from pipeline.engines.generator import open_generator
from pipeline.engines.sampling import Sampling, request_seed
from pipeline.engines.torch_engine import TorchEngine
from pipeline.models.conv_lm import ConvConfig
from pipeline.models.language_model import open_language_model
from pipeline.models.model_folder import quiet
from pipeline.models.residual_lm import RalmConfig
from pipeline.runtime.errors import UserError

pytestmark = pytest.mark.usefixtures("one_thread")

ROPE = {"vocab_size": 50, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
ROPE |= {"num_key_value_heads": 2, "max_position_embeddings": 64, "bos_token_id": 1, "eos_token_id": 1}
GPT2 = {"vocab_size": 50, "n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 2, "initializer_range": 0.2}
GPT2 |= {"bos_token_id": 1, "eos_token_id": 1}
CONFIGS = {
    "gpt2": GPT2Config(**GPT2),
    "llama": LlamaConfig(**ROPE),
    "mistral": MistralConfig(**ROPE, sliding_window=8),
    "conv": ConvConfig(50, 16, 32, 3, 4, bos_token_id=1, eos_token_id=1),
    "ralm": RalmConfig(GPT2 | {"model_type": "gpt2"}, GPT2 | {"model_type": "gpt2"}, bos_token_id=1, eos_token_id=1),
}
RULES = [Sampling(), Sampling("top_k", top_k=5), Sampling("nucleus")]


def save(config, folder) -> str:
    torch.manual_seed(0)
    with quiet():
        AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return open_language_model(save(CONFIGS["gpt2"], tmp_path_factory.mktemp("gpt2")))


def requests(count: int) -> tuple[list[np.ndarray], list[int], list[int]]:
    """Prompts of a few different lengths, completions of two."""
    rng = np.random.default_rng(0)
    prompts = [rng.integers(0, 50, 1 + number % 4 * 7).astype(np.int32) for number in range(count)]
    return prompts, [12 + number % 2 for number in range(count)], [request_seed(0, str(n), 0) for n in range(count)]


def same(some, others) -> bool:
    close = all(np.allclose(one.log_q, other.log_q, atol=1e-5) for one, other in zip(some, others, strict=True))
    return close and all(np.array_equal(one.tokens, other.tokens) for one, other in zip(some, others, strict=True))


@pytest.mark.parametrize("kind", CONFIGS)
def test_steps_with_a_cache_agree_with_one_pass_over_the_whole(kind, tmp_path):
    engine = TorchEngine(open_language_model(save(CONFIGS[kind], tmp_path)))
    prompts, lengths, seeds = requests(6)
    drawn = engine.sample(prompts, lengths, seeds, Sampling(), 3)
    for prompt, length, completions in zip(prompts, lengths, drawn, strict=True):
        assert completions.tokens.shape == (3, length)
        expected = engine.log_prob([prompt] * 3, list(completions.tokens))
        np.testing.assert_allclose(completions.log_p, expected, atol=1e-4)
        np.testing.assert_array_equal(completions.log_q, completions.log_p)
        assert len({tuple(row) for row in completions.tokens.tolist()}) == 3


@pytest.mark.parametrize("kind", CONFIGS)
@pytest.mark.parametrize("n", [1, 100])
def test_sampling_and_scoring_at_once_gives_what_each_gives_alone(kind, n, tmp_path):
    """Whether the cache can be cut back (GPT-2, Llama) or not (a sliding window, our own)."""
    engine = TorchEngine(open_language_model(save(CONFIGS[kind], tmp_path)))
    prompts, lengths, seeds = requests(9)
    lengths[4] = 1
    rng = np.random.default_rng(1)
    given = [rng.integers(0, 50, length).astype(np.int32) for length in lengths]
    drawn, log_p = engine.sample_and_score(prompts, given, seeds, Sampling(), n)
    assert same(drawn, engine.sample(prompts, lengths, seeds, Sampling(), n))
    assert log_p == pytest.approx(engine.log_prob(prompts, given), abs=1e-4)


def test_a_prompt_is_read_once_for_both(model, monkeypatch):
    engine = TorchEngine(model)
    forward, read = engine.network.forward, []

    def counted(ids, **given):
        read.append(ids.numel())
        return forward(ids, **given)

    monkeypatch.setattr(engine.network, "forward", counted)
    prompts, given = [np.arange(30, dtype=np.int32)] * 4, [np.arange(10, dtype=np.int32)] * 4
    engine.sample_and_score(prompts, given, [1, 2, 3, 4], Sampling(), 1)
    assert sum(read) == 4 * (30 + 9 + 9)  # the prompt, then all but the last token of both completions


@pytest.mark.parametrize("sampling", RULES, ids=lambda sampling: sampling.rule)
def test_a_sample_depends_on_its_request_and_number_alone(model, sampling):
    engine = TorchEngine(model)
    prompts, lengths, seeds = requests(9)
    whole = engine.sample(prompts, lengths, seeds, sampling, 5)
    assert same(engine.sample(prompts[::-1], lengths[::-1], seeds[::-1], sampling, 5), whole[::-1])
    assert same(engine.sample(prompts[4:5], lengths[4:5], seeds[4:5], sampling, 5), whole[4:5])
    fewer = engine.sample(prompts, lengths, seeds, sampling, 2)
    assert all(np.array_equal(few.tokens, all.tokens[:2]) for few, all in zip(fewer, whole, strict=True))


@pytest.mark.parametrize("rows", [1, 2, 3, 7])
def test_little_memory_changes_nothing(model, monkeypatch, rows):
    prompts, lengths, seeds = requests(9)
    engine = TorchEngine(model)
    whole, scores = engine.sample(prompts, lengths, seeds, Sampling(), 5), engine.log_prob(prompts, prompts)
    monkeypatch.setitem(torch_engine.MOST_ROWS, engine.device, rows)
    assert same(engine.sample(prompts, lengths, seeds, Sampling(), 5), whole)
    np.testing.assert_allclose(engine.log_prob(prompts, prompts), scores, atol=1e-5)


def test_memory_bounds_what_runs_at_once(model):
    assert TorchEngine(model, memory=1)._rows_that_fit(10, 10) == 1
    few, many = (TorchEngine(model, memory=bytes)._rows_that_fit(10, 10) for bytes in (200_000, 800_000))
    assert 1 < few < many < 64
    assert TorchEngine(model)._rows_that_fit(10, 10) == 64
    assert TorchEngine(model, memory=800_000)._rows_that_fit(10, 40, scored=40) < many


def test_two_windows_of_the_same_text_get_different_samples(model):
    generator = open_generator(model.folder, Sampling(), "torch", window_length=60)
    context = np.arange(20, dtype=np.int32)
    seeds = [request_seed(0, window, 20) for window in "aba"]
    a, b, again = (drawn.tokens.tolist() for drawn in generator.sample([context] * 3, [40] * 3, seeds))
    assert a == again != b


def test_samples_are_the_same_in_whatever_chunks_they_are_drawn(model):
    prompts, lengths, seeds = requests(3)
    engine = TorchEngine(model)
    whole = engine.sample(prompts, lengths, seeds, Sampling(), 7)
    chunks = [engine.sample(prompts, lengths, [seed + 3 for seed in seeds], Sampling(), 4)[1].tokens.tolist()]
    assert chunks == [whole[1].tokens[3:].tolist()]


def test_logits_that_are_no_numbers_are_named(model):
    engine = TorchEngine(model)
    with torch.no_grad():
        engine.network.transformer.ln_f.weight.fill_(torch.nan)
    with pytest.raises(UserError, match="its logits are not finite numbers"):
        engine.sample([np.array([1], np.int32)], [2], [0], Sampling(), 1)
    with pytest.raises(UserError, match="its logits are not finite numbers"):
        engine.log_prob([np.array([1], np.int32)], [np.array([1], np.int32)])


def test_nothing_asked_for_is_nothing_done(model):
    engine = TorchEngine(model)
    assert engine.sample([], [], [], Sampling(), 3) == []
    assert engine.log_prob([], []).shape == (0,)
