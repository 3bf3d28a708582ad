"""The processes of a training run: started by `deepspeed`, `torchrun` or `srun`, or this one alone.

Each finds its place in the variables that its launcher sets; no process has to reach another machine by ssh.
"""

import os
import re
import socket
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar, cast

from pipeline.runtime.errors import UserError, exit_with

if TYPE_CHECKING:
    import torch

T = TypeVar("T")

RANK, RANKS, LOCAL_RANK, LOCAL_RANKS = "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_SIZE"
ADDRESS, PORT = "MASTER_ADDR", "MASTER_PORT"
PORTS = range(10_000, 30_000)  # of which a Slurm job takes one: below those that systems give to whoever asks


@dataclass(frozen=True)
class Place:
    """Where a process stands among those of its run, and of its machine; and where they all meet."""

    rank: int = 0
    ranks: int = 1
    local_rank: int = 0
    local_ranks: int = 1
    address: str = "localhost"
    port: int = 0


def place_of(environment: Mapping[str, str]) -> Place:
    """What the variables of deepspeed, torchrun or Slurm's srun say; a process without them is alone."""
    try:
        if RANK in environment or RANKS in environment:
            return _place_of_torch(environment)
        if "SLURM_PROCID" in environment and not _is_batch_script(environment):
            return _place_of_slurm(environment)
    except ValueError as error:
        raise UserError(f"the launcher's variables say nothing sensible of this process ({error})") from None
    return Place()


def _place_of_torch(environment: Mapping[str, str]) -> Place:
    ranks = int(environment.get(RANKS, 1))
    local_ranks = environment.get(LOCAL_RANKS) or environment.get("LOCAL_WORLD_SIZE") or 1  # deepspeed's, torchrun's
    if ranks > 1 and (missing := [name for name in (RANK, ADDRESS, PORT) if name not in environment]):
        raise UserError(f"{missing[0]}: not set, though {RANKS} is {ranks}: start with torchrun, srun or deepspeed")
    return Place(
        int(environment.get(RANK, 0)),
        ranks,
        int(environment.get(LOCAL_RANK, 0)),
        int(local_ranks),
        environment.get(ADDRESS, "localhost"),
        int(environment.get(PORT, 0)),
    )


def _place_of_slurm(environment: Mapping[str, str]) -> Place:
    """Of a task of srun's; the first task is on the first node. MASTER_ADDR and MASTER_PORT may say otherwise."""

    def find(*names: str) -> str:
        return next((environment[name] for name in names if environment.get(name)), "")

    ranks = int(find("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS") or 1)
    nodes = find("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST")
    tasks = tasks_of_nodes(find("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE") or str(ranks))
    if ranks > 1 and not (nodes or find(ADDRESS)):
        raise UserError("SLURM_JOB_NODELIST: not set, and no MASTER_ADDR either: start with srun")
    number = int(find("SLURM_JOB_ID", "SLURM_JOBID") or 0) * 31 + int(find("SLURM_STEP_ID", "SLURM_STEPID") or 0)
    return Place(
        int(environment["SLURM_PROCID"]),
        ranks,
        int(find("SLURM_LOCALID") or 0),
        tasks[min(int(find("SLURM_NODEID") or 0), len(tasks) - 1)],
        find(ADDRESS) or first_node(nodes),
        int(find(PORT) or PORTS[number % len(PORTS)]),
    )


def _is_batch_script(environment: Mapping[str, str]) -> bool:
    """Whether it is what sbatch started: one process, however many tasks the job is to have."""
    return environment.get("ENVIRONMENT") == "BATCH" and not {"SLURM_STEP_ID", "SLURM_STEPID"} & environment.keys()


def first_node(nodes: str) -> str:
    """The first name of Slurm's short form of a list: node[003-010,12],other gives node003."""
    first = re.match(r"(?:[^,\[]|\[[^\]]*\])*", nodes)
    return re.sub(r"\[([^\],-]*)[^\]]*\]", r"\1", first[0]) if first else ""


def tasks_of_nodes(counts: str) -> list[int]:
    """The tasks of each node from Slurm's short form: 4(x2),1 gives 4, 4, 1."""
    found = []
    for part in counts.split(","):
        number, _, times = part.rstrip(")").partition("(x")
        found += [int(number)] * int(times or 1)
    return found


class FirstRankError(UserError):
    """What the first process found wrong, in the others."""


def rank() -> int:
    return place_of(os.environ).rank


def ranks() -> int:
    return place_of(os.environ).ranks


def is_first() -> bool:
    """Whether this process is the one that talks and writes."""
    return rank() == 0


def device() -> "torch.device":
    """The GPU of this process: of those that it sees, which may be all of the machine's or its own alone."""
    import torch

    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", place_of(os.environ).local_rank % torch.cuda.device_count())


def name_accelerator() -> None:
    """Tells DeepSpeed, before it is imported, that there is no GPU: it would look for one, and warn at length."""
    if device().type == "cpu":
        os.environ.setdefault("DS_ACCELERATOR", "cpu")


def start() -> None:
    """Joins the processes of this run; DeepSpeed is imported here, and learns about the machine before it looks."""
    import torch
    from torch.distributed import HashStore  # type: ignore[attr-defined]

    warnings.filterwarnings("ignore", category=FutureWarning, module="torch.distributed")  # DeepSpeed's to mend
    place = place_of(os.environ)
    name_accelerator()
    if not torch.cuda.is_available() and "OMP_NUM_THREADS" not in os.environ:  # the ranks of a machine divide its cores
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // place.local_ranks))
    os.environ.update(variables(place, device()))
    # Alone, also below a launcher, there is nobody to meet, and no port is needed that somebody else could take.
    if place.ranks == 1 and not torch.distributed.is_initialized():
        backend = "nccl" if torch.cuda.is_available() else "gloo"
        torch.distributed.init_process_group(backend, store=HashStore(), rank=0, world_size=1)
        if (remembered := sys.modules.get("deepspeed.utils.groups")) is not None:
            # An engine of vLLM that ends in this process ends all groups of torch's: DeepSpeed has to forget them too.
            remembered._release_process_group_references()
    import deepspeed

    # DeepSpeed would compile a shared-memory operator for CPU ranks, some minutes long; torch's gloo does without.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    if torch.cuda.is_available():
        torch.cuda.set_device(device())
    deepspeed.init_distributed(verbose=False)


def variables(place: Place, device: "torch.device") -> dict[str, str]:
    """What DeepSpeed and torch look for, whichever launcher it was: DeepSpeed takes the GPU of the local rank."""
    return {
        RANK: str(place.rank),
        RANKS: str(place.ranks),
        LOCAL_RANK: str(place.local_rank if device.type == "cpu" else device.index),
        LOCAL_RANKS: str(place.local_ranks),
        ADDRESS: place.address,
        PORT: str(place.port),
    }


def first_does(work: Callable[[], T]) -> T:
    """What the work returns that the first process does while the others wait; its UserError is everybody's."""
    outcome: list[T | UserError | None] = [None]
    if is_first():
        try:
            outcome = [work()]
        except UserError as error:
            outcome = [error]
    if ranks() > 1:
        import torch

        torch.distributed.broadcast_object_list(outcome, src=0)
    if isinstance(outcome[0], UserError):
        raise outcome[0] if is_first() else FirstRankError(str(outcome[0]))
    return cast(T, outcome[0])


def disks_do(work: Callable[[], T]) -> T:
    """What the work returns that one process of every disk does while the others wait; one's UserError is all's."""
    outcome: T | UserError | None = None
    if is_first_of_disk():
        try:
            outcome = work()
        except UserError as error:
            outcome = error
    outcomes = _gather(outcome)
    for found in outcomes:
        if isinstance(found, UserError):
            raise found if is_first() else FirstRankError(str(found))
    return cast(T, outcomes[0])


def is_first_of_disk() -> bool:
    """Whether this process is the first of those that write to the same disk, which all processes find out together.

    Processes of one machine do, unless they are in containers of their own.
    """
    facts = os.stat(tempfile.gettempdir())
    mine = (socket.gethostname(), facts.st_dev, facts.st_ino)
    return _gather(mine).index(mine) == rank()


def _gather(mine: T) -> list[T]:
    """What every process has, in the order of the ranks."""
    if ranks() == 1:
        return [mine]
    import torch

    found: list[T | None] = [None] * ranks()
    torch.distributed.all_gather_object(found, mine)
    return cast(list[T], found)


def wait() -> None:
    if have_met() and ranks() > 1:
        import torch

        torch.distributed.barrier()


def have_met() -> bool:
    """Whether the processes can speak with each other; where torch was not needed yet, they cannot."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.distributed.is_initialized())


def exit_all_with(main: Callable[[], int | None]) -> None:
    """As `exit_with`; what every process finds wrong is said by the first one alone."""

    def say_once() -> int | None:
        try:
            return main()
        except UserError as error:
            if not is_first() and (isinstance(error, FirstRankError) or not have_met()):
                sys.exit(2)
            raise

    exit_with(say_once)
