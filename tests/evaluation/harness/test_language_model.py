"""The joint model as the harness sees it, against enumeration, and against the harness's own model of a folder."""

import itertools
from collections import Counter

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from pipeline.runtime.errors import UserError
from training.energy.folder import open_energy_model

pytest.importorskip("lm_eval", reason="lm-evaluation-harness is not installed: pip install 'residual-ebm[harness]'")
from lm_eval.api.instance import Instance
from lm_eval.api.registry import get_model

from evaluation.harness.language_model import ResidualEnergyModel

pytestmark = pytest.mark.usefixtures("one_thread")
START = 4


def opened(world, energy: str | None = "energy", **settings) -> ResidualEnergyModel:
    name = None if energy is None else f"{world.folder}/{energy}"
    return ResidualEnergyModel(f"{world.folder}/lm0", name, **settings)


def requests(kind: str, *arguments: tuple) -> list[Instance]:
    return [Instance(kind, {}, given, 0, ("letters", number, 1)) for number, given in enumerate(arguments)]


def ids(text: str) -> list[int]:
    return ["abcd".index(letter) for letter in text]


@torch.no_grad()
def enumerated(world, prompt: list[int], length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All texts of a length after a prompt: their ids, log P_phi, and log P of the joint model."""
    texts = torch.tensor(list(itertools.product(range(5), repeat=length)))
    whole = torch.cat([torch.tensor([prompt]).expand(len(texts), -1), texts], 1)
    lm = AutoModelForCausalLM.from_pretrained(world.folder / "lm0").eval()
    steps = lm(whole[:, :-1]).logits.double().log_softmax(-1).gather(2, whole[:, 1:, None])[:, -length:, 0]
    energy = open_energy_model(str(world.folder / "energy")).load()
    log_p = steps.sum(1).numpy()
    joint = log_p - energy(whole[:, int(prompt[0] == START) :]).double().numpy()
    return texts.numpy(), log_p, joint - np.logaddexp.reduce(joint)


def exact(world, prompt: list[int], completion: str) -> float:
    texts, _, joint = enumerated(world, prompt, len(completion))
    return float(joint[(texts == ids(completion)).all(1)][0])


PAIRS = [("ab", "cda"), ("ab", "ccc"), ("dc", "bb"), ("cab", "d"), ("", "abc"), ("ddd", "aba")]


def prompts(always: bool) -> list[list[int]]:
    return [[START] * (always or not context) + ids(context) for context, _ in PAIRS]


@pytest.mark.parametrize("always", [False, True])
def test_bounds_are_about_the_exact_log_likelihood_and_close_as_samples_grow(world, always):
    wanted = np.array([exact(world, prompt, text) for prompt, (_, text) in zip(prompts(always), PAIRS, strict=True)])
    asked, gaps, errors = requests("loglikelihood", *PAIRS), {}, {}
    for samples in (32, 4000):
        found = {}
        for bound in ("lower", "upper"):
            model = opened(world, samples=samples, bound=bound, add_bos_token=always)
            found[bound] = np.array([log_p for log_p, _ in model.loglikelihood(asked)])
        gaps[samples] = (found["upper"] - found["lower"]).mean()
        errors[samples] = (found["lower"] - wanted).mean()
    assert 0 < gaps[4000] < gaps[32] / 20
    assert abs(errors[4000]) < 0.03
    said = model.get_model_info()["residual_ebm"]["likelihoods"]
    assert said["gap_mean"] == pytest.approx(gaps[4000])
    assert (said["passages"], said["contexts"]) == (6, 5)  # ab is followed by three letters twice
    assert 1 < said["effective_samples_least"] <= said["effective_samples_median"] <= 4000


def test_the_lower_bound_is_below_what_is_exact_on_average_over_seeds(world):
    """With 16 samples, over 200 seeds: the mean of the lower bounds is below, that of the upper ones above."""
    wanted, found = exact(world, ids("ab"), "cda"), {"lower": [], "upper": []}
    first = opened(world, samples=16)
    for seed in range(200):
        for bound, values in found.items():
            model = ResidualEnergyModel(first.pair, samples=16, seed=seed, bound=bound)
            values.append(model.loglikelihood(requests("loglikelihood", ("ab", "cda")))[0][0])
    errors = {bound: np.std(values) / len(values) ** 0.5 for bound, values in found.items()}
    assert np.mean(found["lower"]) < wanted + 2 * errors["lower"]
    assert np.mean(found["upper"]) > wanted - 2 * errors["upper"]


def test_greedy_is_what_nothing_that_was_drawn_surpasses(world):
    """With enough samples everything is drawn: of all completions exactly the joint model's likeliest is."""
    model, alone = opened(world, samples=4000), opened(world, energy=None)
    texts, _, joint = enumerated(world, ids("ab"), 2)
    letters = [number for number, text in enumerate(texts) if START not in text]
    asked = requests(
        "loglikelihood", *(("ab", "".join("abcd"[token] for token in texts[number])) for number in letters)
    )
    greedy = [number for number, (_, is_greedy) in zip(letters, model.loglikelihood(asked), strict=True) if is_greedy]
    assert greedy == [number for number in letters if number == joint.argmax()]
    steps = enumerated(world, ids("ab"), 1)[1].argmax()
    then = enumerated(world, [*ids("ab"), int(steps)], 1)[1].argmax()
    written = [number for number, (_, is_greedy) in zip(letters, alone.loglikelihood(asked), strict=True) if is_greedy]
    assert written == [number for number in letters if texts[number].tolist() == [steps, then]]


def test_a_constant_energy_changes_nothing(world):
    alone, constant = opened(world, energy=None), opened(world, energy="constant", samples=8)
    asked = requests("loglikelihood", *PAIRS)
    for (base, _), (joint, _) in zip(alone.loglikelihood(asked), constant.loglikelihood(asked), strict=True):
        assert joint == pytest.approx(base, abs=1e-9)


@pytest.mark.parametrize("always", [False, True])
def test_without_an_energy_it_is_the_harness_own_model_of_the_folder(world, always):
    pytest.importorskip("accelerate")
    theirs = get_model("hf")(
        pretrained=f"{world.folder}/lm0", device="cpu", dtype="float32", max_length=7, add_bos_token=always or None
    )
    ours = opened(world, energy=None, add_bos_token=always)
    assert ours.max_length == theirs.max_length == 7
    pairs = [*PAIRS, ("ab", "a" * 5), ("a ", "b")]
    if not always:
        pairs += [
            ("abcdabcdabcd", "bca"),
            ("abcdab", "bc"),
            ("ab", "a" * 6),
        ]  # cut at the left: where it always starts, it still does
    asked = requests("loglikelihood", *pairs)
    found, wanted = ours.loglikelihood(asked), theirs.loglikelihood(asked, disable_tqdm=True)
    assert [log_p for log_p, _ in found] == pytest.approx([log_p for log_p, _ in wanted], abs=1e-4)
    assert [greedy for _, greedy in found] == [greedy for _, greedy in wanted]
    if not always:
        texts = requests("loglikelihood_rolling", ("abcdabcdabcdabcddd",), ("a",), ("abcdabc",), ("abcdabcd",))
        wanted = theirs.loglikelihood_rolling(texts, disable_tqdm=True)
        assert ours.loglikelihood_rolling(texts) == pytest.approx(wanted, abs=1e-4)


def test_a_long_text_is_the_sum_of_its_windows(world):
    model = opened(world, samples=4000, window=5, stride=2)
    (found,) = model.loglikelihood_rolling(requests("loglikelihood_rolling", ("abcda",)))
    parts = [([START], "ab"), ([0, 1], "cd"), ([0, 1, 2, 3], "a")]
    wanted = sum(exact(world, prompt, text) for prompt, text in parts)
    assert found == pytest.approx(wanted, abs=0.05)


def test_what_is_asked_beside_and_in_which_order_changes_nothing(world):
    alone = [opened(world, samples=20).loglikelihood(requests("loglikelihood", pair))[0] for pair in PAIRS]
    together = opened(world, samples=20).loglikelihood(requests("loglikelihood", *PAIRS[::-1]))[::-1]
    assert [log_p for log_p, _ in together] == pytest.approx([log_p for log_p, _ in alone], abs=1e-5)
    other = opened(world, samples=20, seed=1).loglikelihood(requests("loglikelihood", *PAIRS))
    assert all(one != two for (one, _), (two, _) in zip(other, together, strict=True))
    rule = {"until": ["d"], "max_gen_toks": 3}
    asked = requests("generate_until", *[("ab", rule)] * 30)
    first, again = (opened(world, samples=20).generate_until(asked) for _ in range(2))
    assert first == again
    assert len(set(first)) > 1  # who asks again is not told the same
    assert opened(world, samples=20, seed=1).generate_until(asked) != first


def distance(one: dict[str, float], two: dict[str, float]) -> float:
    return sum(abs(one.get(text, 0) - two.get(text, 0)) for text in one.keys() | two.keys()) / 2


def cut_distribution(texts: np.ndarray, log_p: np.ndarray, stop: str) -> dict[str, float]:
    found: Counter = Counter()
    for text, value in zip(texts.tolist(), np.exp(log_p - np.logaddexp.reduce(log_p)).tolist(), strict=True):
        written = "".join("abcd"[token] for token in itertools.takewhile(lambda token: token != START, text))
        found[written.partition(stop)[0]] += value
    return dict(found)


def test_answers_come_as_often_as_the_joint_model_would_write_their_beginnings(world):
    """1,500 answers of one prompt: nearer to the joint model's than to the language model's, which has its own."""
    rule, count = {"until": ["d"], "max_gen_toks": 3}, 1500
    texts, log_p, joint = enumerated(world, ids("ab"), 3)
    wanted = {"joint": cut_distribution(texts, joint, "d"), "base": cut_distribution(texts, log_p, "d")}
    apart = distance(wanted["joint"], wanted["base"])
    for name, energy in (("joint", "energy"), ("base", None)):
        model = opened(world, energy=energy, samples=60, top_k=5)
        found = model.generate_until(requests("generate_until", *[("ab", rule)] * count))
        counts = {text: times / count for text, times in Counter(found).items()}
        other = "base" if name == "joint" else "joint"
        assert distance(counts, wanted[name]) < apart / 3 < distance(counts, wanted[other])
    assert model.get_model_info()["residual_ebm"]["answers"] == {"answers": count, "shortened": 0}


def test_what_is_too_long_is_cut_and_said(world):
    model = opened(world, samples=4)
    model.loglikelihood(requests("loglikelihood", ("abcdabcdabcd", "bca"), ("ab", "cda")))
    model.generate_until(requests("generate_until", ("abcdabcdabcd", {"until": [], "max_gen_toks": 100})))
    said = model.get_model_info()["residual_ebm"]
    assert (said["cut_prompts"], said["answers"]["shortened"]) == (2, 1)
    assert [line.rpartition(" ")[2] for line in said["warnings"][-2:]] == ["2", "1"]
    with pytest.raises(UserError, match="8 tokens, a window has 7: take a larger one, or a task of loglikelihood_roll"):
        model.loglikelihood(requests("loglikelihood", ("ab", "abcdabcd")))
    with pytest.raises(UserError, match="'': nothing of it is left where the tokens of its context end"):
        model.loglikelihood(requests("loglikelihood", ("ab", "")))


def test_models_that_do_not_fit_are_refused(world, tmp_path):
    with pytest.raises(UserError, match="windows of 8 tokens and the one that precedes them do not fit"):
        opened(world, window=8)
    with pytest.raises(UserError, match="samples=1: at least 2"):
        opened(world, samples=1)
    with pytest.raises(UserError, match="device=tpu: the models are on c"):
        opened(world, device="tpu")
    with pytest.raises(UserError, match="bound=middle: one of lower, upper"):
        opened(world, bound="middle")


def test_the_harness_makes_it_from_its_own_words(world):
    words = f"generator={world.folder}/lm0,energy={world.folder}/energy,samples=8,seed=3,window=5"
    model = get_model("residual-ebm").create_from_arg_string(words, {"batch_size": 1, "device": None})
    assert (model.samples, model.seed, model.pair.window, model.always_start) == (8, 3, 5, False)
