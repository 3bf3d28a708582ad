"""Both engines against enumeration: a model of three tokens has 81 completions of four, and all can be counted."""

import itertools
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from scipy import stats
from transformers import GPT2Config, GPT2LMHeadModel

from pipeline.engines import torch_engine
from pipeline.engines.choice import ENGINES
from pipeline.engines.generator import Engine, Generator, open_generator
from pipeline.engines.sampling import Sampling, request_seed
from pipeline.models.language_model import open_language_model
from pipeline.models.model_folder import quiet
from pipeline.runtime.errors import UserError

pytestmark = pytest.mark.usefixtures("one_thread")

EOS = 2
ALL = np.array(list(itertools.product(range(3), repeat=4)), np.int32)
DIRECTIONS = ("left_to_right", "right_to_left")
CONTEXTS = {"empty": [], "short": [1, 0], "with EOS": [0, 2, 1, 1, 2]}
RULES = {
    "temperature": Sampling(),
    "top_k": Sampling("top_k", top_k=2),
    "nucleus": Sampling("nucleus", top_p=0.8),
}
MARKED_ENGINES = [pytest.param(name, marks=pytest.mark.vllm if name == "vllm" else ()) for name in ENGINES]
SAMPLES = {"torch": 20_000, "vllm": 5_000}


def save_model(folder, vocabulary=3, seed=8, direction=None, **sizes) -> str:
    """A GPT-2 with large random weights: its distributions are far from uniform, and change from step to step."""
    torch.manual_seed(seed)
    sizes = {"n_embd": 32, "n_head": 1, "n_layer": 2, "n_positions": 16, "initializer_range": 0.15} | sizes
    ids = {"bos_token_id": vocabulary - 1, "eos_token_id": vocabulary - 1}
    extra = {} if direction is None else {"direction": direction}
    with quiet():
        GPT2LMHeadModel(GPT2Config(vocab_size=vocabulary, **ids, **sizes, **extra)).save_pretrained(folder)
    return str(folder)


def steps(folder: str, context: list[int], direction: str) -> np.ndarray:
    """The distribution of each token of each of the 81 completions, in the model's order: shape (81, 4, 3)."""
    turn = -1 if direction == "right_to_left" else 1
    ids = np.array([[EOS, *context[::turn], *completion[::turn]] for completion in ALL])
    with torch.no_grad(), quiet():
        logits = GPT2LMHeadModel.from_pretrained(folder).eval()(torch.tensor(ids)).logits
    return torch.softmax(logits[:, -5:-1].double(), -1).numpy()


def kept(p: np.ndarray, sampling: Sampling) -> np.ndarray:
    """What the rule leaves of one step's distribution."""
    best = sorted(range(3), key=lambda token: -p[token])
    if sampling.rule == "top_k":
        best = best[: sampling.top_k]
    elif sampling.rule == "nucleus":
        best = best[: next(size for size in (1, 2, 3) if p[best[:size]].sum() >= sampling.top_p or size == 3)]
    return np.array([p[token] if token in best else 0.0 for token in range(3)]) / p[best].sum()


def exact(folder: str, context: list[int], direction: str, sampling: Sampling) -> np.ndarray:
    """The probability of each of the 81 completions."""
    turn = -1 if direction == "right_to_left" else 1
    distributions = np.apply_along_axis(kept, -1, steps(folder, context, direction), sampling)
    return np.take_along_axis(distributions, ALL[:, ::turn, None], -1)[..., 0].prod(-1)


def number_of(tokens: np.ndarray) -> np.ndarray:
    return tokens @ np.array([27, 9, 3, 1])


def fits(counts: np.ndarray, probabilities: np.ndarray) -> bool:
    """Chi-square, with the completions that are hardly expected in one cell."""
    expected = counts.sum() * probabilities / probabilities.sum()
    rare = expected < 5
    assert counts[probabilities == 0].sum() == 0
    cells = [np.append(values[~rare], values[rare].sum()) for values in (counts, expected)]
    observed, expected = (values[cells[1] > 0] for values in cells)
    return bool(stats.chisquare(observed, expected).pvalue > 1e-3)


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, str]:
    """The same weights once a direction."""
    folder = tmp_path_factory.mktemp("models")
    return {direction: save_model(folder / direction, direction=direction) for direction in DIRECTIONS}


@pytest.fixture(scope="module")
def generator_of(folders) -> Iterator[Callable[[str, str, str], Generator]]:
    """One engine for both directions, whose weights are the same, and for all rules that one start can follow."""
    engines: dict[tuple[str, bool], Engine] = {}
    patch = pytest.MonkeyPatch()
    patch.setitem(torch_engine.MOST_ROWS, "cpu", 1024)  # models as small as this one are quicker in large batches

    def make(name: str, direction: str, rule: str = "temperature") -> Generator:
        start = (name, name == "vllm" and rule == "nucleus")
        if start not in engines:
            opened = open_generator(folders["left_to_right"], RULES[rule], name, window_length=9)
            engines[start] = opened.engine
        return Generator(open_language_model(folders[direction]), engines[start], RULES[rule], 9)

    yield make
    patch.undo()
    for engine in engines.values():
        engine.close()


@pytest.mark.slow
@pytest.mark.parametrize("context", CONTEXTS.values(), ids=CONTEXTS)
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("engine", MARKED_ENGINES)
def test_all_probabilities_are_exact_and_add_up_to_one(generator_of, folders, engine, direction, context):
    log_p = generator_of(engine, direction).log_prob([np.array(context, np.int64)] * 81, list(ALL))
    assert log_p.dtype == np.float64
    assert np.exp(log_p).sum() == pytest.approx(1, abs=1e-5)
    expected = exact(folders[direction], context, direction, RULES["temperature"])
    np.testing.assert_allclose(log_p, np.log(expected), atol=1e-4)
    assert log_p.max() - log_p.min() > 4  # far from uniform: a mistake would show


@pytest.mark.parametrize("engine", MARKED_ENGINES)
def test_without_a_context_completions_follow_the_start_token(generator_of, folders, engine):
    (drawn,) = generator_of(engine, "left_to_right").sample([np.array([], np.int32)], [4], [1], n=SAMPLES[engine] // 2)
    assert fits(
        np.bincount(number_of(drawn.tokens), minlength=81),
        exact(folders["left_to_right"], [], "left_to_right", RULES["temperature"]),
    )


# The directions change fastest: vLLM starts once for nucleus sampling and once for all else.
@pytest.mark.slow
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("engine", MARKED_ENGINES)
def test_samples_come_as_often_as_they_should_with_their_exact_probabilities(
    generator_of, folders, engine, rule, direction
):
    generator = generator_of(engine, direction, rule)
    context = CONTEXTS["with EOS" if direction == "left_to_right" else "short"]
    p = exact(folders[direction], context, direction, RULES["temperature"])
    q = exact(folders[direction], context, direction, RULES[rule])
    # Half of them as requests of their own, half as the samples of one request.
    half = SAMPLES[engine] // 2
    seeds = [request_seed(5, f"window {number}", len(context)) for number in range(half)]
    alone = generator.sample([np.array(context)] * half, [4] * half, seeds)
    (together,) = generator.sample([np.array(context)], [4], [request_seed(6, "window", len(context))], n=half)
    assert together.tokens.shape == (half, 4)
    assert together.tokens.dtype == np.int32
    for tokens, log_p, log_q in (
        (together.tokens, together.log_p, together.log_q),
        tuple(np.concatenate([getattr(one, name) for one in alone]) for name in ("tokens", "log_p", "log_q")),
    ):
        numbers = number_of(tokens)
        assert fits(np.bincount(numbers, minlength=81), q)
        np.testing.assert_allclose(log_p, np.log(p[numbers]), atol=1e-4)
        np.testing.assert_allclose(log_q, np.log(q[numbers]), atol=1e-4)
        # EOS in the middle of a completion is a token as any other.
        for place in (0, 1, 2, 3):
            seen, expected = (tokens[:, place] == EOS).sum(), q[ALL[:, place] == EOS].sum()
            assert stats.binomtest(int(seen), half, min(1.0, expected)).pvalue > 1e-3


@pytest.fixture(scope="module")
def torch_generator(folders) -> Generator:
    return open_generator(folders["left_to_right"], Sampling(), "torch", window_length=9)


@pytest.mark.parametrize(
    ("context", "length", "message"),
    [
        ([0] * 6, 4, "a context of 6 and a completion of 4 tokens are more than the 9 of a window"),
        ([0, 3], 4, "a context has the ids 0 to 3, the model knows 0 to 2"),
        ([-1], 4, "a context has the ids -1 to -1"),
        ([0], 0, "a completion of 0 tokens: at least one is needed"),
    ],
)
def test_requests_that_cannot_be_met_are_refused_before_any_work(torch_generator, context, length, message):
    with pytest.raises(UserError, match=message):
        torch_generator.sample([np.array([0]), np.array(context)], [4, length], [0, 1])
    with pytest.raises(UserError, match=message):
        torch_generator.log_prob([np.array([0]), np.array(context)], [np.array([0]), np.zeros(length, np.int32)])


def test_completions_with_foreign_ids_are_refused(torch_generator):
    with pytest.raises(UserError, match="a completion has the ids 1 to 3"):
        torch_generator.log_prob([np.array([0])], [np.array([1, 3])])


def test_an_unknown_engine_and_windows_longer_than_the_model_are_refused(folders):
    with pytest.raises(UserError, match="--engine jax: not an engine, there are vllm, torch"):
        open_generator(folders["left_to_right"], Sampling(), "jax", window_length=9)
    for engine in ("torch", "vllm"):
        with pytest.raises(UserError, match=r"windows of 16 tokens .* 16 positions: make windows of at most 15"):
            open_generator(folders["left_to_right"], Sampling(), engine, window_length=16)
