"""The ranks of a run, on a real launch of two."""

import sys
from pathlib import Path

import pytest
import torch

from pipeline.runtime.errors import UserError
from tests.helpers.commands import ROOT, free_port
from tests.helpers.processes import run_group
from training.loop import ranks
from training.loop.ranks import Place

SCRIPT = f"""
import os, sys
sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from pipeline.runtime.errors import UserError
from training.loop import ranks

def work():
    return {{"rank": ranks.rank(), "process": os.getpid()}}

def refuse():
    raise UserError("--flag: not this one: take another")

def main():
    ranks.start()
    notes = Path(sys.argv[1], f"rank-{{ranks.rank()}}")
    notes.write_text(str(ranks.first_does(work)))
    ranks.wait()
    try:
        ranks.first_does(refuse)
    except UserError as error:
        notes.write_text(f"{{notes.read_text()}}\\n{{type(error).__name__}}: {{error}}")
        raise

ranks.exit_all_with(main)
"""


@pytest.mark.slow
def test_what_the_first_rank_finds_or_refuses_is_everybodys(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.replace("sys.argv[1]", repr(str(tmp_path))))
    launcher = [sys.executable, "-m", "deepspeed.launcher.runner", "--num_accelerators", "2"]
    ended = run_group([*launcher, "--master_port", str(free_port()), str(script)])
    assert ended.returncode != 0
    first, second = (Path(tmp_path, f"rank-{rank}").read_text().splitlines() for rank in (0, 1))
    assert first[0] == second[0]  # one process did it, both know what came of it
    assert first[0].startswith("{'rank': 0, ")
    assert first[1] == "UserError: --flag: not this one: take another"
    assert second[1] == "FirstRankError: --flag: not this one: take another"
    said = [line for line in ended.stderr.splitlines() if "--flag: not this one" in line]
    assert said == ["error: --flag: not this one: take another"]


def test_a_process_alone_is_the_first(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)

    def refuse() -> None:
        raise UserError("no")

    assert (ranks.rank(), ranks.ranks(), ranks.is_first()) == (0, 1, True)
    assert ranks.first_does(lambda: 7) == 7
    assert ranks.disks_do(lambda: 8) == 8
    for does in (ranks.first_does, ranks.disks_do):
        with pytest.raises(UserError, match="no"):
            does(refuse)


DEEPSPEED = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "LOCAL_SIZE": "2",
    "MASTER_ADDR": "a",
    "MASTER_PORT": "9",
}
TORCHRUN = DEEPSPEED | {"LOCAL_WORLD_SIZE": "2"}
del TORCHRUN["LOCAL_SIZE"]
# What srun gives the fourth task of `srun --nodes=2 --ntasks=5`, as far as it matters.
SRUN = {
    "SLURM_PROCID": "3",
    "SLURM_NTASKS": "5",
    "SLURM_STEP_NUM_TASKS": "5",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "1",
    "SLURM_TASKS_PER_NODE": "3,2",
    "SLURM_JOB_NODELIST": "gpu[017-018]",
    "SLURM_JOB_ID": "4711",
    "SLURM_STEP_ID": "2",
}


@pytest.mark.parametrize(
    ("environment", "place"),
    [
        ({}, Place()),
        ({"RANK": "0", "WORLD_SIZE": "1"}, Place()),
        (DEEPSPEED, Place(3, 4, 1, 2, "a", 9)),
        (TORCHRUN, Place(3, 4, 1, 2, "a", 9)),
        (SRUN, Place(3, 5, 0, 2, "gpu017", 10_000 + (4711 * 31 + 2) % 20_000)),
        (SRUN | {"MASTER_ADDR": "head", "MASTER_PORT": "7"}, Place(3, 5, 0, 2, "head", 7)),
        (SRUN | DEEPSPEED, Place(3, 4, 1, 2, "a", 9)),  # deepspeed, or torchrun, in a task of srun's
        (
            {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_LOCALID": "1", "SLURM_NODELIST": "n1"},
            Place(1, 2, 1, 2, "n1", 10_000),
        ),
        # A batch script is one process, though its job has tasks; a shell of salloc's is no task either.
        ({"ENVIRONMENT": "BATCH", "SLURM_PROCID": "0", "SLURM_NTASKS": "5", "SLURM_JOB_NODELIST": "n1"}, Place()),
        ({"SLURM_NTASKS": "5", "SLURM_JOB_NODELIST": "n1"}, Place()),
        (SRUN | {"ENVIRONMENT": "BATCH"}, Place(3, 5, 0, 2, "gpu017", 10_000 + (4711 * 31 + 2) % 20_000)),
    ],
)
def test_a_process_finds_its_place_in_what_its_launcher_says(environment, place):
    assert ranks.place_of(environment) == place


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "a"}, "MASTER_PORT: not set, though WORLD_SIZE is 2"),
        ({"RANK": "first", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1"}, "nothing sensible .*first"),
        ({"SLURM_PROCID": "1", "SLURM_NTASKS": "2"}, "SLURM_JOB_NODELIST: not set"),
    ],
)
def test_variables_that_do_not_suffice_are_named(environment, message):
    with pytest.raises(UserError, match=message):
        ranks.place_of(environment)


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("node1", "node1"),
        ("node1,node2", "node1"),
        ("node[003-010,12],other", "node003"),
        ("node[7,9]", "node7"),
        ("rack[2-3]-node[01-16]", "rack2-node01"),
        ("a-b.example.org,c[1-2]", "a-b.example.org"),
    ],
)
def test_the_first_of_slurms_nodes(nodes, first):
    assert ranks.first_node(nodes) == first


def test_slurms_tasks_of_each_node():
    assert ranks.tasks_of_nodes("4(x2),1") == [4, 4, 1]
    assert ranks.tasks_of_nodes("8") == [8]


def test_deepspeed_is_told_the_gpu_that_a_process_sees():
    """Where srun shows each task one GPU alone, that is number 0, whatever the task's number on its machine."""
    place = Place(3, 4, 1, 2, "a", 9)
    assert ranks.variables(place, torch.device("cpu")) == DEEPSPEED
    assert ranks.variables(place, torch.device("cuda", 0))["LOCAL_RANK"] == "0"
