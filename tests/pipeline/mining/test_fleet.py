"""A fleet on one machine: Beam's own job service, and a pool of workers that are processes of their own."""

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from pipeline import mine_negatives
from pipeline.runtime import files, lock
from pipeline.runtime.errors import ResumableError, UserError
from pipeline.runtime.lock import renewing, sharing, writing
from pipeline.stores.manifest import read_manifest
from pipeline.verify_store import verify
from tests.helpers.commands import free_port, run, serving, shard_bytes
from tests.helpers.mining import arguments

# What every Python process of a pool of workers does first: the first to sample finds its device broken, and a file
# says that this has happened.
BROKEN_ONCE = """
import os
from pipeline.engines import torch_engine
real = torch_engine.TorchEngine._draw
def draw(self, *request):
    try:
        os.close(os.open(os.environ["BROKEN_ONCE"], os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return real(self, *request)
    raise RuntimeError("CUDA error: uncorrectable ECC error encountered")
torch_engine.TorchEngine._draw = draw
"""


@contextmanager
def fleet() -> Iterator[str]:
    """A job service and a pool of workers; Beam's options that use them."""
    job, pool = free_port(), free_port()
    services = [
        (["apache_beam.runners.portability.local_job_service_main", "--job_port", str(job)], job),
        (["apache_beam.runners.worker.worker_pool_main", "--service_port", str(pool)], pool),
    ]
    with ExitStack() as running:
        for words, port in services:
            running.enter_context(serving([sys.executable, "-m", *words], port))
        place = f"--runner PortableRunner --job_endpoint localhost:{job}"
        yield f"{place} --environment_type EXTERNAL --environment_config localhost:{pool}"


@pytest.fixture
def path(monkeypatch) -> None:
    """The pool starts its workers by the name `python`."""
    monkeypatch.setenv("PATH", f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}")


@pytest.mark.slow
@pytest.mark.usefixtures("path")
def test_a_pool_of_workers_makes_the_local_store(windows, generator, undisturbed, tmp_path, capsys):
    with fleet() as flags:
        given = arguments(windows, generator, tmp_path / "store", f"--negatives 2 {flags}")
        assert mine_negatives.main(given) == 0
    assert shard_bytes(str(tmp_path / "store")) == shard_bytes(undisturbed)
    assert verify(str(tmp_path / "store")) == []
    assert "job " in capsys.readouterr().out


def test_workers_keep_a_runs_lease_when_its_launcher_is_gone(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "LEASE", 1.5)
    monkeypatch.setattr(lock, "SETTLE", 0)
    store = str(tmp_path / "store")
    with renewing([store], "run-1"):  # a worker, whose launcher was killed
        time.sleep(2)  # longer than a lease
        for refused in (writing(store), sharing(store)):
            with pytest.raises(UserError, match=r"a worker of run run-1, process .* is writing it"), refused:
                pass
        with renewing([store], "run-1"):  # another worker of the same run
            pass
        with pytest.raises(ResumableError, match="has taken over from this run"), renewing([store], "run-2"):
            pass
    time.sleep(1.6)
    with writing(store, "run-3"):
        assert json.loads(files.read(str(tmp_path / ".store.lease")))["token"] == "run-3"
        with pytest.raises(ResumableError, match="has taken over from this run"), renewing([store], "run-1"):
            pass
    assert os.listdir(tmp_path) == []


def test_parts_in_a_bucket_share_it_and_whole_runs_wait(monkeypatch):
    monkeypatch.setattr(lock, "SETTLE", 0)
    store = "memory://fleet/store"
    refused = pytest.raises(UserError, match=r"a part, process .* is writing it")
    with sharing(store), sharing(store), refused, writing(store):
        pass
    with writing(store), pytest.raises(UserError, match="is writing it"), sharing(store):
        pass
    assert files.names_in("memory://fleet") == []


@pytest.mark.slow
@pytest.mark.usefixtures("path")
def test_a_worker_whose_device_breaks_ends_and_no_shard_is_blamed(
    windows, generator, undisturbed, tmp_path, monkeypatch
):
    """Beam's job service does not give a dead worker's bundle to another one, as Dataflow does: the next run has it."""
    (tmp_path / "patch").mkdir()
    (tmp_path / "patch/sitecustomize.py").write_text(BROKEN_ONCE)
    output, mark = tmp_path / "store", tmp_path / "broken"
    monkeypatch.setenv("BROKEN_ONCE", str(mark))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}/patch:{os.getcwd()}")
    with fleet() as flags:
        given = arguments(windows, generator, output, f"--negatives 2 {flags}")
        ended = run("pipeline/mine_negatives.py", *given)
        assert ended.returncode != 0
        assert mark.exists()
        assert not (output / "rejects").exists()
        files.remove(str(tmp_path / ".store.lease"))  # which would expire in a minute
        assert mine_negatives.main(given) == 0
    assert read_manifest(str(output)).digest == read_manifest(undisturbed).digest
