"""Energies by context, against the rows of the stores themselves."""

import numpy as np
import pytest

from evaluation.joint.contexts import contexts_of, open_stores
from pipeline.runtime.errors import UserError
from tests.helpers.world import CONTEXT, SAMPLES, WINDOW


def test_every_context_has_its_real_window_and_its_samples_in_order(world):
    """Also where a window's samples are in several shards, as here: 250 to a row."""
    samples, scored = open_stores(world.samples, world.energies)
    rows = scored.take(range(len(scored))).to_pylist()
    known = {(row["window_id"], row["sample"]): row for row in rows}
    found = list(contexts_of(samples, scored))
    assert sum(map(len, found)) == len({row["window_id"] for row in rows}) == 30
    for contexts in found:
        assert contexts.scores.shape == (len(contexts), SAMPLES)
        assert (contexts.context_lengths == CONTEXT).all()
        assert (contexts.tokens == WINDOW - CONTEXT).all()
        for place, name in enumerate(contexts.window_ids):
            assert contexts.energy[place] == known[name, -1]["energy"]
            assert contexts.log_p[place] == known[name, -1]["log_p"]
            assert contexts.scores[place].tolist() == [-known[name, sample]["energy"] for sample in range(SAMPLES)]


def test_fewer_samples_are_the_first_ones(world):
    samples, scored = open_stores(world.samples, world.energies)
    whole, some = (next(contexts_of(samples, scored, count)) for count in (None, 7))
    assert np.array_equal(some.scores, whole.scores[:, :7])
    for count in (1, SAMPLES + 1):
        with pytest.raises(UserError, match=f"--samples {count}: between 2 and the {SAMPLES}"):
            next(contexts_of(samples, scored, count))


def test_energies_of_other_samples_are_refused(world):
    other = world.mine("few", f"--context_lengths {CONTEXT} --negatives 2 --seed 3")
    with pytest.raises(UserError, match="the energies of another store"):
        open_stores(other, world.energies)
    with pytest.raises(UserError, match=r"python evaluation/score\.py --energy MODEL --store"):
        open_stores(other, f"{other}-nowhere")
