"""The last steps of a windows store: how its windows are divided into shards, the shards, the manifest."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass

import numpy as np

from pipeline.runtime.digests import digest_of
from pipeline.runtime.errors import UserError
from pipeline.runtime.progress import note
from pipeline.stores.shards import Shard
from pipeline.text.near_copies import Digests
from pipeline.text.survey import NO_TEXT_DIGEST
from pipeline.windows.cutting import ORDERS, shard_start
from pipeline.windows.job import WindowsJob
from pipeline.windows.parts import Part, gather, orders_in
from pipeline.windows.surveys import SurveySummary
from pipeline.windows.tokenise import TokenisedGroup

SHARD_ROWS = 8192
MOST_SHARD_BYTES = 1 << 30  # a shard is sorted in memory
RUN_ROWS, LEAST_RUNS, MOST_RUNS = 1 << 16, 4, 512
WRITERS = 2


@dataclass(frozen=True)
class ShardPlan:
    """How the windows of all parts are divided into shards."""

    parts: list[Part]
    rows: int
    shards: int
    orders: int
    counts: dict[str, int]
    settings_digest: str


def plan_shards(groups: list[TokenisedGroup], job: WindowsJob, summary: SurveySummary, copies: Digests) -> ShardPlan:
    """Chooses the number of shards, and with a limit the last window's place in the shuffled order.

    From here on nothing can be wrong with the input: the output folder becomes this run's.
    """
    parts = sorted((part for group in groups for part in group.parts), key=lambda part: part.url)
    windows = sum(group.windows for group in groups)
    if not windows:
        raise UserError(
            f"--corpus {job.corpus}: no file is long enough for one window of {job.window} tokens: "
            f"give more text or a smaller --window"
        )
    kept, orders = windows, ORDERS
    if job.settings.limit is not None and job.settings.limit < windows:
        smallest = np.empty(0, np.uint64)
        for part in parts:
            smallest = np.sort(np.concatenate([smallest, orders_in(part)]))[: job.settings.limit]
        kept, orders = job.settings.limit, int(smallest[-1]) + 1
    shards = job.settings.shards or -(-kept // SHARD_ROWS)
    row_bytes = max(4 * job.window, 32)
    if kept // shards * row_bytes > MOST_SHARD_BYTES:
        least = kept * row_bytes // MOST_SHARD_BYTES + 1
        raise UserError(f"--shards {shards}: too few for {kept} windows: at least {least}")
    counts = {
        "documents": summary.documents,
        "rejected": summary.rejected,
        "empty": summary.empty,
        "repeated": sum(group.repeated for group in groups),
        "tokens": sum(group.tokens for group in groups),
        "windows": windows,
    }
    if job.settings.near_copies is not None:
        counts["near_copies"] = len(copies)
    text_digests = [digest for digest in summary.text_digests if digest != NO_TEXT_DIGEST]
    note(job.writer.work, "shards", 0, shards)
    settings_digest = digest_of(job.rows_depend_on | {"inputs": text_digests, "shards": shards})
    job.writer.claim(job.tokenizer_folder)
    return ShardPlan(parts, kept, shards, orders, counts, settings_digest)


def shard_runs(plan: ShardPlan) -> Iterable[tuple[int, int]]:
    """Neighbouring shards, first and end, that are written together: each part is then opened once for all of them.

    As many as a worker can sort in memory, but enough runs for many workers.
    """
    rows = max(plan.rows // MOST_RUNS, min(RUN_ROWS, plan.rows // LEAST_RUNS))
    together = max(1, rows * plan.shards // max(1, plan.rows))
    return [(first, min(first + together, plan.shards)) for first in range(0, plan.shards, together)]


def write_shards(run: tuple[int, int], job: WindowsJob, plan: ShardPlan) -> list[Shard]:
    """Writes a run of shards, except those that an earlier run wrote."""
    there = job.writer.shard_files()
    done = {number: job.writer.shard(there.get(number, ()), plan.settings_digest) for number in range(*run)}
    missing = [number for number, shard in done.items() if shard is None]
    if missing:
        starts = [shard_start(number, plan.shards, plan.orders) for number in range(missing[0], missing[-1] + 2)]
        orders, rows = gather(plan.parts, starts[0], starts[-1], job.corpus, job.settings.split, job.token_bytes)
        # `starts` can be 2^64, one more than the type holds: the last shard ends with the last row.
        edges = [*np.searchsorted(orders, np.array(starts[:-1], np.uint64)).tolist(), len(orders)]

        def put(number: int) -> Shard:
            first, end = edges[number - missing[0] :][:2]
            return job.writer.write(number, rows[first:end], plan.settings_digest)

        with ThreadPoolExecutor(WRITERS) as pool:  # compressing, hashing and waiting for the disk need no interpreter
            done |= dict(zip(missing, pool.map(put, missing), strict=True))
    return [shard for shard in done.values() if shard is not None]


def finish(shards: list[Shard], job: WindowsJob, summary: SurveySummary, plan: ShardPlan) -> str:
    """Writes the list of rejects, then the manifest, and removes the parts."""
    job.writer.list_rejects(map(asdict, summary.rejects))
    manifest = job.writer.finish(
        shards,
        tokenizer=job.tokenizer,
        parent=None,
        seed=job.settings.seed,
        counts=plan.counts,
        inputs=summary.inputs,
    )
    return manifest.digest
