"""Disks that are full or cannot be written, under every measurement: one line, and the same command continues."""

import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from evaluation import detect, findings, perplexity_bounds, report, sample_joint
from evaluation.analyses import densities, random_text
from evaluation.human import export, prepare
from pipeline.runtime.errors import exit_with
from tests.evaluation.human.conftest import write_samples

COMMANDS: dict[str, tuple[Callable[[list[str]], int], str]] = {
    "bounds": (
        perplexity_bounds.main,
        "--negatives {world}/samples --energies {world}/samples-energy --samples_curve --output {disk}/out",
    ),
    "joint samples": (
        sample_joint.main,
        "--energy {world}/energy --generator {world}/lm0 --windows {world}/windows --context_length 2 --samples 20 "
        "--engine torch --output {disk}/out",
    ),
    "detection": (detect.main, "--energy {world}/energy --real {world}/text.txt --output {disk}/out.parquet"),
    "findings": (findings.main, "--input {world} --output {disk}/out"),
    "report": (report.main, "--input {world} --output {disk}/out.html"),
    "densities": (densities.main, "--negatives {world}/samples --energies {world}/samples-energy --output {disk}/out"),
    "random text": (random_text.main, "--energy {world}/energy --store {world}/samples --output {disk}/out"),
    "readers' study": (
        prepare.main,
        "--a {samples}:base --b {samples}:chosen --gold {samples} --items 12 --qualification_items 4 --raters 4 "
        "--output {disk}/study.db",
    ),
    "readers' votes": (export.main, "--study {study} --items {disk}/pages.csv"),
}


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("readers")
    samples = write_samples(folder / "samples", 40)
    given = f"--a {samples}:base --b {samples}:chosen --gold {samples} --items 12 --qualification_items 4 --raters 4"
    assert prepare.main(f"{given} --output {folder}/study.db".split()) == 0
    return samples, folder / "study.db"


def outcome(main: Callable[[list[str]], int], words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """How a command ends: its code, and what it says of an error."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        exit_with(lambda: main(words))
    return int(ended.value.code or 0), capsys.readouterr().err


@pytest.mark.parametrize("name", COMMANDS)
def test_a_disk_that_takes_nothing_is_named_and_the_same_command_continues(world, study, disk_of, name, capsys):
    disk = disk_of(2048)
    main, flags = COMMANDS[name]
    words = flags.format(world=world.folder, disk=disk, samples=study[0], study=study[1]).split()
    with suppress(OSError), (disk / "ballast").open("wb", buffering=0) as ballast:
        while ballast.write(bytes(1024)):
            pass
    code, said = outcome(main, words, capsys)
    assert (code, said.count("\n")) == (2, 1), said
    assert "No space left on device" in said or "disk is full" in said
    (disk / "ballast").unlink()
    left = {str(path.relative_to(disk)) for path in disk.rglob("*") if path.is_file() and path.stat().st_size}
    assert not left, left
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    code, said = outcome(main, words, capsys)
    assert (code, said.count("\n")) == (2, 1), said
    assert "Read-only file system" in said or "unable to open" in said
    subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
    assert outcome(main, words, capsys)[0] == 0
