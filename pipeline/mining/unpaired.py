"""Real and generated texts that have nothing to do with each other, as rows of negatives.

All blocks of the real texts are positives and all blocks of the generated ones negatives. A row has one of each, both
drawn in shuffled order, an empty context, and no log-probabilities: nobody knows them.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import schemas
from pipeline.text.blocks import Block, cut_texts
from pipeline.text.survey import DIGEST_BYTES, Survey, read_again
from pipeline.text.tokenizer import TextEncoder
from pipeline.windows.cutting import Windows, document_name, shuffled_order, window_ids
from schemas.division import LEFT_TO_RIGHT


@dataclass(frozen=True)
class Blocks:
    """Blocks in shuffled order: their ids, as hexadecimal digits, and their tokens."""

    ids: list[str]
    tokens: list[NDArray[np.int32]]

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class Pairing:
    """Which blocks make a row: row i has real block i and generated block i, counted round where one kind runs out."""

    real: Blocks
    generated: Blocks
    rows: int

    def table(self, first: int, end: int, corpus: str, split: str, seed: int) -> pa.Table:
        """Rows first, …, end - 1. A real block that comes again has the next samples, as a window with many has."""
        numbers = range(first, end)
        real = [number % len(self.real) for number in numbers]
        generated = [number % len(self.generated) for number in numbers]
        count = len(numbers)
        columns = {
            "window_id": [self.real.ids[place] for place in real],
            "corpus": [corpus] * count,
            "split": [split] * count,
            "tokens": [self.real.tokens[place] for place in real],
            "direction": [LEFT_TO_RIGHT] * count,  # where the context is empty, either one says the same
            "context_length": [0] * count,
            "positive_log_p": [None] * count,
            "first_sample": [number // len(self.real) for number in numbers],
            "negatives": [[self.generated.tokens[place]] for place in generated],
            "log_p": [None] * count,
            "log_q": [None] * count,
            "seed": [seed] * count,
        }
        return pa.table(columns, schemas.NEGATIVES)


def read_blocks(
    surveys: list[Survey],
    name: str,
    split: str,
    encoder: TextEncoder,
    block: int,
    seed: int,
    read: Callable[[int], object] = lambda characters: None,
) -> Blocks:
    """All blocks of some files, in an order that the seed decides; `read` gets the number of characters read.

    A block's id comes from its text, so neither ids nor order depend on how files are called or arranged.
    """
    documents: list[str] = []
    offsets: list[int] = []
    tokens: list[NDArray[np.int32]] = []
    for survey, names in zip(surveys, document_names(surveys), strict=True):
        offset = 0
        for found in cut_texts(texts_of(survey), encoder, block):
            read(found.characters)
            if isinstance(found, Block):
                documents.append(str(names[found.text]))
                offsets.append(offset)
                tokens.append(found.tokens)
                offset += len(found.tokens)
            else:
                offset = 0
    ids = window_ids(name, split, Windows(documents, np.array(offsets, np.int64), np.empty((0, 0), np.int32)))
    order = np.argsort(shuffled_order(ids, seed), kind="stable").tolist()
    digits = ids.tobytes().hex()
    return Blocks([digits[32 * place : 32 * place + 32] for place in order], [tokens[place] for place in order])


def document_names(surveys: list[Survey]) -> list[list[str | None]]:
    """The name of every document of each file, None of those that cannot be used; equal ones are numbered."""
    seen: Counter[bytes] = Counter()
    found: dict[int, list[str | None]] = {}
    for place in sorted(range(len(surveys)), key=lambda place: surveys[place].digest):
        survey, start = surveys[place], 0
        names: list[str | None] = []
        for unused in survey.unused:
            if unused:
                names.append(None)
                continue
            digest = survey.digests[start : start + DIGEST_BYTES]
            start += DIGEST_BYTES
            names.append(document_name(digest, seen[digest]))
            seen[digest] += 1
        found[place] = names
    return [found[place] for place in range(len(surveys))]


def texts_of(survey: Survey) -> Iterator[Iterator[str]]:
    """A file's documents, as they were when it was surveyed; an empty one stands for each that cannot be used."""
    return (document[1] if document else iter(()) for document in read_again(survey))
