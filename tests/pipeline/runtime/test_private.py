"""Folders below TMPDIR: of this user alone, and none is left by runs that were killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.runtime import private
from pipeline.runtime.errors import UserError

HOLD = """
import sys
from pipeline.runtime.private import leave_meeting, meeting_folder
print(meeting_folder("mining", sys.argv[1]), flush=True)
sys.stdin.read()
leave_meeting("mining", sys.argv[1])
"""


@pytest.fixture
def temporary(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(private.tempfile, "tempdir", None)
    return tmp_path


def hold(run: str) -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, run], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_the_folder_of_a_killed_run_is_removed_by_the_next_and_that_of_a_living_one_is_not(temporary):
    (killed, left), (alive, used) = hold("killed"), hold("alive")
    assert left.is_dir()
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert left.is_dir()
    own = Path(private.meeting_folder("mining", "mine"))
    assert own.is_dir()
    assert own.stat().st_mode & 0o077 == 0
    assert not left.exists()
    assert used.is_dir()
    alive.communicate("")
    assert not used.exists()
    assert private.meeting_folder("mining", "mine") == str(own)
    private.leave_meeting("mining", "mine")
    assert list(temporary.iterdir()) == []


def test_a_folder_of_somebody_else_is_refused(temporary):
    folder = temporary / f"residual-ebm-{os.getuid()}"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    with pytest.raises(UserError, match="somebody else's, or others can write in it"):
        private.meeting_folder("mining", "mine")


def test_a_link_is_refused(temporary):
    (temporary / "elsewhere").mkdir()
    (temporary / f"residual-ebm-{os.getuid()}").symlink_to(temporary / "elsewhere")
    with pytest.raises(UserError, match="somebody else's"):
        private.private_folder()
