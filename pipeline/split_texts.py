"""Divides text into train, valid and test: files that make_windows.py reads, a piece of some pages on each line.

  python pipeline/split_texts.py --input 'books/*.txt' --output texts

Each document is cut at ends of lines into pieces of about --piece characters, and each piece goes where its own hash
says: 90 % to train.jsonl, 5 % to valid.jsonl, 5 % to test.jsonl. The same text is always divided in the same way.
"""

import hashlib
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tqdm import tqdm

from pipeline.runtime import files
from pipeline.runtime.errors import UserError, exit_with
from pipeline.runtime.settings import Settings, read_settings, setting
from pipeline.text.documents import FORMATS, UnusableDocument, find_sources, read_documents

SHARES = {"valid": 0.05, "test": 0.05}  # the rest is train


@dataclass(frozen=True, kw_only=True)
class SplitSettings(Settings):
    """Which text is divided, into pieces of which size."""

    input: tuple[str, ...] = setting(metavar="PATTERN", help="files of text. May be given several times")
    output: str = setting(metavar="DIR", help="where the three files go")
    piece: int = setting(4000, metavar="N", help="characters of a piece (default: 4000)", least=1)
    format: str = setting("auto", choices=FORMATS, help="of the files (default: by name)")
    text_field: str = setting("text", help="field or column that holds the text (default: text)")
    encoding: str = setting("utf-8", help="of text and JSON files (default: utf-8)")


def main(arguments: Sequence[str] | None = None) -> int:
    settings = read_settings(SplitSettings, sys.argv[1:] if arguments is None else arguments, __doc__)
    counts = split_texts(settings)
    print(f"texts {settings.output}")
    for split in ("train", "valid", "test"):
        print(f"  {split:<9} {counts[split]:,} pieces")
    if counts["left_out"]:
        print(f"  left out  {counts['left_out']:,} documents that cannot be read")
    return 0


def split_texts(settings: SplitSettings) -> dict[str, int]:
    """Writes the three files; says how many pieces each has, and how many documents were left out."""
    sources = find_sources(settings.input, "train", settings.format, settings.text_field, settings.encoding)
    found: dict[str, list[str]] = {"train": [], "valid": [], "test": []}
    left_out = 0
    for source in tqdm(sources, unit=" files", dynamic_ncols=True, disable=None):
        for number, document in enumerate(read_documents(source)):
            try:
                for place, piece in enumerate(cut(document, settings.piece)):
                    found[split_of(piece)].append(json.dumps({"id": f"{source.url}:{number}:{place}", "text": piece}))
            except UnusableDocument:
                left_out += 1
    if empty := [split for split, lines in found.items() if not lines]:
        raise UserError(
            f"--input {settings.input[0]}: too little text, nothing of it fell to {empty[0]}: give more, or see --piece"
        )
    for split, lines in found.items():
        files.put(files.join(settings.output, f"{split}.jsonl"), ("\n".join(lines) + "\n").encode())
    counts = {split: len(lines) for split, lines in found.items()} | {"left_out": left_out}
    files.put(files.join(settings.output, "splits.json"), json.dumps(counts).encode())
    return counts


def cut(document: Iterable[str], size: int) -> Iterator[str]:
    """Pieces of at least `size` characters, each to the end of a line (or twice that where lines never end)."""
    piece = ""
    for text in document:
        for line in text.splitlines(keepends=True):
            piece += line
            if len(piece) >= (size if line.endswith("\n") else 2 * size):
                yield piece
                piece = ""
    if piece.strip():
        yield piece


def split_of(piece: str) -> str:
    """train, valid or test, by the piece's own hash."""
    draw = int.from_bytes(hashlib.blake2b(piece.encode("utf-8", "replace"), digest_size=8).digest()) / 2**64
    for split, share in SHARES.items():
        if draw < share:
            return split
        draw -= share
    return "train"


if __name__ == "__main__":
    exit_with(main)
