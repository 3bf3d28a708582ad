"""The process that holds a generator for others unpickles what it is sent: only those of its run may send anything."""

import os
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client
from pathlib import Path

import pytest

from pipeline.engines.sampling import Sampling
from pipeline.mining.job import MiningJob, StoreJob
from pipeline.mining.pool import MEETING, GeneratorPool
from pipeline.mining.settings import MiningSettings
from pipeline.runtime.errors import UserError
from pipeline.runtime.private import leave_meeting, meeting_folder, private_folder
from pipeline.stores.manifest import Record
from pipeline.stores.writer import StoreWriter


class Evil:
    """What runs when it is unpickled."""

    def __init__(self, mark: Path):
        self.mark = str(mark)

    def __reduce__(self):
        return os.mkdir, (self.mark,)


def send(address: tuple[str, int], key: bytes, pickled: object) -> None:
    with Client(address, authkey=key) as neighbour:
        neighbour.send((None, "accept_connection", (pickled,), {}))
        neighbour.recv()


@pytest.fixture
def job(windows, generator, tmp_path) -> MiningJob:
    settings = MiningSettings(windows=windows, generator=(generator,), output=str(tmp_path / "store"), engine="torch")
    writer = StoreWriter(settings.output, Record(["x"], "/", {}), "negatives")
    store = StoreJob(writer, generator, "torch", Sampling("temperature"), {"digest": "d"})
    return MiningJob(settings, (store,), (5,), shared=True, run=f"test-{os.getpid()}-{tmp_path.name}")


def test_a_neighbour_who_knows_beams_key_cannot_send_a_pickle_to_an_engine(job, tmp_path):
    pool, folder = GeneratorPool(job), Path(meeting_folder(MEETING, job.run))
    generator = pool.get(0)
    try:
        assert folder.stat().st_mode & 0o777 == folder.parent.stat().st_mode & 0o777 == 0o700
        assert (folder / "key").stat().st_mode & 0o777 == 0o600
        assert len((folder / "key").read_bytes()) == 32
        (found,) = folder.glob("*.address")
        host, port = found.read_text().split(":")
        with pytest.raises(AuthenticationError):
            send((host, int(port)), b"mps", Evil(tmp_path / "ran"))
        assert not (tmp_path / "ran").exists()
        assert len(generator.sample([[13, 1, 2]], [3], [7], 2)) == 1  # it serves those of its run
    finally:
        pool.release()
        leave_meeting(MEETING, job.run)
    assert not folder.exists()


def test_a_meeting_place_that_somebody_else_has_made_is_not_used(job, tmp_path):
    folder = Path(private_folder(), f"{MEETING}-{job.run}")
    folder.symlink_to(tmp_path)
    try:
        with pytest.raises(UserError, match="somebody else's, or others can write in it"):
            GeneratorPool(job).get(0)
    finally:
        folder.unlink()
