"""The survey: a first, cheap reading of all text, before anything is tokenised.

It names each document by the digest of its text, finds those that cannot be used and those that occur more than
once, and so decides early whether a run can succeed. What it finds does not depend on the order of the files.
"""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from pipeline.runtime.errors import UserError
from pipeline.text.documents import Source, UnusableDocument, read_documents

DIGEST_BYTES = 16
BUCKETS = 16
NEAR = -1
MOST_LISTED = 10_000  # rejects of one file that are described one by one; all are counted


@dataclass(frozen=True)
class Reject:
    """A document that was left out, and where: the byte in the file, in Parquet and data sets the row."""

    file: str
    document: int
    byte_offset: int
    reason: str


@dataclass(frozen=True)
class Survey:
    """One input file, or a stretch of one.

    `digests` are those of its usable documents, in order; `unused` has a 1 for each other one.
    """

    source: Source
    documents: int
    digests: bytes
    unused: bytes
    rejects: list[Reject]
    rejected: int
    characters: int

    @property
    def digest(self) -> str:
        """Of the whole file, as far as it is used."""
        return _digest(self.digests)

    @property
    def empty(self) -> int:
        """Documents with no text in them."""
        return sum(self.unused) - self.rejected

    @property
    def as_input(self) -> dict[str, Any]:
        """As a manifest lists it."""
        source = self.source
        facts = {"file": source.url, "bytes": source.bytes, "modified": source.modified}
        return facts | {"documents": self.documents, "digest": self.digest}

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"digests": self.digests.hex(), "unused": self.unused.hex()}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "Survey":
        changed = {name: bytes.fromhex(content[name]) for name in ("digests", "unused")}
        rejects = [Reject(**reject) for reject in content["rejects"]]
        return cls(**content | changed | {"source": Source(**content["source"]), "rejects": rejects})


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).hexdigest()


NO_TEXT_DIGEST = _digest(b"")  # of a file without a usable document


@dataclass(frozen=True)
class Repeats:
    """Documents of one file that are not the first of their text: which of the usable ones, and their occurrence.

    The first of a text that is a near copy of another one has the occurrence NEAR.
    """

    file: int
    documents: np.ndarray
    occurrences: np.ndarray


def survey_file(source: Source) -> Survey:
    """Reads one input file and says what is in it."""
    digests, unused, rejects, rejected, characters = bytearray(), bytearray(), [], 0, 0
    for number, pieces in enumerate(read_documents(source)):
        digest, blank, length = hashlib.blake2b(digest_size=DIGEST_BYTES), True, 0
        try:
            for piece in pieces:
                blank = blank and not piece.strip()
                digest.update(piece.encode())
                length += len(piece)
        except UnusableDocument as error:
            rejected += 1
            if rejected <= MOST_LISTED:
                rejects.append(Reject(source.url, number, error.offset, error.reason))
            unused.append(1)
            continue
        unused.append(blank)
        if not blank:
            digests += digest.digest()
            characters += length
    return Survey(source, len(unused), bytes(digests), bytes(unused), rejects, rejected, characters)


def joined_input(surveys: Iterable[Survey]) -> tuple[dict[str, Any], list[Reject]]:
    """A file as a manifest lists it, and its rejects, from the surveys of all its stretches, in order."""
    digest, documents, entry, rejects = hashlib.blake2b(digest_size=DIGEST_BYTES), 0, {}, list[Reject]()
    for survey in surveys:
        digest.update(survey.digests)
        rejects += [replace(reject, document=documents + reject.document) for reject in survey.rejects]
        rejects = rejects[:MOST_LISTED]
        documents += survey.documents
        entry = survey.as_input
    return entry | {"documents": documents, "digest": digest.hexdigest()}, rejects


def read_again(survey: Survey) -> Iterator[tuple[bytes, Iterator[str]] | None]:
    """The documents of a surveyed file, each with its digest; None for one that cannot be used.

    Text that is not what was surveyed is a UserError, at the latest when its document has been read to the end.
    """
    usable, number = 0, -1
    for number, pieces in enumerate(read_documents(survey.source)):
        if number >= survey.documents:
            raise _changed(survey.source)
        if survey.unused[number]:
            yield None
            continue
        digest = survey.digests[usable * DIGEST_BYTES : (usable + 1) * DIGEST_BYTES]
        usable += 1
        yield digest, _unchanged(pieces, digest, survey.source)
    if number + 1 != survey.documents:
        raise _changed(survey.source)


def _unchanged(pieces: Iterable[str], expected: bytes, source: Source) -> Iterator[str]:
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    try:
        for piece in pieces:
            digest.update(piece.encode())
            yield piece
    except UnusableDocument:
        raise _changed(source) from None
    if digest.digest() != expected:
        raise _changed(source)


def _changed(source: Source) -> UserError:
    return UserError(f"{source.url}: it changed while it was being read: run the same command again")


def check_rejects(rejects: list[Reject], rejected: int, documents: int, most: float) -> None:
    """Stops a run that would leave out more than the share `most` of its documents."""
    if rejected > most * documents:
        first = min(rejects, key=lambda reject: (reject.file, reject.document))
        raise UserError(
            f"{rejected} of {documents} documents cannot be used, more than --max_reject_fraction {most:g} allows; "
            f"the first is in {first.file} at {first.byte_offset}: {first.reason}"
        )


def spread_digests(
    group: int, surveys: list[Survey], divided: Mapping[str, str] | None = None
) -> Iterator[tuple[int, tuple[int, int, str, np.ndarray, bytes]]]:
    """The documents of some files, spread by digest, so that equal ones meet: (bucket, (group, file, …)).

    `divided` has the digests of the files that come in stretches.
    """
    for file, survey in enumerate(surveys):
        whole = (divided or {}).get(survey.source.url, survey.digest)
        digests = np.frombuffer(survey.digests, np.uint8).reshape(-1, DIGEST_BYTES)
        for bucket in range(BUCKETS):
            numbers = np.flatnonzero(digests[:, 0] % BUCKETS == bucket)
            if len(numbers):
                yield bucket, (group, file, whole, numbers, digests[numbers].tobytes())


def find_repeats(
    found: Iterable[tuple[int, int, str, np.ndarray, bytes]], near: Collection[bytes] = ()
) -> Iterator[tuple[int, Repeats]]:
    """Numbers equal documents in the order of their files' digests, then of their places: (group, repeats).

    Files that are equal as a whole are interchangeable: whichever comes first, the same windows result. The stretches
    of a file are groups that follow each other. Of the digests in `near` the first document, too, is listed.
    """
    files = sorted(found, key=lambda item: (item[2], item[0], item[1]))
    rank = np.concatenate([np.full(len(item[3]), place) for place, item in enumerate(files)])
    numbers = np.concatenate([item[3] for item in files])
    digests = np.frombuffer(b"".join(item[4] for item in files), np.dtype(f"V{DIGEST_BYTES}"))
    halves = digests.view("<u8").reshape(-1, 2)
    order = np.lexsort((numbers, rank, halves[:, 1], halves[:, 0]))
    new = np.ones(len(order), bool)
    new[1:] = digests[order][1:] != digests[order][:-1]
    runs = np.flatnonzero(new)
    occurrence = np.empty(len(order), np.int64)
    occurrence[order] = np.arange(len(order)) - np.repeat(runs, np.diff(np.append(runs, len(order))))
    if near:
        occurrence[(occurrence == 0) & [digest.tobytes() in near for digest in digests]] = NEAR
    for place in np.unique(rank[occurrence != 0]):
        here = (rank == place) & (occurrence != 0)
        group, file = files[place][:2]
        yield group, Repeats(file, numbers[here], occurrence[here])
