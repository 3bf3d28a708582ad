"""Kills a mining run at twenty random moments, with one worker and with two: the store of a run never killed."""

import pytest

from pipeline import mine_negatives
from pipeline.verify_store import verify
from tests.helpers.commands import command, shard_bytes
from tests.helpers.mining import arguments
from tests.helpers.processes import storm, timed
from tests.pipeline.test_mine_negatives import check_rows, generator, windows  # noqa: F401


@pytest.mark.parametrize("workers", [1, 2])
def test_twenty_kills_change_no_row(windows, generator, tmp_path, workers):  # noqa: F811
    flags = f"--negatives 400 --samples_per_row 50 --direct_num_workers {workers}"
    assert (
        mine_negatives.main(arguments(windows, generator, tmp_path / "whole", "--negatives 400 --samples_per_row 50"))
        == 0
    )
    job = command("pipeline/mine_negatives.py", *arguments(windows, generator, tmp_path / "timed", flags))
    killed = command("pipeline/mine_negatives.py", *arguments(windows, generator, tmp_path / "killed", flags))
    storm(killed, kills=20, seconds=timed(job), seed=workers)
    assert shard_bytes(str(tmp_path / "killed")) == shard_bytes(str(tmp_path / "whole"))
    assert verify(str(tmp_path / "killed")) == []


def test_kills_leave_every_window_once_with_vllm(windows, generator, tmp_path):  # noqa: F811
    """vLLM promises no bytes, so rows are counted and checked against plain transformers."""
    job = command("pipeline/mine_negatives.py", *arguments(windows, generator, tmp_path / "timed", "--engine vllm"))
    killed = command("pipeline/mine_negatives.py", *arguments(windows, generator, tmp_path / "killed", "--engine vllm"))
    storm(killed, kills=5, seconds=timed(job), seed=0)
    check_rows(str(tmp_path / "killed"), windows, generator, negatives=1, sample=20)
    assert verify(str(tmp_path / "killed")) == []
