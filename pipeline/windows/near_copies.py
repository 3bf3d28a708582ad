"""Near copies among all documents, as steps of the Beam graph: signatures, bands as keys, pairs, one of each group.

Every element is a group of files or a bucket of bands. Signatures are files in the work folder, which a killed run that
is started again finds there.
"""

import hashlib
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from pipeline.runtime import files
from pipeline.runtime.randomness import U64
from pipeline.text.near_copies import (
    PAIR,
    PLACES,
    Digests,
    Signatures,
    all_but_one,
    band_hashes,
    choose_bands,
    signature,
    similar_pairs,
)
from pipeline.text.survey import BUCKETS, DIGEST_BYTES, Survey, read_again
from pipeline.windows.job import WindowsJob
from pipeline.windows.surveys import SurveyedGroup

BAND_BUCKETS = 64

Banded = tuple[U64, Digests, NDArray[np.uint8]]  # bands' hashes, each with its document's digest and signature


def bands_of_group(group: tuple[int, SurveyedGroup], job: WindowsJob) -> Iterator[tuple[int, Banded]]:
    """The bands of a group's documents, in buckets; nothing unless near copies are to be found."""
    if job.settings.near_copies is None:
        return
    bands, rows = choose_bands(job.settings.near_copies)
    digests, signatures = signatures_of(group[1], job)
    hashes = band_hashes(signatures, bands, rows).reshape(-1)
    documents = np.repeat(np.arange(len(digests)), bands)
    places = signatures.astype(np.uint8)
    for bucket in range(BAND_BUCKETS):
        here = np.flatnonzero(hashes % np.uint64(BAND_BUCKETS) == bucket)
        if len(here):
            yield bucket, (hashes[here], digests[documents[here]], places[documents[here]])


def signatures_of(group: SurveyedGroup, job: WindowsJob) -> tuple[Digests, Signatures]:
    """The digests and signatures of a group's documents, those without a word left out; read only once."""
    surveys = group.surveys()
    name = hashlib.sha256(b"".join(survey.digests for survey in surveys)).hexdigest()[:32]
    url = files.join(job.writer.work, "signatures", name)
    row = np.dtype([("digest", f"V{DIGEST_BYTES}"), ("signature", np.uint32, PLACES)])
    data = files.read(url) if files.is_file(url) else b""
    if hashlib.sha256(data[32:]).digest() != data[:32]:
        found = dict(pair for survey in surveys for pair in _signatures(survey))
        table = np.empty(len(found), row)
        table["digest"] = np.frombuffer(b"".join(found), table.dtype["digest"])
        table["signature"] = np.array(list(found.values()), np.uint32).reshape(-1, PLACES)
        data = hashlib.sha256(table.tobytes()).digest() + table.tobytes()
        files.put(url, data)
    table = np.frombuffer(data[32:], row)
    return table["digest"], table["signature"]


def _signatures(survey: Survey) -> Iterator[tuple[bytes, Signatures]]:
    for document in read_again(survey):
        if document is not None and (found := signature(document[1])) is not None:
            yield document[0], found


def pairs_of_bucket(bucket: tuple[int, Iterable[Banded]], job: WindowsJob) -> NDArray[np.void]:
    hashes, digests, places = (np.concatenate(some) for some in zip(*bucket[1], strict=True))
    return similar_pairs(hashes, digests, places, job.settings.near_copies or 0)


def copies_of(pairs: list[NDArray[np.void]]) -> Digests:
    """Digests of the documents that are to be left out."""
    return all_but_one(np.concatenate([np.empty(0, PAIR), *pairs]))


def spread_copies(copies: Digests) -> Iterator[tuple[int, Digests]]:
    """In the buckets in which equal documents meet."""
    first = np.frombuffer(copies.tobytes(), np.uint8)[::DIGEST_BYTES]
    for bucket in range(BUCKETS):
        if len(here := copies[first % BUCKETS == bucket]):
            yield bucket, here
