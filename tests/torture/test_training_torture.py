"""Kills a training at many moments, on any ZeRO stage, and continues it on another number of ranks: one loss curve."""

from typing import NamedTuple

import pytest

from tests.helpers.commands import Stores
from tests.helpers.processes import storm, timed
from tests.helpers.trainings import kill_at_step, losses, train, train_command
from tests.training.conftest import generators, negatives  # noqa: F401


class Job(NamedTuple):
    """One of the two trainers with its data, and the losses of a run that nobody disturbs."""

    script: str
    stores: Stores
    losses: list[float]


@pytest.fixture(scope="module", params=["train_lm", "train_energy"])
def job(request, stores, negatives, tmp_path_factory) -> Job:  # noqa: F811
    data = stores if request.param == "train_lm" else negatives
    output = tmp_path_factory.mktemp("undisturbed") / "model"
    assert train(data, output, stage=0, script=request.param).returncode == 0
    return Job(request.param, data, losses(output))


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_every_stage_and_number_of_ranks_has_the_same_losses(job, tmp_path, stage, ranks):
    ended = train(job.stores, tmp_path / "model", ranks=ranks, stage=stage, script=job.script)
    assert ended.returncode == 0, ended.stderr
    assert losses(tmp_path / "model") == pytest.approx(job.losses, abs=1e-5)


@pytest.mark.parametrize(("before", "after", "step"), [(1, 1, 2), (2, 2, 10), (2, 1, 18), (1, 2, 10)])
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_a_killed_run_continues_on_any_number_of_ranks(job, tmp_path, stage, before, after, step):
    output, flags = tmp_path / "model", "--save_every 2"
    command = train_command(job.stores, output, flags, ranks=before, stage=stage, script=job.script)
    kill_at_step(command, output, step)
    ended = train(job.stores, output, flags, ranks=after, stage=stage, script=job.script)
    assert ended.returncode == 0, ended.stderr
    assert "from step" in ended.stdout
    assert losses(output) == pytest.approx(job.losses, abs=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_kills_at_random_moments_leave_nothing_half_done(job, tmp_path, seed):
    flags = "--save_every 1 --validate_every 1"
    whole, output = tmp_path / "whole", tmp_path / "model"
    seconds = timed(train_command(job.stores, whole, flags, stage=2, script=job.script))
    storm(train_command(job.stores, output, flags, stage=2, script=job.script), 8, seconds, seed)
    assert losses(output) == pytest.approx(job.losses, abs=1e-5)
    assert not list(output.rglob("*.tmp"))
