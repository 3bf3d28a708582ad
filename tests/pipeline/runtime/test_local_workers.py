"""A graph on two worker processes: a signal to its first process ends all, and so does the death of one worker."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.helpers.processes import hears_interrupts

GRAPH = """
import sys, time
import apache_beam as beam
from pipeline.runtime.beam import beam_options, run
from pipeline.runtime.errors import exit_with

def work(number, folder):
    import os, time
    open(os.path.join(folder, f"{os.getpid()}.started"), "w").close()
    time.sleep(600)

def build(pipeline):
    return pipeline | beam.Create(range(2)) | beam.Reshuffle() | beam.Map(work, sys.argv[1])

exit_with(lambda: run(build, beam_options(["--direct_num_workers", "2"])) and 0)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sent", "code", "said"),
    [
        (signal.SIGTERM, 143, "ended by SIGTERM: run the same command again to continue"),
        (signal.SIGINT, 130, "interrupted: run the same command again to continue"),
        (signal.SIGKILL, 2, "error: a worker process died, perhaps for want of memory: mend that, then run the same"),
    ],
)
def test_a_run_and_its_workers_end_together(tmp_path, sent, code, said):
    """SIGTERM and SIGINT go to the first process alone; SIGKILL to one of its workers alone, as the system's does."""
    for name in ("started", "tmp"):
        (tmp_path / name).mkdir()
    environment = os.environ | {"TMPDIR": str(tmp_path / "tmp")}
    command = [sys.executable, "-c", GRAPH, str(tmp_path / "started")]
    process = subprocess.Popen(
        command, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True, preexec_fn=hears_interrupts
    )
    workers = wait_for_workers(process, tmp_path / "started")
    family = psutil.Process(process.pid).children(recursive=True)
    os.kill(workers[0] if sent == signal.SIGKILL else process.pid, sent)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors.count("\n")) == (code, 1), errors
    assert errors.startswith(said)
    psutil.wait_procs(family, timeout=30)
    assert not [one for one in family if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]
    assert list((tmp_path / "tmp").iterdir()) == []


def wait_for_workers(process: subprocess.Popen, folder: Path) -> list[int]:
    while not (found := list(folder.glob("*.started"))):
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    return [int(path.stem) for path in found]
