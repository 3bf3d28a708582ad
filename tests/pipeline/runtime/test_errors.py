"""Errors of users: what a worker in another process found wrong comes out as itself."""

import subprocess
import sys

import apache_beam as beam
import numpy as np
import pytest

from pipeline.engines.sampling import Sampling
from pipeline.mining.job import MiningJob, StoreJob
from pipeline.mining.making import TooManyDuplicates, check_duplicates
from pipeline.mining.rows import Sketch
from pipeline.mining.settings import MiningSettings
from pipeline.runtime.beam import beam_options, run
from pipeline.runtime.errors import ResumableError, UserError, user_error_in
from pipeline.stores.manifest import Record
from pipeline.stores.writer import StoreWriter


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_every_kind_of_user_error_is_recognised_wherever_it_was_raised(workers):
    """Two workers are processes of their own, whose errors come back as the text of a traceback."""
    settings = MiningSettings(windows="w", generator=("lm",), output="out")
    store = StoreJob(StoreWriter("out", Record([], "", {}), "negatives"), "lm", "torch", Sampling(), {})
    job = MiningJob(settings, (store,), (1,), shared=False, run="r")
    same = Sketch.of(np.array([7, 7], np.uint64), np.array([1, 2], np.uint64))
    options = beam_options([f"--direct_num_workers={workers}"])
    with pytest.raises(TooManyDuplicates, match=r"^--output out: 100% of the negatives .* --max_duplicate_fraction$"):
        run(lambda graph: graph | beam.Create([same]) | beam.Map(check_duplicates, store, job), options)


@pytest.mark.parametrize(
    ("text", "kind", "line"),
    [
        ("pipeline.runtime.errors.UserError: --a 1: at least 2 [while running 'x']", UserError, "--a 1: at least 2"),
        ("in f\npipeline.runtime.errors.ResumableError: full: mend that\n\nmore", ResumableError, "full: mend that"),
        (
            "OSError: [Errno 28] No space left on device: 'x'",
            ResumableError,
            "[Errno 28] No space left on device: 'x': mend",
        ),
        ("xpipeline.runtime.errors.UserError: no", None, ""),
        ("ValueError: no", None, ""),
    ],
)
def test_the_text_of_a_traceback_says_which_error_it_was(text, kind, line):
    found = user_error_in(RuntimeError(text))
    assert type(found) is (kind or type(None))
    assert found is None or str(found).startswith(line)


def test_who_is_asked_to_end_closes_what_is_at_work(tmp_path):
    script = (
        "import sys, time\n"
        "from pipeline.runtime.errors import exit_with\n"
        "def main():\n"
        "    try:\n"
        "        print('at work', flush=True)\n"
        "        time.sleep(60)\n"
        "    finally:\n"
        "        print('closed', flush=True)\n"
        "exit_with(main)\n"
    )
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", script], **options) as process:
        assert process.stdout.readline() == "at work\n"
        process.terminate()
        output, errors = process.communicate()
    assert (process.returncode, output) == (143, "closed\n")
    assert errors == "ended by SIGTERM: run the same command again to continue\n"
