"""What is computed without estimating, against the enumeration of a small world."""

import numpy as np
import pytest

from evaluation.joint.exact import completion_log_probs, last_token_log_probs, next_log_probs, open_base, windows_of
from evaluation.results.cache import ResultCache
from pipeline.runtime.errors import UserError
from pipeline.stores.reader import Store
from tests.helpers.world import CONTEXT, TEXTS, truth


def test_every_context_comes_once_however_many_rows_its_samples_have(world):
    samples = Store(world.samples)
    found = list(windows_of(samples))
    assert len(samples) > len(found) == len({name for name, _, _ in found}) == 30
    assert {length for _, _, length in found} == {CONTEXT}


def test_the_next_tokens_probabilities_are_the_language_models(world):
    base = open_base(f"{world.folder}/lm0", Store(world.samples))
    window = Store(str(world.folder / "windows"))[0]
    log_p, _, _ = truth(world)[window["window_id"]]
    found = next_log_probs(base, window["tokens"][:CONTEXT])
    exact = [np.exp(log_p[[text[0] == token for text in TEXTS]]).sum() for token in range(5)]
    assert np.exp(found[:5]) == pytest.approx(exact, rel=1e-5)


def test_the_last_token_is_normalised_over_the_vocabulary(world, tmp_path):
    cache = ResultCache(str(tmp_path / "kept.json"))
    given = (f"{world.folder}/energy", f"{world.folder}/lm0", Store(world.samples), 4, cache)
    found = last_token_log_probs(*given)
    assert len(found) == 4
    for name, (base, joint) in found.items():
        log_p, energy, place = truth(world)[name]
        same = [n for n, text in enumerate(TEXTS) if text[:2] == TEXTS[place][:2]]
        assert base == pytest.approx(log_p[place] - np.logaddexp.reduce(log_p[same]), abs=1e-4)
        weights = log_p - energy
        assert joint == pytest.approx(weights[place] - np.logaddexp.reduce(weights[same]), abs=1e-4)
    assert last_token_log_probs(*given) == found


def test_completions_have_the_log_probabilities_of_enumeration(world):
    found = {window: log_p for window, _, log_p in completion_log_probs(f"{world.folder}/lm0", Store(world.samples))}
    exact = {window: log_p[place] for window, (log_p, _, place) in truth(world).items()}
    assert found == pytest.approx(exact, rel=1e-5)


def test_a_model_that_reads_the_other_way_is_refused(backwards, generators):
    with pytest.raises(UserError, match=r"it reads left_to_right, the contexts of .* are read right_to_left"):
        open_base(generators["left_to_right"], backwards)
