"""Texts of any length, as they are found, cut into blocks of tokens: what energy models read of a whole text."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.text.documents import UnusableDocument
from pipeline.text.tokenizer import TextEncoder, chunks

BLOCK_TOKENS = 160  # of a block, unless another length is asked for
WHITE_SPACE = "every run of white space is one space, and there is none at either end"
LAST_BLOCK = "kept if it is at least half as long as the others, or the only one"
AT_ONCE = 1 << 20  # characters that are encoded together
LONGEST = 1 << 18  # characters without a place to cut them, in which a tokenizer would need gigabytes


@dataclass(frozen=True)
class Block:
    """Some tokens of one text, which is known by its number, and the characters read since the block before."""

    text: int
    tokens: NDArray[np.int32]
    characters: int


@dataclass(frozen=True)
class TextEnd:
    """A text has no more blocks: how many tokens it had, and what is wrong with it, if it cannot be used."""

    text: int
    tokens: int
    characters: int
    problem: str | None


def cut_texts(texts: Iterable[Iterable[str]], encoder: TextEncoder, block: int) -> Iterator[Block | TextEnd]:
    """Texts, each given in pieces of any size, as blocks of `block` tokens that do not overlap, and their ends.

    White space is normalised before anything is tokenised (see `WHITE_SPACE`), because line breaks alone would give
    generated text away. The last block of a text may be shorter (see `LAST_BLOCK`). A text whose pieces raise
    UnusableDocument, or that is empty, ends with a problem; the next ones are not harmed. Memory does not grow with
    a text.
    """
    held, tokens, read, known = np.empty(0, np.int32), 0, 0, False
    for number, ids, characters, problem in _encoded(texts, encoder):
        read += characters
        if ids is not None:
            held = np.concatenate([held, np.array(ids, np.int32)])
            tokens, known = tokens + len(ids), True
            whole = len(held) // block * block
            for start in range(0, whole, block):
                yield Block(number, held[start : start + block], read)
                read = 0
            held = held[whole:]
            continue
        if problem is None and len(held) and (tokens == len(held) or 2 * len(held) >= block):
            yield Block(number, held, read)
            read = 0
        if problem is None and not tokens:
            problem = "no character that the tokenizer knows" if known else "no text"
        yield TextEnd(number, tokens, read, problem)
        held, tokens, read, known = np.empty(0, np.int32), 0, 0, False


def one_spaced(pieces: Iterable[str]) -> Iterator[str]:
    """The same text with its white space normalised, whatever pieces it comes in."""
    begun, gap = False, False
    for piece in pieces:
        if not piece:
            continue
        words = " ".join(piece.split())
        if not words:
            gap = True
            continue
        yield f" {words}" if begun and (gap or piece[0].isspace()) else words
        begun, gap = True, piece[-1].isspace()


def _encoded(
    texts: Iterable[Iterable[str]], encoder: TextEncoder
) -> Iterator[tuple[int, list[int] | None, int, str | None]]:
    """(number, ids, characters, None) for every chunk of a text, then (number, None, 0, its problem)."""
    batch: list[tuple[int, str | None, str | None]] = []
    characters = 0
    for item in _chunked(texts, encoder.cuts_exactly):
        batch.append(item)
        characters += len(item[1] or "")
        if characters >= AT_ONCE:
            yield from _encode(batch, encoder)
            batch, characters = [], 0
    yield from _encode(batch, encoder)


def _encode(
    batch: list[tuple[int, str | None, str | None]], encoder: TextEncoder
) -> Iterator[tuple[int, list[int] | None, int, str | None]]:
    ids = iter(encoder.encode([chunk for _, chunk, _ in batch if chunk is not None]))
    for number, chunk, problem in batch:
        yield number, None if chunk is None else next(ids), len(chunk or ""), problem


def _chunked(texts: Iterable[Iterable[str]], cut: bool) -> Iterator[tuple[int, str | None, str | None]]:
    """Every text's chunks, then None and its problem."""
    for number, pieces in enumerate(texts):
        problem = None
        try:
            for chunk in chunks(one_spaced(pieces), cut):
                for start in range(0, len(chunk), LONGEST):
                    yield number, _checked(chunk[start : start + LONGEST]), None
        except UnusableDocument as error:
            problem = f"{error.reason}, at {error.offset}"
        yield number, None, problem


def _checked(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UnusableDocument("no text in UTF-8 (a lone surrogate)", error.start) from None
    return text
