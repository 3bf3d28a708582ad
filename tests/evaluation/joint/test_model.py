"""The joint model, against the joint distribution itself."""

import numpy as np
import pytest
from scipy.stats import chisquare

from evaluation.joint.model import Draw, JointModel, resample
from pipeline.engines.sampling import Sampling, uniform
from pipeline.runtime.errors import UserError
from pipeline.stores.reader import Store
from tests.helpers.world import CONTEXT, TEXTS, truth


def fits(counts: np.ndarray, probabilities: np.ndarray) -> float:
    """The p-value of a chi-square test; what is expected fewer than five times is put together."""
    expected = probabilities * counts.sum()
    rare = expected < 5
    observed = np.append(counts[~rare], counts[rare].sum())
    wanted = np.append(expected[~rare], expected[rare].sum())
    kept = wanted > 0
    return float(chisquare(observed[kept], wanted[kept] * observed[kept].sum() / wanted[kept].sum()).pvalue)


@pytest.mark.parametrize(("samples", "joint"), [(2000, True), (1, False)])
def test_many_samples_give_the_joint_distribution_and_one_the_generators(world, samples, joint):
    """The generator's part, which is tested elsewhere, is played by exact draws; the choosing is ours."""
    log_p, energy, _ = next(iter(truth(world).values()))
    rng, repetitions = np.random.default_rng(0), 6000
    p = np.exp(log_p)
    target = np.exp(log_p - energy) if joint else p
    target /= target.sum()
    counts = np.zeros(125)
    for u in uniform(np.arange(repetitions, dtype=np.uint64), 1)[:, 0]:
        drawn = rng.choice(125, size=samples, p=p / p.sum())
        counts[drawn[resample(-energy[drawn], float(u))]] += 1
    assert fits(counts, target) > 0.001
    if joint:
        assert fits(counts, p / p.sum()) < 1e-6  # the energy matters


def open_joint(world, rule: str = "temperature") -> JointModel:
    return JointModel(f"{world.folder}/lm0", f"{world.folder}/energy", Sampling(rule, top_k=2), window_length=5)


def first_window(world) -> np.ndarray:
    return Store(str(world.folder / "windows"))[0]["tokens"]


@pytest.mark.slow
def test_real_completions_are_weighed_by_their_energies(world):
    """With 40 samples a context, drawn by the real generator: the average over contexts' seeds is nearer the joint."""
    model, context = open_joint(world), first_window(world)[:CONTEXT]
    log_p, energy, _ = truth(world)[Store(str(world.folder / "windows"))[0]["window_id"]]
    drawn = model.complete([context] * 1000, [3] * 1000, [1000 * n for n in range(1000)], samples=40)
    chosen = [TEXTS.index(tuple(one.completions[one.chosen].tolist())) for one in drawn]
    for one in drawn[:5]:
        places = [TEXTS.index(tuple(text)) for text in one.completions.tolist()]
        assert one.energies == pytest.approx(energy[places], abs=1e-4)
        assert one.energies[one.worst] == one.energies.max()
        p = np.exp(-energy[places]) / np.exp(-energy[places]).sum()
        assert one.effective_samples == pytest.approx(1 / np.square(p).sum(), rel=1e-3)
    joint = np.exp(log_p - energy) / np.exp(log_p - energy).sum()
    base = np.exp(log_p) / np.exp(log_p).sum()
    expected = [(distribution * energy).sum() for distribution in (joint, base)]
    found = energy[chosen].mean()
    assert abs(found - expected[0]) < abs(expected[1] - expected[0]) / 4


def test_top_k_leaves_out_what_it_leaves_out(world):
    model, context = open_joint(world, "top_k"), first_window(world)[:CONTEXT]
    (drawn,) = model.complete([context], [3], [5], samples=200)
    firsts = {text[0] for text in drawn.completions.tolist()}
    assert len(firsts) <= 2


def test_nucleus_leaves_out_what_it_leaves_out(world):
    """The least set of tokens whose probability exceeds top_p, at the first position, from the model itself."""
    context = first_window(world)[:CONTEXT]
    model = JointModel(f"{world.folder}/lm0", f"{world.folder}/energy", Sampling("nucleus", top_p=0.5), window_length=5)
    log_p = truth(world)[Store(str(world.folder / "windows"))[0]["window_id"]][0]
    first = np.array([np.exp(log_p[[text[0] == token for text in TEXTS]]).sum() for token in range(5)])
    order = np.argsort(-first)
    allowed = order[: 1 + int(np.searchsorted(np.cumsum(first[order]), 0.5))]
    assert len(allowed) < 5
    (drawn,) = model.complete([context], [3], [5], samples=400)
    assert {text[0] for text in drawn.completions.tolist()} == set(allowed.tolist())


@pytest.mark.parametrize("length", [1, 2, 3])
def test_token_by_token_the_candidates_weigh_what_the_joint_distribution_says(world, length):
    model, tokens = open_joint(world), first_window(world)
    log_p, energy, place = truth(world)[Store(str(world.folder / "windows"))[0]["window_id"]]
    known = 3 - length
    found, weights = model.next_token(tokens[: CONTEXT + known], length, seed=3, words=5, completions=3000)
    assert sorted(found.tolist()) == list(range(5))
    prefix = TEXTS[place][:known]
    joint = log_p - energy
    exact = np.array(
        [
            np.logaddexp.reduce(
                [w for w, text in zip(joint, TEXTS, strict=True) if text[: known + 1] == (*prefix, token)]
            )
            for token in found
        ]
    )
    exact, weights = exact - np.logaddexp.reduce(exact), weights - np.logaddexp.reduce(weights)
    assert np.exp(weights) == pytest.approx(np.exp(exact), abs=1e-5 if length == 1 else 0.02)


def test_a_completion_by_token_uses_the_best_few(world):
    model, context = open_joint(world), first_window(world)[:CONTEXT]
    greedy = model.complete_by_token(context, 3, seed=1, words=5, completions=50, top=1)
    again = model.complete_by_token(context, 3, seed=2, words=5, completions=50, top=1)
    assert greedy.shape == (3,)
    assert greedy[0] == again[0]
    tokens, weights = model.next_token(context, 3, seed=7, words=5, completions=2000)
    assert greedy[0] == tokens[weights.argmax()]


def test_text_in_text_out(world):
    model = JointModel(f"{world.folder}/lm0", f"{world.folder}/energy")
    found = model.generate("abca", samples=20, tokens=2, seed=1)
    assert found == model.generate("abca", samples=20, tokens=2, seed=1)
    assert set(found.replace("<|endoftext|>", "")) <= set("abcd")
    with pytest.raises(UserError, match="between 1 and the 7 of a window"):
        model.generate("abca", tokens=8)


def test_one_dominating_sample_is_worth_one():
    assert Draw(np.zeros((3, 1), np.int32), np.array([-800.0, 0.0, 5.0]), 0).effective_samples == pytest.approx(1)
    assert resample(np.array([-1e5, 0.0, -1e5]), 0.999) == 1
    assert resample(np.array([0.0, 0.0]), 1 - 2**-53) == 1
