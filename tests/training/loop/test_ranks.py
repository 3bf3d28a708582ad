"""The ranks of a run, on a real launch of two."""

import sys
from pathlib import Path

import pytest

from pipeline.runtime.errors import UserError
from tests.helpers.commands import ROOT, free_port
from tests.helpers.processes import run_group
from training.loop import ranks

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
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)

    def refuse() -> None:
        raise UserError("no")

    assert (ranks.rank(), ranks.ranks(), ranks.is_first()) == (0, 1, True)
    assert ranks.first_does(lambda: 7) == 7
    with pytest.raises(UserError, match="no"):
        ranks.first_does(refuse)
