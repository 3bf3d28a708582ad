"""The warm process of the tests themselves: what is forked from it is a process as any other, and nothing stays."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.helpers.commands import ROOT, free_port
from tests.helpers.processes import await_ends, await_sign, kill_family, run_group, start, started, zygote
from tests.helpers.warm import WarmProcess

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux alone")

SAYS = """
import json, os, sys, threading
known = json.dumps({"argv": sys.argv, "folder": os.getcwd(), "path": sys.path[0], "name": os.environ["NAME"],
    "session": os.getsid(0), "pid": os.getpid(), "main": sys.modules["__main__"].__dict__ is globals(),
    "threads": threading.active_count(), "open": len(os.listdir("/proc/self/fd"))})
print(known)
print("and errors", file=sys.stderr)
sys.exit(3)
"""


@pytest.mark.parametrize("way", ["script", "code", "module"])
def test_a_command_finds_what_it_finds_when_it_starts_cold(way, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/says.py").write_text(SAYS)
    words = {"script": [str(tmp_path / "folder/says.py")], "code": ["-c", SAYS], "module": ["-m", "folder.says"]}[way]
    command, there = [sys.executable, *words, "--flag", "a b"], {"cwd": tmp_path, "env": os.environ | {"NAME": "värde"}}
    found = []
    for cold in (False, True):
        ended = run_group(command, cold, **there)
        assert (ended.returncode, ended.stderr) == (3, "and errors\n")
        found.append(eval(ended.stdout, {"true": True}))
        assert found[-1]["session"] == found[-1].pop("pid")
        assert found[-1].pop("session") != os.getsid(0)
    assert found[0] == found[1]


def test_errors_and_signals_end_it_as_they_end_others():
    for code, expected in (("1 / 0", 1), ("import os; os.abort()", -6), ("raise SystemExit('why')", 1), ("", 0)):
        for cold in (False, True):
            ended = run_group([sys.executable, "-c", code], cold)
            assert ended.returncode == expected
            assert ended.stderr.splitlines()[-1:] == {
                "1 / 0": ["ZeroDivisionError: division by zero"],
                "raise SystemExit('why')": ["why"],
            }.get(code, ended.stderr.splitlines()[-1:])


def test_only_an_environment_that_imports_the_same_is_warm():
    assert isinstance(start([sys.executable, "-c", ""], env=os.environ | {"NAME": "value"}), WarmProcess)
    for name in ("OMP_NUM_THREADS", "HF_HUB_OFFLINE", "PYTHONHASHSEED"):
        process = start([sys.executable, "-c", ""], env=os.environ | {name: "7"})
        assert isinstance(process, subprocess.Popen)
        process.wait()


FAMILY = """
import subprocess, sys, time
children = [subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"]) for _ in range(2)]
open(sys.argv[1], "w").write(" ".join(str(child.pid) for child in children))
time.sleep(3600)
"""


@pytest.mark.parametrize("way", ["kill", "end of the block"])
def test_it_is_killed_with_all_that_it_started(way, tmp_path):
    note = tmp_path / "note"
    with started([sys.executable, "-c", FAMILY, str(note)]) as process:
        await_sign(process, lambda: note.exists() and len(note.read_text().split()) == 2)
        family = [psutil.Process(pid) for pid in (process.pid, *map(int, note.read_text().split()))]
        if way == "kill":
            kill_family(process)
    assert process.returncode == -9
    assert not any(member.is_running() and member.status() != psutil.STATUS_ZOMBIE for member in family)


def test_it_ends_with_whoever_started_it(tmp_path):
    note = tmp_path / "note"
    code = (
        "import sys; from pathlib import Path; from tests.helpers.warm import Zygote\n"
        "zygote = Zygote([])\n"
        "one = zygote.start(['-c', 'import time; time.sleep(3600)'])\n"
        f"Path({str(note)!r}).write_text(f'{{one.pid}} {{zygote.process.pid}} ')\n"
        "one.wait()"
    )
    with started([sys.executable, "-c", code], cold=True, cwd=ROOT) as process:
        await_sign(process, lambda: note.exists() and note.read_text().endswith(" "))
        left = [psutil.Process(int(pid)) for pid in note.read_text().split()]
        kill_family(process)
        await_ends(left)  # or this would wait for an hour


def test_the_warm_process_has_no_threads_that_a_fork_would_lose():
    """Of Python's; a memory allocator's own know of forks."""
    assert start([sys.executable, "-c", ""]).wait() == 0
    tasks = Path(f"/proc/{zygote().process.pid}/task")
    named = {(task / "comm").read_text().strip() for task in tasks.iterdir() if task.name != tasks.parent.name}
    if os.environ.get("OMP_NUM_THREADS") == "1":  # otherwise there are those of linear algebra, which know of forks too
        assert named <= {"jemalloc_bg_thd"}


RANKS = """
import os, sys, time
from pathlib import Path
rank = os.environ["RANK"]
Path(sys.argv[-1], rank).write_text(f"{os.environ['WORLD_SIZE']} {os.environ['LOCAL_SIZE']} {sys.argv[1]}")
while not Path(sys.argv[-1], "1").exists():
    time.sleep(0.01)
if rank == "1":
    sys.exit(5)
time.sleep(3600)
"""


def test_ranks_know_their_places_and_all_end_when_one_fails(tmp_path):
    (tmp_path / "script.py").write_text(RANKS)
    helper = [sys.executable, str(ROOT / "tests/helpers/ranks.py"), "2", str(free_port())]
    ended = run_group([*helper, str(tmp_path / "script.py"), str(tmp_path)])
    assert ended.returncode == 5
    assert [(tmp_path / rank).read_text() for rank in "01"] == ["2 2 --local_rank=0", "2 2 --local_rank=1"]
