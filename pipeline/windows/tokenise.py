"""The one expensive step from text to windows: text is tokenised, cut, and written as parts.

The windows of a file in stretches cannot be cut before it is known how many tokens come before each stretch: there
tokens are what is written, and cut in a second step.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pipeline.runtime import files
from pipeline.runtime.digests import digest_of
from pipeline.runtime.progress import note
from pipeline.text.documents import Source
from pipeline.text.stretches import divide_text, read_stretch
from pipeline.text.survey import NEAR, Repeats, Survey, read_again
from pipeline.text.tokenizer import TextEncoder, chunks, load_tokenizer
from pipeline.windows.cutting import Batch, cut_windows, document_name
from pipeline.windows.job import WindowsJob
from pipeline.windows.parts import Part, PartBuffer, save_parts, saved_parts, write_parts
from pipeline.windows.streams import PlacedStretch, TokenisedStretch, write_tokens
from pipeline.windows.surveys import SurveyedGroup

Text = tuple[str, str]  # a document's name, and a chunk of its text
BATCH_CHARACTERS = 1 << 20


@dataclass(frozen=True)
class Work:
    """What one worker tokenises: a group of files, a stretch of one, or of a .txt file the stretch of a number."""

    number: int
    group: SurveyedGroup
    repeats: list[Repeats]
    text_stretch: int | None = None


@dataclass(frozen=True)
class TokenisedGroup:
    """What tokenising and cutting some text came to."""

    parts: list[Part]
    windows: int
    tokens: int
    repeated: int


def divide_work(number: int, group: SurveyedGroup, repeats: list[Repeats], job: WindowsJob) -> list[Work]:
    """A group as one worker's work, or if it is a large .txt file, as that of many."""
    stretches = divide_text(group.sources[0], job.settings.stretch_bytes)
    if len(stretches) == 1 or not job.cut_documents:
        return [Work(number, group, repeats)]
    (survey,) = group.surveys()
    occurrence = numbered([survey], repeats)[0].get(0, 0)
    if not survey.digests or not is_wanted(survey.digests, occurrence, job):
        return [Work(number, group, repeats)]
    return [Work(number, group, repeats, stretch) for stretch in range(len(stretches))]


def numbered(surveys: list[Survey], found: Iterable[Repeats]) -> list[dict[int, int]]:
    """For each file the occurrence numbers of those usable documents that are not the first of their text."""
    occurrences: list[dict[int, int]] = [{} for _ in surveys]
    for repeats in found:
        occurrences[repeats.file] |= dict(zip(repeats.documents.tolist(), repeats.occurrences.tolist(), strict=True))
    return occurrences


def repeated_in(occurrences: list[dict[int, int]]) -> int:
    return sum(occurrence != NEAR for file in occurrences for occurrence in file.values())


def is_wanted(digest: bytes, occurrence: int, job: WindowsJob) -> bool:
    """Whether a document belongs in the store."""
    alone = job.settings.deduplicate or job.settings.near_copies is not None
    return not (occurrence and alone) and job.settings.part.has(digest)


def tokenise(work: Work, job: WindowsJob) -> TokenisedGroup | TokenisedStretch:
    """Tokenises one worker's share of the text and writes what it comes to, unless an earlier run did."""
    surveys = work.group.surveys()
    occurrences = numbered(surveys, work.repeats)
    depends: list[Any] = [
        job.rows_depend_on,
        [survey.digest for survey in surveys],
        [sorted(file.items()) for file in occurrences],
    ]
    if work.text_stretch is not None:
        stretches = divide_text(work.group.sources[0], job.settings.stretch_bytes)
        source = stretches[work.text_stretch]
        name = document_name(surveys[0].digests, occurrences[0].get(0, 0))
        text: Iterator[Text] = ((name, chunk) for chunk in chunks(read_stretch(stretches, work.text_stretch)))
        counts = Counter(repeated=0 if source.start else repeated_in(occurrences))
        return tokenise_stretch(source, text, folder_of([*depends, source.start, source.end], job), counts, work, job)
    counts = Counter(repeated=repeated_in(occurrences))
    if work.group.is_stretch:
        text = document_chunks(surveys[0], occurrences[0], job)
        return tokenise_stretch(surveys[0].source, text, folder_of([*depends, "tokens"], job), counts, work, job)
    texts = [document_chunks(*file, job) for file in zip(surveys, occurrences, strict=True)]
    return tokenise_files(texts, folder_of(depends, job), counts, work, job)


def folder_of(depends: list[Any], job: WindowsJob) -> str:
    """Where the work that depends on all this leaves its parts."""
    return files.join(job.writer.work, "parts", digest_of({"depends": depends})[:32])


def tokenise_files(
    texts: list[Iterator[Text]], folder: str, counts: Counter[str], work: Work, job: WindowsJob
) -> TokenisedGroup:
    """Cuts the windows of some files, each a stream of its own, and writes them as parts."""
    if (saved := saved_parts(folder)) is not None:
        return TokenisedGroup(saved[0], **saved[1])
    encoder = encoder_of(job.tokenizer_folder, job.tokenizer["encoding"])
    windows = (
        some
        for text in texts
        for some in cut_windows(batches_of(text, encoder, counts, work, job), job.window, job.stride, job.eos)
    )
    parts, count = write_parts(windows, folder, PartBuffer.of(job))
    facts = {"windows": count, "tokens": counts["tokens"], "repeated": counts["repeated"]}
    save_parts(folder, parts, facts)
    return TokenisedGroup(parts, **facts)


def tokenise_stretch(
    source: Source, text: Iterator[Text], folder: str, counts: Counter[str], work: Work, job: WindowsJob
) -> TokenisedStretch:
    """Writes the tokens of a stretch of a file."""
    if (saved := saved_parts(folder)) is not None:
        return TokenisedStretch(source.url, source.start, saved[0], **saved[1])
    encoder = encoder_of(job.tokenizer_folder, job.tokenizer["encoding"])
    parts, facts = write_tokens(batches_of(text, encoder, counts, work, job), folder, job.token_bytes)
    facts |= {"tokens": counts["tokens"], "repeated": counts["repeated"]}
    save_parts(folder, parts, facts)
    return TokenisedStretch(source.url, source.start, parts, **facts)


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


@lru_cache(maxsize=1)
def encoder_of(folder: str, encoding: str) -> TextEncoder:
    """A run's tokenizer, loaded once a process; `encoding` distinguishes two of them in one folder."""
    return load_tokenizer(folder)


def document_chunks(survey: Survey, occurrences: dict[int, int], job: WindowsJob) -> Iterator[Text]:
    """The text of one file's usable documents, in chunks, each with its document's name."""
    usable = -1
    for document in read_again(survey):
        if document is None:
            continue
        usable += 1
        occurrence = occurrences.get(usable, 0)
        digest, pieces = document
        if is_wanted(digest, occurrence, job):
            name = document_name(digest, occurrence)
            for chunk in chunks(pieces, job.cut_documents):
                yield name, chunk


def batches_of(
    text: Iterator[Text], encoder: TextEncoder, counts: Counter[str], work: Work, job: WindowsJob
) -> Iterator[Batch]:
    """Text as tokens, and how far it has come for whoever shows it."""
    who = str(work.number) if work.text_stretch is None else f"{work.number}-{work.text_stretch}"
    for batch in encode(text, encoder, counts):
        yield batch
        note(job.writer.work, "tokenised", who, counts["characters"])


def encode(stream: Iterable[Text], encoder: TextEncoder, counts: Counter[str]) -> Iterator[Batch]:
    """Encodes chunks in batches, one batch ahead: the tokenizer's threads work while the last batch is cut."""

    def start(batch: list[Text]) -> Future[list[list[int]]]:
        return pool.submit(encoder.encode, [text for _, text in batch])

    def finished(batch: list[Text], ids: list[list[int]]) -> Batch:
        counts["tokens"] += sum(map(len, ids))
        counts["characters"] += sum(len(text) for _, text in batch)
        return [(name, run) for (name, _), run in zip(batch, ids, strict=True)]

    with ThreadPoolExecutor(1) as pool:
        ahead: tuple[list[Text], Future[list[list[int]]]] | None = None
        for batch in _batches(stream):
            behind, ahead = ahead, (batch, start(batch))
            if behind:
                yield finished(behind[0], behind[1].result())
        if ahead:
            yield finished(ahead[0], ahead[1].result())


def _batches(stream: Iterable[Text]) -> Iterator[list[Text]]:
    batch, characters = [], 0
    for name, text in stream:
        batch.append((name, text))
        characters += len(text)
        if characters >= BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch
