"""Ranks that torchrun and Slurm's srun start: those of a training on one rank, to rounding."""

import os
import shutil
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch

from pipeline.runtime import files
from pipeline.stores.reader import Store
from tests.helpers.commands import free_port, serving
from tests.helpers.processes import await_sign, run_group, started
from tests.helpers.trainings import losses, train, train_command
from tests.training.loop.test_mirror import TRAINED
from training import open_energy_model
from training.loop import checkpoints

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def alone(negatives, tmp_path_factory) -> Path:
    """An energy model that one rank has trained."""
    output = tmp_path_factory.mktemp("alone") / "model"
    ended = train(negatives, output, script="train_energy")
    assert ended.returncode == 0, ended.stderr
    return output


def assert_same_model(output: str, alone: Path, windows: Store) -> None:
    """By its energies: weights whose gradient is zero, as that of keys' biases is, go where rounding takes them."""
    ids = torch.tensor(windows.take(range(50), ["tokens"])["tokens"].to_pylist())
    with torch.no_grad():
        found, expected = (open_energy_model(str(folder)).load()(ids) for folder in (output, alone))
    assert torch.allclose(found, expected, atol=1e-4)


def test_torchrun_starts_the_ranks_of_one_run(negatives, alone, tmp_path):
    output = tmp_path / "model"
    _, script, *flags = train_command(negatives, output, script="train_energy", stage=2)
    torchrun = [str(Path(sys.executable).parent / "torchrun"), "--nproc_per_node=2", f"--master_port={free_port()}"]
    ended = run_group([*torchrun, script, *flags])
    assert ended.returncode == 0, ended.stderr
    assert "on 2 ranks" in ended.stdout
    assert losses(output) == pytest.approx(losses(alone), abs=1e-5)
    assert_same_model(str(output), alone, negatives.valid)


def test_srun_starts_ranks_on_machines_that_share_a_bucket_alone_and_one_rank_continues_them(
    negatives, alone, tmp_path, monkeypatch
):
    """Two processes with the variables of two nodes of Slurm's, which is not here, and a disk each."""
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_SIZE", "MASTER_ADDR"):  # left by trainings in this process
        monkeypatch.delenv(name, raising=False)
    port = free_port()
    monkeypatch.setenv("CLOUD_STORAGE_EMULATOR_ENDPOINT", f"http://localhost:{port}")
    server = [sys.executable, "-m", "gcp_storage_emulator", "start", "--in-memory", "--default-bucket=models"]
    output = "gs://anonymous@models/books/energy"
    _, _, *flags = train_command(negatives, output, "--save_every 6", script="train_energy", stage=2)
    code = TRAINED.replace("train_lm", "train_energy")
    disks = [tmp_path / f"disk-{node}" for node in (0, 1)]
    commands = [[sys.executable, "-c", code, str(disk), *flags] for disk in disks]
    job = {"SLURM_NTASKS": "2", "SLURM_LOCALID": "0", "SLURM_JOB_NODELIST": "localhost,elsewhere"}
    job |= {"SLURM_TASKS_PER_NODE": "1(x2)", "SLURM_JOB_ID": "17", "MASTER_PORT": str(free_port())}
    checkpoint = f"{output}/checkpoints/step-000006"
    with serving([*server, f"--port={port}"], port):
        with ExitStack() as ends:  # by SIGKILL
            for node, (disk, command) in enumerate(zip(disks, commands, strict=True)):
                disk.mkdir()
                task = os.environ | job | {"SLURM_PROCID": str(node), "SLURM_NODEID": str(node)}
                said = ends.enter_context(open(tmp_path / f"said-{node}", "wb"))
                process = ends.enter_context(started(command, env=task, stdout=said, stderr=said))
            try:
                await_sign(process, lambda: files.is_file(f"{checkpoint}/whole.json"))
            except AssertionError as error:
                words = [(tmp_path / f"said-{node}").read_text()[-2000:] for node in (0, 1)]
                raise AssertionError(words) from error
        assert {name for name in files.names_in(checkpoint) if name.startswith("zero")} == {
            f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt" for rank in (0, 1)
        }
        for disk in disks:
            assert list(disk.iterdir())
            shutil.rmtree(disk)
        disks[1].mkdir()
        while (ended := run_group(commands[1])).returncode == 2 and "if it died" in ended.stderr:
            pass  # the killed run's lease
        assert ended.returncode == 0, ended.stderr
        assert "on 1 ranks" in ended.stdout
        assert ", from step " in ended.stdout
        assert checkpoints.is_finished(output)
        assert_same_model(output, alone, negatives.valid)
