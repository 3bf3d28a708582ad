"""Kills a training at many moments, on any ZeRO stage, and continues it on another number of ranks: one loss curve."""

import random
import subprocess

import pytest

from tests.killing import kill_after
from tests.training.launching import losses, train, train_command
from tests.training.test_train_lm import kill_at_step


@pytest.fixture(scope="module")
def undisturbed(stores, tmp_path_factory):
    output = tmp_path_factory.mktemp("undisturbed") / "model"
    assert train(stores, output, stage=0).returncode == 0
    return losses(output)


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_every_stage_and_number_of_ranks_has_the_same_losses(stores, undisturbed, tmp_path, stage, ranks):
    ended = train(stores, tmp_path / "model", ranks=ranks, stage=stage)
    assert ended.returncode == 0, ended.stderr
    assert losses(tmp_path / "model") == pytest.approx(undisturbed, abs=1e-5)


@pytest.mark.parametrize("step", [2, 10, 18])
@pytest.mark.parametrize(("before", "after"), [(1, 1), (2, 2), (2, 1), (1, 2)])
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_a_killed_run_continues_on_any_number_of_ranks(
    stores,
    undisturbed,
    tmp_path,
    stage,
    before,
    after,
    step,
):
    output, flags = tmp_path / "model", "--save_every 2"
    kill_at_step(train_command(stores, output, flags, ranks=before, stage=stage), output, step)
    ended = train(stores, output, flags, ranks=after, stage=stage)
    assert ended.returncode == 0, ended.stderr
    assert "from step" in ended.stdout
    assert losses(output) == pytest.approx(undisturbed, abs=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_kills_at_random_moments_leave_nothing_half_done(stores, undisturbed, tmp_path, seed):
    output, flags, moment = tmp_path / "model", "--save_every 1 --validate_every 1", random.Random(seed)
    for _ in range(8):
        kill_after(train_command(stores, output, flags, stage=2), moment.uniform(6, 14))
    ended = subprocess.run(train_command(stores, output, flags, stage=2), capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert losses(output) == pytest.approx(undisturbed, abs=1e-5)
    assert not list(output.rglob("*.tmp"))
