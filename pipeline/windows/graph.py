"""The Beam graph that turns text into a windows store, and the work of each of its steps.

Every element is a group of files, a bucket of digests or a shard, never a row. A worker's results are files, named
after everything that they depend on: a step that finds its result does nothing, so a killed run continues.
"""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from operator import truth
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsDict, AsSingleton

from pipeline.runtime.digests import digest_of
from pipeline.runtime.errors import UserError
from pipeline.runtime.progress import note
from pipeline.stores.shards import Shard
from pipeline.text.documents import Source
from pipeline.text.near_copies import Digests
from pipeline.text.survey import NO_TEXT_DIGEST, Repeats, find_repeats
from pipeline.windows.cutting import ORDERS, cut_windows, shard_start
from pipeline.windows.job import WindowsJob
from pipeline.windows.near_copies import bands_of_group, copies_of, pairs_of_bucket, spread_copies
from pipeline.windows.parts import Part, PartBuffer, gather, orders_in, save_parts, saved_parts, write_parts
from pipeline.windows.streams import PlacedStretch, TokenisedStretch, place_stretches
from pipeline.windows.surveys import (
    SurveyedGroup,
    SurveySummary,
    check,
    digests_of_group,
    group_files,
    join_stretches,
    survey_group,
)
from pipeline.windows.tokenise import TokenisedGroup, Work, divide_work, folder_of, tokenise

SHARD_ROWS = 8192
MOST_SHARD_BYTES = 1 << 30  # a shard is sorted in memory
RUN_ROWS, LEAST_RUNS, MOST_RUNS = 1 << 17, 4, 512
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


class MakeWindows(beam.PTransform):
    """Input files to a windows store; its one output is the store's digest, when the manifest is written."""

    def __init__(self, job: WindowsJob, sources: list[Source]):
        super().__init__()
        self.job, self.sources = job, sources

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection:
        job = self.job
        groups = begin | "Files" >> beam.Create(group_files(self.sources, job.settings.stretch_bytes))
        surveys = groups | "Spread files" >> beam.Reshuffle() | "Survey" >> beam.Map(survey_group, job)
        whole = surveys | "Whole files" >> beam.FlatMapTuple(summaries_of_files)
        divided = (
            surveys
            | "Stretches" >> beam.FlatMapTuple(stretches_by_file)
            | "Stretches of a file meet" >> beam.GroupByKey()
            | "Join stretches" >> beam.MapTuple(join_stretches)
        )
        surveyed = (
            (whole, divided)
            | "Whole or not" >> beam.Flatten()
            | "All files" >> beam.combiners.ToList()
            | "Check" >> beam.Map(check, job)
        )
        digests = divided | "Digests of their files" >> beam.Map(digest_of_file)
        copies = (
            surveys
            | "Signatures" >> beam.FlatMap(bands_of_group, job)
            | "Like documents meet" >> beam.GroupByKey()
            | "Find near copies" >> beam.Map(pairs_of_bucket, job)
            | "All pairs" >> beam.combiners.ToList()
            | "Keep one of each group" >> beam.Map(copies_of)
        )
        repeats = (
            {
                "digests": surveys | "Digests" >> beam.FlatMap(digests_of_group, AsDict(digests)),
                "copies": copies | "Spread copies" >> beam.FlatMap(spread_copies),
            }
            | "Equal documents meet" >> beam.CoGroupByKey()
            | "Find repeats" >> beam.FlatMapTuple(repeats_of_bucket)
        )
        tokenised = (
            {"surveys": surveys, "repeats": repeats}
            | "Files and their repeats" >> beam.CoGroupByKey()
            | "Work" >> beam.FlatMap(works_of_group, job, AsSingleton(surveyed | "Checked" >> beam.Map(truth)))
            | "Spread work" >> beam.Reshuffle()
            | "Tokenise" >> beam.Map(tokenise, job)
        )
        of_files, of_stretches = tokenised | "Cut or not" >> beam.Partition(is_stretch, 2)
        of_streams = (
            of_stretches
            | "By file" >> beam.Map(lambda stretch: (stretch.file, stretch))
            | "Streams" >> beam.GroupByKey()
            | "Place stretches" >> beam.FlatMap(places_of_file, job)
            | "Spread stretches" >> beam.Reshuffle()
            | "Cut" >> beam.Map(cut_stretch, job)
        )
        plan = (
            (of_files, of_streams)
            | "Files and streams" >> beam.Flatten()
            | "All parts" >> beam.combiners.ToList()
            | "Plan shards" >> beam.Map(plan_shards, job, AsSingleton(surveyed), AsSingleton(copies))
        )
        shards = (
            plan
            | "Shards" >> beam.FlatMap(shard_runs)
            | "Spread shards" >> beam.Reshuffle()
            | "Write shards" >> beam.FlatMap(write_shards, job, AsSingleton(plan))
        )
        return (
            shards
            | "All shards" >> beam.combiners.ToList()
            | "Finish" >> beam.Map(finish, job, AsSingleton(surveyed), AsSingleton(plan))
        )


def summaries_of_files(number: int, group: SurveyedGroup) -> Iterator[SurveySummary]:
    if not group.is_stretch:
        yield group.summary


def stretches_by_file(number: int, group: SurveyedGroup) -> Iterator[tuple[str, SurveyedGroup]]:
    if group.is_stretch:
        yield group.sources[0].url, group


def digest_of_file(summary: SurveySummary) -> tuple[str, str]:
    (entry,) = summary.inputs
    return entry["file"], entry["digest"]


def works_of_group(group: tuple[int, dict[str, Any]], job: WindowsJob, checked: bool) -> list[Work]:
    """One group of files; `checked` is only waited for: nothing is tokenised before all files were surveyed."""
    number, found = group
    (surveyed,) = found["surveys"]
    return divide_work(number, surveyed, list(found["repeats"]), job)


def is_stretch(tokenised: TokenisedGroup | TokenisedStretch, kinds: int) -> int:
    return int(isinstance(tokenised, TokenisedStretch))


def places_of_file(file: tuple[str, Iterable[TokenisedStretch]], job: WindowsJob) -> Iterator[PlacedStretch]:
    return place_stretches(file[1], job.window)


def cut_stretch(place: PlacedStretch, job: WindowsJob) -> TokenisedGroup:
    """Cuts the windows that start in a stretch and writes them as parts, unless an earlier run did."""
    stretch = place.stretch
    if stretch.first is None:
        return TokenisedGroup([], 0, stretch.tokens, stretch.repeated)
    tokens = [[part.url for part in one.parts] for one in (stretch, *place.later)]
    folder = folder_of([job.rows_depend_on, place.position, place.begun, tokens], job)
    if (saved := saved_parts(folder)) is not None:
        return TokenisedGroup(saved[0], saved[1]["windows"], stretch.tokens, stretch.repeated)
    batches = place.batches(job.window)
    windows = cut_windows(batches, job.window, job.stride, job.eos, place.position, place.begun)
    parts, count = write_parts(windows, folder, PartBuffer.of(job))
    save_parts(folder, parts, {"windows": count})
    return TokenisedGroup(parts, count, stretch.tokens, stretch.repeated)


def repeats_of_bucket(bucket: int, found: dict[str, Any]) -> Iterator[tuple[int, Repeats]]:
    near = {digest.tobytes() for digests in found["copies"] for digest in digests}
    return find_repeats(found["digests"], near)


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
