"""The one expensive step from text to windows: files are tokenised, cut, and written as parts."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import lru_cache

from pipeline.runtime import files
from pipeline.runtime.digests import digest_of
from pipeline.runtime.progress import note
from pipeline.text.survey import Repeats, Survey, read_again
from pipeline.text.tokenizer import TextEncoder, chunks, load_tokenizer
from pipeline.windows.cutting import cut_windows, document_name
from pipeline.windows.job import WindowsJob
from pipeline.windows.parts import PART_ROWS, Part, PartBuffer

Batch = list[tuple[str, list[int]]]  # documents' names, each with its next tokens
BATCH_CHARACTERS = 1 << 20


@dataclass(frozen=True)
class TokenisedGroup:
    """What tokenising one group of files came to."""

    parts: list[Part]
    windows: int
    tokens: int
    repeated: int


def tokenise(number: int, surveys: list[Survey], found: Iterable[Repeats], job: WindowsJob) -> TokenisedGroup:
    """Cuts the windows of one group of files and writes them as parts, unless an earlier run did."""
    settings = job.settings
    occurrences: list[dict[int, int]] = [{} for _ in surveys]
    for repeats in found:
        occurrences[repeats.file] |= dict(zip(repeats.documents.tolist(), repeats.occurrences.tolist(), strict=True))
    depends = [
        job.rows_depend_on,
        [survey.digest for survey in surveys],
        [sorted(file.items()) for file in occurrences],
    ]
    folder = files.join(job.writer.work, "parts", digest_of({"depends": depends})[:32])
    done = files.join(folder, "done.json")
    if files.is_file(done):
        saved = json.loads(files.read(done))
        parts = [Part(files.join(folder, name), rows, size) for name, rows, size in saved["parts"]]
        if all(part.is_there() for part in parts):
            return TokenisedGroup(**saved | {"parts": parts})
    counts = Counter(repeated=sum(map(len, occurrences)))
    encoder = encoder_of(job.tokenizer_folder, job.tokenizer["encoding"])
    buffer = PartBuffer(job.corpus, settings.split, settings.seed, job.token_bytes, settings.limit)
    parts = []

    def flush() -> None:
        parts.append(buffer.write(files.join(folder, f"{len(parts):05d}.parquet")))

    for survey, repeated in zip(surveys, occurrences, strict=True):
        batches = encode(document_chunks(survey, repeated, job), encoder, counts)
        batches = reporting(batches, job.writer.work, number, counts)
        for windows in cut_windows(batches, job.window, job.stride, encoder.eos_token_id):
            counts["windows"] += len(windows.documents)
            buffer.add(windows)
            if buffer.rows >= PART_ROWS:
                flush()
    if buffer.rows:
        flush()
    group = TokenisedGroup(parts, counts["windows"], counts["tokens"], counts["repeated"])
    names = [(part.url.rsplit("/", 1)[1], part.rows, part.bytes) for part in parts]
    files.put(done, json.dumps(asdict(group) | {"parts": names}).encode())
    return group


@lru_cache(maxsize=1)
def encoder_of(folder: str, encoding: str) -> TextEncoder:
    """A run's tokenizer, loaded once a process; `encoding` distinguishes two of them in one folder."""
    return load_tokenizer(folder)


def document_chunks(survey: Survey, occurrences: dict[int, int], job: WindowsJob) -> Iterator[tuple[str, str]]:
    """The text of one file's usable documents, in chunks, each with its document's name."""
    usable, part = -1, job.settings.part
    for document in read_again(survey):
        if document is None:
            continue
        usable += 1
        occurrence = occurrences.get(usable, 0)
        if occurrence and job.settings.deduplicate:
            continue
        digest, pieces = document
        if not part.has(digest):
            continue
        name = document_name(digest, occurrence)
        for chunk in chunks(pieces, job.cut_documents):
            yield name, chunk


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
