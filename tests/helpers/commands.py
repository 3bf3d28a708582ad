"""Commands as users call them, servers for a while, and what they are given and leave."""

import random
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, NamedTuple

from pipeline.stores.reader import Store
from tests.helpers.processes import await_sign, run_group, started

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared" / "data"
WORDS = ["the", "of", "a", "whale", "sea", "ship\nold", "man", "said,", "“no”", "he’d", "1851"]
WORDS += ["naïve", "中文", "tail;", "and?", "yes\n\n"]


def words(count: int, seed: int) -> str:
    """A text of random words, some of them hard on tokenizers."""
    return " ".join(random.Random(seed).choices(WORDS, k=count))


def command(script: str, *arguments: str | Path) -> list[str]:
    return [sys.executable, str(ROOT / script), *map(str, arguments)]


def run(script: str, *arguments: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
    """Runs a script as a user does, outside of the project's folder; `cold` if its start is what is tested."""
    return run_group(command(script, *arguments), **{"cwd": "/"} | options)


def shard_bytes(store: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(Path(store, "shards").iterdir())}


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        return int(listener.getsockname()[1])


@contextmanager
def serving(server: list[str], port: int, log: IO[str] | int = subprocess.DEVNULL) -> Iterator[None]:
    """Runs a server until the block ends; the block starts when its port answers."""
    with started(server, stdout=subprocess.DEVNULL, stderr=log) as process:
        await_sign(process, lambda: answers(port))
        yield


def answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("localhost", port), timeout=1):
        return True
    return False


class Stores(NamedTuple):
    train: Store
    valid: Store
