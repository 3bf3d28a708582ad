"""Completion of commands and flags, in a real bash."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from studies.completion import CompletionSettings, completion, every_command, parsers_in
from studies.orchestration.console import commands
from tests.helpers.commands import ROOT, run

# What bash does when the key is pressed: the words so far, and the function that was registered for the first of them.
PRESS = r"""
source "$1"
shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_LINE="$*" COMP_POINT=${#COMP_LINE}
"$(complete -p residual-ebm | sed -E 's/.*-F ([^ ]+).*/\1/')" residual-ebm "${@: -1}" "${@: -2:1}"
printf '%s\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completion") / "residual-ebm"
    path.write_text(completion(CompletionSettings(shell="bash")))
    return path


def press(script: Path, line: str, folder: Path = ROOT) -> set[str]:
    """What bash offers at the end of a line."""
    words = [*shlex.split(line), *([""] if line.endswith(" ") else [])]
    command = ["bash", "--norc", "-c", PRESS, "bash", str(script), *words]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder)
    return {word.strip() for word in ended.stdout.splitlines() if word.strip()}


def test_commands_are_completed(script):
    first = {name.partition(" ")[0] for name in commands()}
    assert first <= press(script, "residual-ebm ")
    assert press(script, "residual-ebm mine") == {"mine-negatives"}
    assert {name.partition(" ")[2] for name in commands() if name.startswith("analyses ")} <= press(
        script, "residual-ebm analyses "
    )


def test_flags_and_their_values_are_completed(script):
    assert press(script, "residual-ebm train-energy --obj") == {"--objective"}
    assert press(script, "residual-ebm train-energy --objective ") == {"balanced", "nce", "ranking"}
    assert press(script, "residual-ebm train-lm --train a --precision b") == {"bf16"}
    assert press(script, "residual-ebm analyses ngrams --out") == {"--output"}
    assert press(script, "residual-ebm completion z") == {"zsh"}


def test_values_that_may_be_paths_are_completed_as_files(script, tmp_path):
    (tmp_path / "negatives.json").touch()
    assert press(script, "residual-ebm score --store neg", tmp_path) == {"negatives.json"}


def test_every_flag_that_help_names_is_known():
    """Of a command of each kind: those that share flags, that hand on to Beam, and that launchers start."""
    known = {parser.prog.partition(" ")[2]: parser for parser in parsers_in(every_command())}
    assert set(commands()) <= set(known)
    for name in ("mine-negatives", "score", "train-lm", "run-study", "human serve"):
        said = run(str(commands()[name].relative_to(ROOT)), "--help", cold=True).stdout
        listed = set(re.findall(r"^ +(--\w+)", said, re.MULTILINE))
        assert listed == {flag for flag in known[name]._option_string_actions if flag.startswith("--")} - {"--help"}


def test_the_command_prints_it_and_names_the_shells_that_it_knows(script):
    ended = subprocess.run(
        [str(Path(sys.executable).parent / "residual-ebm"), "completion", "bash"], capture_output=True, text=True
    )
    assert (ended.returncode, ended.stdout) == (0, script.read_text() + "\n")
    wrong = run("studies/completion.py", "fish", cold=True)
    assert (wrong.returncode, len(wrong.stderr.splitlines())) == (2, 1)
    assert "'bash', 'zsh', 'tcsh'" in wrong.stderr
