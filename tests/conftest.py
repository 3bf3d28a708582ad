"""What many tests need: small texts, a small tokenizer, the commands as users call them."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from pipeline import make_windows, verify_store
from pipeline.stores.reader import Store
from pipeline.text.builtin_corpora import python_docs
from pipeline.text.tokenizer import train_tokenizer
from tests.helpers.commands import Stores, words
from tests.helpers.processes import run_group
from tests.helpers.warm import read_at_import

os.environ.setdefault("RESIDUAL_EBM_PROGRESS", "0")  # tests look at what commands say, not at how far they are

# The files that take longest, first: one that began last would keep one core busy while the others wait.
DEAREST = [
    "tests/requirements/test_extras.py",
    "tests/test_readmes.py",
    "tests/pipeline/test_mine_negatives.py",
    "tests/pipeline/test_make_windows.py",
    "tests/pipeline/mining/test_fleet.py",
    "tests/pipeline/mining/test_parts.py",
    "tests/studies/test_study.py",
    "tests/requirements/test_install.py",
    "tests/evaluation/test_perplexity_bounds.py",
    "tests/training/test_train_lm.py",
    "tests/training/test_train_energy.py",
    "tests/training/test_launchers.py",
    "tests/training/loop/test_mirror.py",
    "tests/pipeline/test_verify_store.py",
    "tests/evaluation/test_score.py",
    "tests/evaluation/test_detect.py",
    "tests/training/language/test_masked_task.py",
    "tests/pipeline/engines/test_vllm_engine.py",
    "tests/test_start.py",
]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Iterator[None]:
    """What a stage in this process tells libraries to be quiet is for one test, or all commands after it start cold."""
    before = read_at_import(os.environ)
    try:
        return (yield)
    finally:
        for name in read_at_import(os.environ).keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {name: place for place, name in enumerate(DEAREST)}
    items.sort(key=lambda item: places.get(item.nodeid.partition("::")[0], len(places)))


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a byte-level BPE of 400 pieces."""
    folder = str(tmp_path_factory.mktemp("tokenizer"))
    train_tokenizer(python_docs("valid"), 400).save(folder)
    return folder


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """A folder with four .txt files and two .jsonl files of several documents, one document in both."""
    folder = tmp_path / "texts"
    folder.mkdir()
    for number in range(4):
        (folder / f"{number}.txt").write_text(words(600 + 100 * number, number))
    shared = words(150, 99)
    for name, seeds in (("a", range(10, 20)), ("b", range(20, 30))):
        documents = [words(50 + seed, seed) for seed in seeds]
        documents.insert(3, shared)
        lines = [json.dumps({"id": number, "text": text}) for number, text in enumerate(documents)]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture
def windows(tokenizer: str, tmp_path: Path) -> Callable[..., str]:
    """Makes a windows store from patterns and further flags, in this process; returns its folder."""

    def make(*inputs: Path | str, output: str = "store", flags: str = "") -> str:
        arguments = [f"--input={pattern}" for pattern in inputs]
        arguments += ["--corpus=test", "--split=train", "--window=16", "--stride=4", "--shards=3"]
        given = flags.split()
        if "--train_tokenizer" not in flags:
            arguments.append(f"--tokenizer={tokenizer}")
        make_windows.main([*arguments, f"--output={tmp_path / output}", *given])
        return str(tmp_path / output)

    make.folder = tmp_path
    return make


@pytest.fixture
def warm_repairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Repairs run the same commands in processes of their own, but forked from a warm one."""

    def run(command: list[str], cwd: str | None) -> subprocess.CompletedProcess[str]:
        return run_group(command, cwd=cwd, stdout=None, stderr=None)

    monkeypatch.setattr(verify_store, "subprocess", SimpleNamespace(run=run))


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Networks this small are many times slower on threads that wait for each other on busy cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    """Windows of one sum each, 13 tokens of a vocabulary of 14."""
    folder = tmp_path_factory.mktemp("sums")
    for split, lines in (("train", 3000), ("valid", 200)):
        make_windows.main(
            [f"--input=builtin:sums:lines={lines}", f"--split={split}", f"--output={folder / split}", "--shards=2"]
        )
    return Stores(Store(str(folder / "train")), Store(str(folder / "valid")))


@pytest.fixture
def disk_of(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Makes a filesystem of so many kilobytes; `mount` is root's."""
    folder = tmp_path / "disk"

    def mount(kilobytes: int) -> Path:
        folder.mkdir()
        options = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)]
        if subprocess.run(options, capture_output=True).returncode:
            folder.rmdir()
            pytest.skip("no leave to mount a small filesystem")
        return folder

    yield mount
    if folder.is_dir():
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def small_disk(disk_of: Callable[[int], Path]) -> Path:
    """A filesystem of 256 KB."""
    return disk_of(256)
