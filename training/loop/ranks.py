"""The processes of a training run: started by `deepspeed`, or this one alone."""

import os
import sys
import warnings
from collections.abc import Callable
from typing import TypeVar, cast

import torch
from torch.distributed import HashStore  # type: ignore[attr-defined]

from pipeline.runtime.errors import UserError, exit_with

T = TypeVar("T")


RANK, RANKS, LOCAL_RANK, LOCAL_RANKS = "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_SIZE"


class FirstRankError(UserError):
    """What the first process found wrong, in the others."""


def rank() -> int:
    return int(os.environ.get(RANK, 0))


def ranks() -> int:
    return int(os.environ.get(RANKS, 1))


def is_first() -> bool:
    """Whether this process is the one that talks and writes."""
    return rank() == 0


def is_first_here() -> bool:
    """Whether this process is the one that does what is done once on a machine."""
    return local_rank() == 0


def local_rank() -> int:
    return int(os.environ.get(LOCAL_RANK, 0))


def device() -> torch.device:
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", local_rank())


def start() -> None:
    """Joins the processes of this run; DeepSpeed is imported here, and learns about the machine before it looks."""
    warnings.filterwarnings("ignore", category=FutureWarning, module="torch.distributed")  # DeepSpeed's to mend
    if not torch.cuda.is_available():
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
        if "OMP_NUM_THREADS" not in os.environ:  # the ranks of a machine divide its cores
            torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // int(os.environ.get(LOCAL_RANKS, 1))))
    # Alone, also below the launcher, there is nobody to meet, and no port is needed that somebody else could take.
    if ranks() == 1 and not torch.distributed.is_initialized():
        alone = {RANK: "0", RANKS: "1", "LOCAL_RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": "0"}
        os.environ.update(alone | {"LOCAL_RANK": os.environ.get("LOCAL_RANK", "0")})
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


def first_does(work: Callable[[], T]) -> T:
    """What the work returns that the first process does while the others wait; its UserError is everybody's."""
    outcome: list[T | UserError | None] = [None]
    if is_first():
        try:
            outcome = [work()]
        except UserError as error:
            outcome = [error]
    if ranks() > 1:
        torch.distributed.broadcast_object_list(outcome, src=0)
    if isinstance(outcome[0], UserError):
        raise outcome[0] if is_first() else FirstRankError(str(outcome[0]))
    return cast(T, outcome[0])


def machines_do(work: Callable[[], T]) -> T:
    """What the work returns that one process of every machine does while the others wait; one's UserError is all's."""
    outcome: list[T | UserError | None] = [None]
    if is_first_here():
        try:
            outcome = [work()]
        except UserError as error:
            outcome = [error]
    mine, everybodys = outcome[0], outcome
    if ranks() > 1:
        everybodys = [None] * ranks()
        torch.distributed.all_gather_object(everybodys, mine)
    for found in everybodys:
        if isinstance(found, UserError):
            raise found if is_first() else FirstRankError(str(found))
    return cast(T, everybodys[0])


def wait() -> None:
    if torch.distributed.is_initialized() and ranks() > 1:
        torch.distributed.barrier()


def exit_all_with(main: Callable[[], int | None]) -> None:
    """As `exit_with`; what every process finds wrong is said by the first one alone."""

    def say_once() -> int | None:
        try:
            return main()
        except UserError as error:
            if not is_first() and (isinstance(error, FirstRankError) or not torch.distributed.is_initialized()):
                sys.exit(2)
            raise

    exit_with(say_once)
