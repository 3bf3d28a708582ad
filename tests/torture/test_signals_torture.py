"""Signals at random moments of every command: afterwards it gives what it gives undisturbed, and leaves nothing.

SIGKILL ends a command and all its processes at once, as a crash does; SIGTERM and SIGINT are sent to its first process
alone, as a scheduler and a user do, and nothing of it may go on.
"""

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from pipeline.stores.manifest import MANIFEST
from tests.helpers.commands import command
from tests.helpers.processes import group, hears_interrupts, kill_family, run_group
from tests.helpers.trainings import train_command
from tests.helpers.world import World

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
OF_THIS_RUN = "command.json"  # times and places
COMMANDS = {
    "windows": "pipeline/make_windows.py --input {world}/text.txt --corpus letters --split test "
    "--tokenizer {world}/tokenizer --window 5 --stride 5 --output out",
    "negatives": "pipeline/mine_negatives.py --windows {world}/windows --generator {world}/lm0 --engine torch "
    "--context_lengths 2 --negatives 200 --samples_per_row 20 --output out",
    "negatives by two workers": "pipeline/mine_negatives.py --windows {world}/windows --generator {world}/lm0 "
    "--engine torch --context_lengths 2 --negatives 200 --samples_per_row 20 --direct_num_workers 2 --output out",
    "energies": "evaluation/score.py --energy {world}/energy --store {world}/samples --output out",
    "bounds": "evaluation/perplexity_bounds.py --negatives {world}/samples --energies {world}/samples-energy "
    "--samples_curve --language_model {world}/lm1 --output out",
    "joint samples": "evaluation/sample_joint.py --energy {world}/energy --generator {world}/lm0 "
    "--windows {world}/windows --context_length 2 --samples 50 --engine torch --output out",
    "detection": "evaluation/detect.py --energy {world}/energy --real {world}/text.txt --output out/texts.parquet",
    "report": "evaluation/report.py --input {world} --output out/report.html",
}


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    return World(tmp_path_factory.mktemp("world"))


@pytest.fixture
def places(tmp_path) -> Iterator[tuple[Path, Path, dict[str, str]]]:
    """Two folders to work in, and an environment whose temporary directory has to be empty in the end."""
    for name in ("whole", "disturbed", "tmp"):
        (tmp_path / name).mkdir()
    yield tmp_path / "whole", tmp_path / "disturbed", os.environ | {"TMPDIR": str(tmp_path / "tmp")}
    assert list((tmp_path / "tmp").iterdir()) == []


def result(folder: Path) -> dict[str, object]:
    """What a run has made, by name; of manifests what they say of the content."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "logs" not in path.parts and path.name != OF_THIS_RUN:
            content = path.read_bytes()
            found[str(path.relative_to(folder))] = json.loads(content)["digest"] if path.name == MANIFEST else content
    return found


def disturb(words: list[str], seconds: float, number: int, rng: random.Random, **options: object) -> None:
    """Starts a command and sends it a signal at some moment: it ends, with all that it has started."""
    sent = SIGNALS[number % len(SIGNALS)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(words, start_new_session=True, preexec_fn=hears_interrupts, **quiet, **options)
    try:
        process.wait(timeout=rng.uniform(0.05, 1.0) * seconds)
        return
    except subprocess.TimeoutExpired:
        pass
    family = [*group(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    if sent == signal.SIGKILL:
        kill_family(process)
    else:
        process.send_signal(sent)
        process.wait(timeout=120)
    deadline = time.monotonic() + 30  # a process that its parent has left notices it soon
    while [one for one in family if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]:
        assert time.monotonic() < deadline, [one.cmdline() for one in family if one.is_running()]
        time.sleep(0.05)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_was_disturbed_gives_what_it_gives_undisturbed(world, places, name):
    whole, disturbed, environment = places
    script, *flags = COMMANDS[name].format(world=world.folder).split()
    words = command(script, *flags)
    before = time.monotonic()
    ended = run_group(words, cold=True, cwd=whole, env=environment)
    assert ended.returncode == 0, ended.stderr
    seconds, rng = time.monotonic() - before, random.Random(name)
    for number in range(9):
        disturb(words, seconds, number, rng, cwd=disturbed, env=environment)
    ended = run_group(words, cold=True, cwd=disturbed, env=environment)
    assert ended.returncode == 0, ended.stderr
    assert result(disturbed) == result(whole)


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_training_that_was_disturbed_has_the_weights_of_one_that_was_not(stores, places, ranks):
    whole, disturbed, environment = places
    flags = "--save_every 2 --validate_every 5"
    before = time.monotonic()
    ended = run_group(train_command(stores, whole / "model", flags, ranks=ranks, stage=1, script="train_lm"))
    assert ended.returncode == 0, ended.stderr
    seconds, rng = time.monotonic() - before, random.Random(ranks)
    words = train_command(stores, disturbed / "model", flags, ranks=ranks, stage=1, script="train_lm")
    for number in range(6):
        disturb(words, seconds, number, rng, env=environment)
    ended = run_group(words, cold=True, env=environment)
    assert ended.returncode == 0, ended.stderr
    weights = [(folder / "model/model.safetensors").read_bytes() for folder in (whole, disturbed)]
    assert weights[0] == weights[1]


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_an_engine_of_vllm_ends_with_its_command(world, places, sent):
    _, disturbed, environment = places
    script, *flags = COMMANDS["negatives"].format(world=world.folder).split()
    words = command(script, *flags)
    words[words.index("torch")] = "vllm"
    ended = run_group(words, cold=True, cwd=disturbed, env=environment)
    assert ended.returncode == 0, ended.stderr
    rng = random.Random(int(sent))
    for _ in range(2):
        disturb([*words, "--overwrite"], 25, SIGNALS.index(sent), rng, cwd=disturbed, env=environment)
    ended = run_group([*words, "--overwrite"], cold=True, cwd=disturbed, env=environment)
    assert ended.returncode == 0, ended.stderr
