"""The Beam graph that turns text into a windows store, and the work of each of its steps.

Every element is a group of files, a bucket of digests or a shard, never a row. A worker's results are files, named
after everything that they depend on: a step that finds its result does nothing, so a killed run continues.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from operator import truth
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsSingleton

from pipeline import files
from pipeline.documents import Source
from pipeline.errors import UserError
from pipeline.manifest import Manifest, write_manifest
from pipeline.output import REJECTS
from pipeline.parts import Part, gather, orders_in
from pipeline.progress import note
from pipeline.shards import SHARDS, Shard, fingerprint, finished_shard, write_shard
from pipeline.survey import Reject, Repeats, Survey, check_rejects, find_repeats, spread_digests, survey_file
from pipeline.tokenise import Cut, tokenise
from pipeline.windows import ORDERS, shard_starts
from pipeline.windows_job import WindowsJob

SHARD_ROWS = 8192
GROUP_BYTES = 32 << 20
MOST_SHARD_TOKENS = 1 << 30  # a shard is sorted in memory


@dataclass(frozen=True)
class Reading:
    """What the survey of all files came to."""

    inputs: list[dict[str, Any]]
    rejects: list[Reject]
    documents: int
    rejected: int
    empty: int
    characters: int


@dataclass(frozen=True)
class Plan:
    """How the windows of all parts are divided into shards."""

    parts: list[Part]
    shards: int
    orders: int
    counts: dict[str, int]
    stamp: str


class MakeWindows(beam.PTransform):
    """Input files to a windows store; its one output is the store's digest, when the manifest is written."""

    def __init__(self, job: WindowsJob, sources: list[Source]):
        super().__init__()
        self.job, self.sources = job, sources

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection:
        job = self.job
        groups = begin | "Files" >> beam.Create(group_files(self.sources))
        surveys = groups | "Spread files" >> beam.Reshuffle() | "Survey" >> beam.Map(survey_group, job)
        reading = (
            surveys
            | "Summarise" >> beam.MapTuple(summarise)
            | "All files" >> beam.combiners.ToList()
            | "Check" >> beam.Map(check, job)
        )
        repeats = (
            surveys
            | "Digests" >> beam.FlatMapTuple(spread_digests)
            | "Equal documents meet" >> beam.GroupByKey()
            | "Find repeats" >> beam.FlatMapTuple(repeats_of_bucket)
        )
        cuts = (
            {"surveys": surveys, "repeats": repeats}
            | "Files and their repeats" >> beam.CoGroupByKey()
            | "Tokenise" >> beam.Map(tokenise_group, job, AsSingleton(reading | "Checked" >> beam.Map(truth)))
        )
        plan = (
            cuts
            | "All parts" >> beam.combiners.ToList()
            | "Plan shards" >> beam.Map(plan_shards, job, AsSingleton(reading))
        )
        shards = (
            plan
            | "Shards" >> beam.FlatMap(shard_numbers)
            | "Spread shards" >> beam.Reshuffle()
            | "Write shard" >> beam.Map(write, job, AsSingleton(plan))
        )
        return (
            shards
            | "All shards" >> beam.combiners.ToList()
            | "Finish" >> beam.Map(finish, job, AsSingleton(reading), AsSingleton(plan))
        )


def group_files(sources: list[Source]) -> list[tuple[int, list[Source]]]:
    """Input files in groups that are each worth a worker's while; a large file is a group of its own."""
    groups: list[list[Source]] = []
    size = GROUP_BYTES
    for source in sources:
        if size >= GROUP_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(source)
        size += GROUP_BYTES if source.bytes is None else source.bytes
    return list(enumerate(groups))


def survey_group(group: tuple[int, list[Source]], job: WindowsJob) -> tuple[int, list[Survey]]:
    number, sources = group
    surveys = []
    for source in sources:
        surveys.append(survey_file(source))
        note(job.work, "surveyed", number, sum(survey.characters for survey in surveys))
    return number, surveys


def summarise(number: int, surveys: list[Survey]) -> Reading:
    inputs = [
        {
            "file": survey.source.url,
            "bytes": survey.source.bytes,
            "documents": survey.documents,
            "digest": survey.digest,
        }
        for survey in surveys
    ]
    return Reading(
        inputs,
        [reject for survey in surveys for reject in survey.rejects],
        sum(survey.documents for survey in surveys),
        sum(survey.rejected for survey in surveys),
        sum(sum(survey.unused) - survey.rejected for survey in surveys),
        sum(survey.characters for survey in surveys),
    )


def check(readings: list[Reading], job: WindowsJob) -> Reading:
    """The readings of all groups as one; raises where too many documents cannot be used."""
    whole = Reading(
        sorted((entry for reading in readings for entry in reading.inputs), key=lambda entry: str(entry["file"])),
        sorted((reject for reading in readings for reject in reading.rejects), key=lambda r: (r.file, r.document)),
        sum(reading.documents for reading in readings),
        sum(reading.rejected for reading in readings),
        sum(reading.empty for reading in readings),
        sum(reading.characters for reading in readings),
    )
    check_rejects(whole.rejects, whole.rejected, whole.documents, job.max_reject_fraction)
    note(job.work, "characters", 0, whole.characters)
    return whole


def tokenise_group(group: tuple[int, dict[str, Any]], job: WindowsJob, checked: bool) -> Cut:
    number, found = group
    (surveys,) = found["surveys"]
    return tokenise(number, surveys, found["repeats"], job)


def repeats_of_bucket(bucket: int, found: Iterable[Any]) -> Iterator[tuple[int, Repeats]]:
    return find_repeats(found)


def plan_shards(cuts: list[Cut], job: WindowsJob, reading: Reading) -> Plan:
    """Chooses the number of shards, and with a limit the last window's place in the shuffled order."""
    parts = sorted((part for cut in cuts for part in cut.parts), key=lambda part: part.url)
    windows = sum(cut.windows for cut in cuts)
    if not windows:
        raise UserError(
            f"--corpus {job.corpus}: no file is long enough for one window of {job.window} tokens: "
            f"give more text or a smaller --window"
        )
    kept, orders = windows, ORDERS
    if job.limit is not None and job.limit < windows:
        smallest = np.empty(0, np.uint64)
        for part in parts:
            smallest = np.sort(np.concatenate([smallest, orders_in(part)]))[: job.limit]
        kept, orders = job.limit, int(smallest[-1]) + 1
    shards = job.shards or -(-kept // SHARD_ROWS)
    if kept // shards * job.window > MOST_SHARD_TOKENS:
        raise UserError(
            f"--shards {shards}: too few for {kept} windows: at least {kept * job.window // MOST_SHARD_TOKENS + 1}"
        )
    counts = {
        "documents": reading.documents,
        "rejected": reading.rejected,
        "empty": reading.empty,
        "repeated": sum(cut.repeated for cut in cuts),
        "tokens": sum(cut.tokens for cut in cuts),
        "windows": windows,
    }
    contents = sorted(str(entry["digest"]) for entry in reading.inputs)
    note(job.work, "shards", 0, shards)
    stamp = fingerprint(job.rows_depend_on | {"inputs": contents, "shards": shards})
    return Plan(parts, shards, orders, counts, stamp)


def shard_numbers(plan: Plan) -> Iterable[int]:
    return range(plan.shards)


def write(number: int, job: WindowsJob, plan: Plan) -> Shard:
    """Writes one shard, unless an earlier run did."""
    if (finished := finished_shard(job.output, number, "windows", plan.stamp)) is not None:
        return finished
    first, end = shard_starts(plan.shards, plan.orders)[number : number + 2]
    rows = gather(plan.parts, first, end, job.corpus, job.split, job.token_bytes)
    return write_shard(job.output, number, rows, plan.stamp)


def finish(shards: list[Shard], job: WindowsJob, reading: Reading, plan: Plan) -> str:
    """Writes the list of rejects, then the manifest, and removes the parts."""
    if reading.rejects:
        lines = "".join(json.dumps(asdict(reject)) + "\n" for reject in reading.rejects)
        files.put(files.join(job.output, REJECTS, "documents.jsonl"), lines.encode())
    written = {shard.file for shard in shards}
    manifest = Manifest(
        kind="windows",
        shards=sorted(shards, key=lambda shard: shard.file),
        settings=job.record.settings,
        tokenizer=job.tokenizer,
        parent=None,
        seed=job.seed,
        command=job.record.command,
        directory=job.record.directory,
        counts=plan.counts,
        inputs=reading.inputs,
    )
    write_manifest(job.output, manifest)
    for name in files.names_in(files.join(job.output, SHARDS)):
        if f"{SHARDS}/{name}" not in written:  # left by a run of another text that ended before its manifest
            files.remove(files.join(job.output, SHARDS, name))
    files.remove(job.work)
    return manifest.digest
