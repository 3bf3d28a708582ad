"""The Beam graph that turns text into a windows store, and the work of each of its steps.

Every element is a group of files, a bucket of digests or a shard, never a row. A worker's results are files, named
after everything that they depend on: a step that finds its result does nothing, so a killed run continues.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsSingleton

from pipeline import files
from pipeline.documents import Source, read_documents
from pipeline.errors import UserError
from pipeline.manifest import Manifest, Record, write_manifest
from pipeline.output import REJECTS, WORK
from pipeline.parts import PART_ROWS, Part, PartBuffer, gather, orders_in
from pipeline.progress import note
from pipeline.shards import Shard, fingerprint, finished_shard, write_shard
from pipeline.survey import (
    DIGEST_BYTES,
    Reject,
    Repeats,
    Survey,
    check_rejects,
    find_repeats,
    spread_digests,
    survey_file,
)
from pipeline.tokenizer import TOKENIZER_FOLDER, TextEncoder, chunks, load_tokenizer
from pipeline.windows import ORDERS, cut_windows, document_name, shard_starts

Batch = list[tuple[str, list[int]]]  # documents' names, each with its next tokens

SHARD_ROWS = 8192
GROUP_BYTES = 32 << 20
BATCH_CHARACTERS = 1 << 20
MOST_SHARD_TOKENS = 1 << 30  # a shard is sorted in memory


@dataclass(frozen=True)
class WindowsJob:
    """What every worker knows: the settings that the rows depend on, and where things are."""

    output: str
    corpus: str
    split: str
    window: int
    stride: int
    seed: int
    shards: int | None
    limit: int | None
    deduplicate: bool
    max_reject_fraction: float
    cut_documents: bool
    tokenizer: dict[str, Any]
    encoding: str
    record: Record

    @property
    def work(self) -> str:
        return files.join(self.output, WORK)

    @property
    def rows_depend_on(self) -> dict[str, Any]:
        """All but the text itself and the number of shards: file names, for one, are no part of a row."""
        names = ("corpus", "split", "window", "stride", "seed", "limit", "deduplicate", "encoding")
        return {name: getattr(self, name) for name in names}

    @property
    def token_bytes(self) -> int:
        return 2 if self.tokenizer["vocabulary_size"] <= 1 << 16 else 4


@dataclass(frozen=True)
class Reading:
    """What the survey of all files came to."""

    inputs: list[dict[str, Any]]
    rejects: list[Reject]
    documents: int
    empty: int
    characters: int


@dataclass(frozen=True)
class Cut:
    """What tokenising one group of files came to."""

    parts: list[Part]
    windows: int
    tokens: int
    repeated: int


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
            | "Tokenise" >> beam.Map(tokenise, job, AsSingleton(reading))
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
    rejects = [reject for survey in surveys for reject in survey.rejects]
    unused = sum(len(survey.unused) for survey in surveys)
    documents, characters = (sum(getattr(survey, name) for survey in surveys) for name in ("documents", "characters"))
    return Reading(inputs, rejects, documents, unused - len(rejects), characters)


def check(readings: list[Reading], job: WindowsJob) -> Reading:
    """The readings of all groups as one; raises where too many documents cannot be used."""
    whole = Reading(
        sorted((entry for reading in readings for entry in reading.inputs), key=lambda entry: str(entry["file"])),
        sorted((reject for reading in readings for reject in reading.rejects), key=lambda r: (r.file, r.document)),
        sum(reading.documents for reading in readings),
        sum(reading.empty for reading in readings),
        sum(reading.characters for reading in readings),
    )
    check_rejects(whole.rejects, whole.documents, job.max_reject_fraction)
    note(job.work, "characters", 0, whole.characters)
    return whole


def repeats_of_bucket(bucket: int, found: Iterable[Any]) -> Iterator[tuple[int, Repeats]]:
    return find_repeats(found)


def tokenise(group: tuple[int, dict[str, Any]], job: WindowsJob, reading: Reading) -> Cut:
    """Cuts the windows of one group of files and writes them as parts, unless an earlier run did."""
    number, found = group
    (surveys,) = found["surveys"]
    occurrences: list[dict[int, int]] = [{} for _ in surveys]
    for repeats in found["repeats"]:
        occurrences[repeats.file] |= dict(zip(repeats.documents.tolist(), repeats.occurrences.tolist(), strict=True))
    depends = [
        job.rows_depend_on,
        [survey.digest for survey in surveys],
        [sorted(file.items()) for file in occurrences],
    ]
    folder = files.join(job.work, "parts", fingerprint({"depends": depends})[:32])
    done = files.join(folder, "done.json")
    if files.is_file(done):
        saved = json.loads(files.read(done))
        return Cut(**saved | {"parts": [Part(files.join(folder, name), rows) for name, rows in saved["parts"]]})
    counts = Counter(repeated=sum(map(len, occurrences)))
    encoder = encoder_of(job.output, job.tokenizer["digest"])
    buffer = PartBuffer(job.corpus, job.split, job.seed, job.token_bytes, job.limit)
    parts: list[Part] = []

    def flush() -> None:
        parts.append(buffer.write(files.join(folder, f"{len(parts):05d}.parquet")))

    for survey, repeated in zip(surveys, occurrences, strict=True):
        batches = encode(document_chunks(survey, repeated, job), encoder, counts)
        batches = reporting(batches, job.work, number, counts)
        for windows in cut_windows(batches, job.window, job.stride, encoder.eos_token_id):
            counts["windows"] += len(windows.documents)
            buffer.add(windows)
            if buffer.rows >= PART_ROWS:
                flush()
    if buffer.rows:
        flush()
    cut = Cut(parts, counts["windows"], counts["tokens"], counts["repeated"])
    names = [(part.url.rsplit("/", 1)[1], part.rows) for part in parts]
    files.put(done, json.dumps(asdict(cut) | {"parts": names}).encode())
    return cut


@lru_cache(maxsize=1)
def encoder_of(store: str, digest: str) -> TextEncoder:
    """A store's tokenizer, loaded once a process."""
    return load_tokenizer(files.join(store, TOKENIZER_FOLDER))


def document_chunks(survey: Survey, occurrences: dict[int, int], job: WindowsJob) -> Iterator[tuple[str, str]]:
    """The text of one file's usable documents, in chunks, each with its document's name."""
    usable = -1
    for number, pieces in enumerate(read_documents(survey.source)):
        if number in survey.unused:
            continue
        usable += 1
        occurrence = occurrences.get(usable, 0)
        if occurrence and job.deduplicate:
            continue
        digest = survey.digests[usable * DIGEST_BYTES : (usable + 1) * DIGEST_BYTES]
        name = document_name(digest, occurrence)
        for chunk in chunks(_unchanged(pieces, digest, survey.source.url), job.cut_documents):
            yield name, chunk


def _unchanged(pieces: Iterable[str], expected: bytes, url: str) -> Iterator[str]:
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for piece in pieces:
        digest.update(piece.encode())
        yield piece
    if digest.digest() != expected:
        raise UserError(f"{url}: it changed while it was being read: run the same command again")


def reporting(batches: Iterator[Batch], work: str, number: int, counts: Counter[str]) -> Iterator[Batch]:
    """The same batches, and how far they have come for whoever shows it."""
    for batch in batches:
        yield batch
        note(work, "tokenised", number, counts["characters"])


def encode(stream: Iterable[tuple[str, str]], encoder: TextEncoder, counts: Counter[str]) -> Iterator[Batch]:
    """Encodes chunks in batches, one batch ahead: the tokenizer's threads work while the last batch is cut."""

    def start(batch: list[tuple[str, str]]) -> Future[list[list[int]]]:
        return pool.submit(encoder.encode, [text for _, text in batch])

    def finished(batch: list[tuple[str, str]], ids: list[list[int]]) -> Batch:
        counts["tokens"] += sum(map(len, ids))
        counts["characters"] += sum(len(text) for _, text in batch)
        return [(name, run) for (name, _), run in zip(batch, ids, strict=True)]

    with ThreadPoolExecutor(1) as pool:
        ahead: tuple[list[tuple[str, str]], Future[list[list[int]]]] | None = None
        for batch in _batches(stream):
            behind, ahead = ahead, (batch, start(batch))
            if behind:
                yield finished(behind[0], behind[1].result())
        if ahead:
            yield finished(ahead[0], ahead[1].result())


def _batches(stream: Iterable[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    batch, characters = [], 0
    for name, text in stream:
        batch.append((name, text))
        characters += len(text)
        if characters >= BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


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
        "rejected": len(reading.rejects),
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
    files.remove(job.work)
    return manifest.digest
