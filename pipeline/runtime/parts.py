"""Parts: one store made by several processes, on one machine or on many, under any scheduler.

Part I of N has every N-th shard from the I-th on. Parts know nothing of each other: each may be killed, repeated and
run twice, beside any other. Whichever ends last writes the manifest, or a run with --finish does.
"""

import ctypes
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from pipeline.runtime.errors import ResumableError, UserError
from pipeline.runtime.settings import Settings, setting

Unit = TypeVar("Unit")
PARTS = "parts"
PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, kw_only=True)
class PartSettings(Settings):
    """Settings of stages that many processes can do together."""

    part: str | None = setting(
        None,
        metavar="I/N",
        help="make part I of N, in any process on any machine that sees the folders; the last to end finishes it all",
        group=PARTS,
        recorded=False,
    )
    finish: bool = setting(
        False, help="make nothing, but write the manifest: all parts have ended", group=PARTS, recorded=False
    )
    devices: int | None = setting(
        None,
        metavar="N",
        help="make N parts at once on this machine, each with a GPU or a share of the cores of its own (default: one "
        "for each GPU that is visible, else 1)",
        group=PARTS,
        least=1,
        most=1024,
        recorded=False,
    )

    def check(self) -> None:
        if self.part is not None:
            part_of(self.part)
        if sum([self.part is not None, self.finish, self.devices is not None]) > 1:
            raise UserError("--part, --finish, --devices: one of them")

    def own(self, units: Sequence[Unit]) -> Sequence[Unit]:
        """Those of all units that this part has: all of them where there are no parts."""
        first, step = part_of(self.part) if self.part else (1, 1)
        return units[first - 1 :: step]

    @property
    def alone(self) -> bool:
        """Whether this run makes the whole store, and nobody else may."""
        return self.part is None and not self.finish


def part_of(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise UserError(f"--part {text}: I/N, with I from 1 to N, such as 3/64")
    return int(match[1]), int(match[2])


def lacking(output: str, missing: Sequence[int], of: int) -> ResumableError:
    """Of a store that cannot be finished yet."""
    some = ", ".join(map(str, missing[:5])) + (", …" if len(missing) > 5 else "")
    return ResumableError(
        f"{output}: {len(missing)} of {of} shards are not there yet ({some})",
        "let all parts end, run those again that were killed or failed, then finish",
    )


def visible_gpus() -> int:
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def run_parts(module: str, words: Sequence[str], parts: int) -> None:
    """Runs all parts at once on this machine, a process each, and waits; they end with this process."""
    with tempfile.TemporaryDirectory() as folder:
        processes = []
        try:
            for number in range(parts):
                with open(os.path.join(folder, str(number)), "wb") as said:
                    command = [sys.executable, "-P", "-m", module, *words, "--part", f"{number + 1}/{parts}"]
                    environment = os.environ | environment_of(number, parts, visible_gpus(), os.cpu_count() or 1)
                    processes.append(
                        subprocess.Popen(
                            command, env=environment, stdout=said, stderr=said, preexec_fn=_end_with_parent
                        )
                    )
            codes = [process.wait() for process in processes]
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait()
        for number, code in enumerate(codes):
            if code:
                with open(os.path.join(folder, str(number)), errors="replace") as file:
                    last = (file.read().strip().splitlines() or [f"it ended with {code}"])[-1]
                raise ResumableError(f"part {number + 1} of {parts}: {last.removeprefix('error: ')}")


def environment_of(number: int, parts: int, gpus: int, cores: int) -> dict[str, str]:
    """What a part sees of the machine: one of the GPUs, or a share of the cores where there are none."""
    if gpus:
        own = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if os.environ.get("CUDA_VISIBLE_DEVICES") else []
        return {"CUDA_VISIBLE_DEVICES": own[number % gpus] if own else str(number % gpus)}
    share = max(1, cores // parts)
    first = number * share % cores
    return {"OMP_NUM_THREADS": str(share), "VLLM_CPU_OMP_THREADS_BIND": f"{first}-{min(cores, first + share) - 1}"}


def _end_with_parent() -> None:
    """Asks Linux to end this process with the one that started it, however that ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
