import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pipeline.runtime import files, lock
from pipeline.runtime.errors import UserError
from pipeline.runtime.lock import writing
from tests.helpers.commands import free_port, serving
from tests.helpers.processes import Process, await_sign, started

HOLD = """
import signal, sys
from pipeline.runtime import lock
lock.LEASE = 6
with lock.writing(sys.argv[1]):
    print("held", flush=True)
    signal.pause()
"""


@contextmanager
def holding(store: str) -> Iterator[Process]:
    """Another process that writes a store until it is killed."""
    with started([sys.executable, "-c", HOLD, store], cold=True, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        yield holder


def until(lease: str) -> float:
    return float(json.loads(files.read(lease))["until"])


def test_a_second_writers_error_names_the_first_and_a_killed_one_blocks_nobody(tmp_path):
    store = str(tmp_path / "store")
    with holding(store) as holder:  # which ends by SIGKILL
        refused = pytest.raises(UserError, match=rf"store: process {holder.pid} on .* is writing it")
        with refused, writing(store):
            pass
    with writing(store):
        assert os.listdir(tmp_path) == [".store.lock"]
    assert os.listdir(tmp_path) == []


@pytest.mark.slow
def test_on_an_object_store_it_is_a_lease_that_a_killed_run_loses(monkeypatch):
    port = free_port()
    monkeypatch.setenv("CLOUD_STORAGE_EMULATOR_ENDPOINT", f"http://localhost:{port}")
    server = [sys.executable, "-m", "gcp_storage_emulator", "start", "--in-memory", "--default-bucket=leases"]
    store, lease = "gs://anonymous@leases/stores/one", "gs://anonymous@leases/stores/.one.lease"
    with serving([*server, f"--port={port}"], port):
        with holding(store) as holder:  # which ends by SIGKILL
            first = until(lease)
            await_sign(holder, lambda: until(lease) > first)  # it is renewed before it ends
            time.sleep(max(0, first - time.time()))  # and holds when it would have ended
            refused = pytest.raises(UserError, match=rf"stores/one: process {holder.pid} on .* is writing it")
            with refused, writing(store):
                pass
        time.sleep(max(0, until(lease) - time.time()))
        with writing(store):
            assert json.loads(files.read(lease))["holder"].startswith(f"process {os.getpid()} on ")
        assert files.names_in("gs://anonymous@leases/stores") == []


def test_of_two_who_take_a_lease_at_once_one_gives_way(monkeypatch):
    monkeypatch.setattr(lock, "SETTLE", 0)
    url = "memory://bucket/.store.lease"
    put = files.put

    def overtaken(target, data):
        put(target, data)
        put(target, json.dumps({"token": "other", "holder": "process 1 on another", "until": time.time() + 9}).encode())

    monkeypatch.setattr(lock.files, "put", overtaken)
    refused = pytest.raises(UserError, match="process 1 on another began to write it at the same time")
    with refused, writing("memory://bucket/store"):
        pytest.fail("both hold it")
    assert files.is_file(url)
