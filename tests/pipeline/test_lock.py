import os
import subprocess
import sys

import pytest

from pipeline.errors import UserError
from pipeline.lock import writing

HOLD = """
import sys, time
from pipeline.lock import writing
with writing(sys.argv[1]):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_writer_is_told_who_the_first_is_and_a_killed_one_blocks_nobody(tmp_path):
    store = str(tmp_path / "store")
    holder = subprocess.Popen([sys.executable, "-c", HOLD, store], stdout=subprocess.PIPE)
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(UserError, match=rf"store: process {holder.pid} on .* is writing it"), writing(store):
        pass
    holder.kill()
    holder.wait()
    with writing(store):
        assert os.listdir(tmp_path) == [".store.lock"]
    assert os.listdir(tmp_path) == []
