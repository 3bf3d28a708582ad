"""Texts that are to be told apart: what they are, if that is known, and how detectors read them."""

from collections.abc import Iterator
from dataclasses import dataclass

from pipeline.text.blocks import one_spaced
from pipeline.text.documents import Source, UnusableDocument
from pipeline.text.named_texts import read_texts


@dataclass(frozen=True)
class LabelledFile:
    """A file of texts, and what they are, if that is known."""

    source: Source
    label: str | None


def whole_texts(source: Source) -> Iterator[str]:
    """The texts of a file with their white space normalised; one that cannot be read is empty."""
    for text in read_texts(source):
        try:
            yield "".join(one_spaced(text.pieces))
        except UnusableDocument:
            yield ""
