"""What a command has imported by the time it ends."""

import subprocess
import sys

from tests.helpers.commands import ROOT

WATCHED = """
import runpy, sys
sys.argv = sys.argv[1:]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
finally:
    print("loaded:", *sys.modules)
"""


def watched(script: str, *arguments: str) -> tuple[subprocess.CompletedProcess[str], set[str]]:
    """A command in a fresh interpreter, and the packages that it has loaded when it ends."""
    command = [sys.executable, "-c", WATCHED, str(ROOT / script), *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, cwd="/")
    loaded = ended.stdout.rpartition("loaded:")[2].split()
    assert "sys" in loaded, ended.stderr
    return ended, {name.partition(".")[0] for name in loaded}
