"""Commands in processes that are forked from a warm one, which has imported what takes seconds to import.

From outside, a forked process is as any other: its pid, its session, its exit code, its output, what a SIGKILL leaves.
What it does not show is how a command starts for a user: its imports have been made, what they had to say was said, and
its hash seed is the warm process's. So some commands of each package start cold (see `start` in processes.py).
"""

import atexit
import gc
import json
import logging
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import IO, Any, NamedTuple

# What the project's commands import, as far as it takes long, starts no thread and looks at no settings of theirs.
PRELOADED = [
    *("numpy", "pyarrow.dataset", "pyarrow.parquet", "scipy.stats", "torch", "tokenizers", "transformers"),
    *("transformers.modeling_utils", "transformers.models.auto.modeling_auto", "transformers.models.auto"),
    *("transformers.models.gpt2.modeling_gpt2", "transformers.models.bert.modeling_bert"),
    *("transformers.models.roberta.modeling_roberta", "torch.distributed", "torch._dynamo", "apache_beam"),
    *("apache_beam.runners.portability.fn_api_runner.fn_runner", "networkx", "torch.utils.tensorboard"),
]
# What libraries read of the environment while they are imported: a command with other values of these starts cold.
READ_AT_IMPORT = ("ARROW", "DS_", "HF_", "LD_", "MKL", "OMP_", "OPENBLAS", "PYTHON", "TORCH", "TRANSFORMERS", "VLLM")
MOST_BYTES = 100_000  # of a request


def read_at_import(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(READ_AT_IMPORT)}


class Request(NamedTuple):
    """A command: words as after `python`, where, and in what environment."""

    words: list[str]
    folder: str
    environment: dict[str, str]


class WarmProcess:
    """A forked process, to be used as a subprocess.Popen: what it says is there when it has ended."""

    def __init__(self, words: list[str], process: int, end: int, said: list[IO[bytes] | None], text: bool):
        self.args, self.pid, self._end, self._said, self._text = words, process, end, said, text
        self.returncode: int | None = None

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            self.wait(timeout=0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._end], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            status = os.read(self._end, 4)
            assert len(status) == 4, "the warm process has ended"
            os.close(self._end)
            self.returncode = os.waitstatus_to_exitcode(int.from_bytes(status, sys.byteorder))
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[Any, Any]:
        self.wait(timeout)
        output, errors = map(self._read, self._said)
        return output, errors

    def _read(self, file: IO[bytes] | None) -> str | bytes | None:
        if file is None:
            return None
        with file:
            file.seek(0)
            content = file.read()
        return content.decode().replace("\r\n", "\n") if self._text else content


class Zygote:
    """The warm process, seen from the tests; it ends with the process that started it, whichever way that ends."""

    def __init__(self, preloaded: Sequence[str] = PRELOADED) -> None:
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-P", __file__, str(theirs.fileno()), *preloaded]
            silent = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
            self.process = subprocess.Popen(command, pass_fds=[theirs.fileno()], start_new_session=True, **silent)
        self._environment = dict(os.environ)
        atexit.register(self.end)

    def end(self) -> None:
        self._requests.close()
        self.process.wait()

    def suits(self, environment: Mapping[str, str]) -> bool:
        """Whether a command with this environment would have imported the same."""
        return read_at_import(self._environment) == read_at_import(environment)

    def start(
        self,
        words: list[str],
        cwd: str | Path | None = None,
        env: dict[str, str] | None = None,
        stdout: IO[Any] | int | None = None,
        stderr: IO[Any] | int | None = None,
        text: bool = False,
    ) -> WarmProcess:
        """Starts a command in a session of its own; the options are those of subprocess.Popen."""
        request = Request(words, str(cwd or os.getcwd()), dict(os.environ if env is None else env))
        said = [tempfile.TemporaryFile() if to == subprocess.PIPE else None for to in (stdout, stderr)]  # noqa: SIM115
        end, theirs = os.pipe()
        with open(os.devnull, "r+b") as nothing:
            places = [nothing.fileno()]
            for number, (to, file) in enumerate(zip((stdout, stderr), said, strict=True), 1):
                if to is None:
                    places.append(number)
                elif to == subprocess.STDOUT:
                    places.append(places[1])
                elif to == subprocess.DEVNULL:
                    places.append(nothing.fileno())
                else:
                    given = file or to
                    places.append(given if isinstance(given, int) else given.fileno())
            socket.send_fds(self._requests, [json.dumps(request).encode()], [*places, theirs])
        os.close(theirs)
        process = os.read(end, 4)
        assert len(process) == 4, "the warm process has ended"
        return WarmProcess(words, int.from_bytes(process, sys.byteorder), end, said, text)


def serve(requests: socket.socket) -> Request:
    """Forks a process for every request and tells of its end; returns in the forked one, with what is to do there."""
    alive: dict[int, tuple[int, int]] = {}  # by what shows its end: a process, and where its end is told
    while True:
        for ready in select.select([requests, *alive], [], [])[0]:
            if ready is not requests:
                process, told = alive.pop(ready)
                os.write(told, os.waitpid(process, 0)[1].to_bytes(4, sys.byteorder))
                os.close(told)
                os.close(ready)
                continue
            message, places, _, _ = socket.recv_fds(requests, MOST_BYTES, 4)
            if not message:  # whoever asked is gone
                for process, _ in alive.values():
                    with suppress(ProcessLookupError):
                        os.killpg(process, signal.SIGKILL)
                os._exit(0)
            process = os.fork()
            if process == 0:
                os.setsid()
                for number, place in enumerate(places[:3]):
                    os.dup2(place, number)
                requests.close()
                for other, (_, told) in alive.items():
                    os.close(other)
                    os.close(told)
                for place in places:
                    os.close(place)
                return Request(*json.loads(message))
            *others, told = places
            for place in others:
                os.close(place)
            os.write(told, process.to_bytes(4, sys.byteorder))
            alive[os.pidfd_open(process)] = (process, told)


def become(request: Request) -> None:
    """Runs a command as `python` does with these words: a script, -m and a module, or -c and code."""
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()  # Python's own generator sees to that by itself
    os.chdir(request.folder)
    os.environ.clear()
    os.environ.update(request.environment)
    time.tzset()
    first, *rest = request.words
    safe = first == "-P"
    if safe:
        first, *rest = rest
    if first == "-c":
        code, sys.argv = rest[0], ["-c", *rest[1:]]
        sys.path[:0] = [] if safe else [""]
        sys.modules["__main__"] = ModuleType("__main__")
        exec(compile(code, "<string>", "exec"), vars(sys.modules["__main__"]))
    elif first == "-m":
        sys.argv = rest
        sys.path[:0] = [] if safe else [os.getcwd()]
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = [first, *rest]
        sys.path[:0] = [] if safe else [os.path.dirname(os.path.realpath(first))]
        runpy.run_path(first, run_name="__main__")


def main() -> None:
    logging.disable(logging.WARNING)  # importing Beam warns of cloud libraries that a laptop does not need
    for name in sys.argv[2:]:
        import_module(name)
    logging.disable(logging.NOTSET)
    gc.freeze()  # what is shared stays shared
    become(serve(socket.socket(fileno=int(sys.argv[1]))))


if __name__ == "__main__":
    main()
