"""What many tests need: small texts, a small tokenizer, the commands as users call them."""

import json
import random
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, NamedTuple

import pytest
import torch

from pipeline import make_windows
from pipeline.stores.reader import Store
from pipeline.text.builtin_corpora import python_docs
from pipeline.text.tokenizer import train_tokenizer

ROOT = Path(__file__).parents[1]
DATA = ROOT.parent / "shared" / "data"
WORDS = ["the", "of", "a", "whale", "sea", "ship\nold", "man", "said,", "“no”", "he’d", "1851"]
WORDS += ["naïve", "中文", "tail;", "and?", "yes\n\n"]


def words(count: int, seed: int) -> str:
    """A text of random words, some of them hard on tokenizers."""
    return " ".join(random.Random(seed).choices(WORDS, k=count))


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


def command(script: str, *arguments: str | Path) -> list[str]:
    return [sys.executable, str(ROOT / script), *map(str, arguments)]


def run(script: str, *arguments: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
    """Runs a script as a user does, outside of the project's folder."""
    settings: dict = {"capture_output": True, "text": True, "cwd": "/", "timeout": 300} | options
    return subprocess.run(command(script, *arguments), **settings)


def shard_bytes(store: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(Path(store, "shards").iterdir())}


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        return int(listener.getsockname()[1])


@contextmanager
def serving(server: list[str], port: int, log: IO[str] | int = subprocess.DEVNULL) -> Iterator[None]:
    """Runs a server until the block ends; the block starts when its port answers."""
    process = subprocess.Popen(server, stdout=subprocess.DEVNULL, stderr=log)
    try:
        for _ in range(600):
            assert process.poll() is None, f"{server} ended with {process.returncode}"
            with suppress(OSError), socket.create_connection(("localhost", port), timeout=1):
                break
            time.sleep(0.1)
        yield
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Networks this small are many times slower on threads that wait for each other on busy cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Stores(NamedTuple):
    train: Store
    valid: Store


@pytest.fixture(scope="session")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    """Windows of one sum each, 13 tokens of a vocabulary of 14."""
    folder = tmp_path_factory.mktemp("sums")
    for split, lines in (("train", 3000), ("valid", 200)):
        make_windows.main(
            [f"--input=builtin:sums:lines={lines}", f"--split={split}", f"--output={folder / split}", "--shards=2"]
        )
    return Stores(Store(str(folder / "train")), Store(str(folder / "valid")))
