"""Divides text into train, valid and test: files that make_windows.py reads, a piece of some pages on each line.

  python pipeline/split_texts.py --input 'books/*.txt' --output texts

Each document is cut at ends of lines into pieces of about --piece characters, and each piece goes where its own hash
says: 90 % to train.jsonl, 5 % to valid.jsonl, 5 % to test.jsonl. The same text is always divided in the same way.
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Iterable, Iterator, Sequence

from tqdm import tqdm

from pipeline.runtime import files
from pipeline.runtime.command_line import Parser
from pipeline.runtime.errors import UserError, exit_with
from pipeline.text.documents import FORMATS, Rejected, find_sources, read_documents

SHARES = {"valid": 0.05, "test": 0.05}  # the rest is train


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    sources = find_sources(options.input, "train", options.format, options.text_field, options.encoding)
    found: dict[str, list[str]] = {"train": [], "valid": [], "test": []}
    left_out = 0
    for source in tqdm(sources, unit=" files", dynamic_ncols=True, disable=None):
        for number, document in enumerate(read_documents(source)):
            try:
                for place, piece in enumerate(cut(document, options.piece)):
                    found[split_of(piece)].append(json.dumps({"id": f"{source.url}:{number}:{place}", "text": piece}))
            except Rejected:
                left_out += 1
    if empty := [split for split, lines in found.items() if not lines]:
        raise UserError(
            f"--input {options.input[0]}: too little text, nothing of it fell to {empty[0]}: give more, or see --piece"
        )
    for split, lines in found.items():
        files.put(files.join(options.output, f"{split}.jsonl"), ("\n".join(lines) + "\n").encode())
    counts = {split: len(lines) for split, lines in found.items()} | {"left_out": left_out}
    files.put(files.join(options.output, "splits.json"), json.dumps(counts).encode())
    print(f"texts {options.output}")
    for split, lines in found.items():
        print(f"  {split:<9} {len(lines):,} pieces")
    if left_out:
        print(f"  left out  {left_out:,} documents that cannot be read")
    return 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(__doc__)
    parser.add_argument(
        "--input", action="append", required=True, metavar="PATTERN", help="files of text. May be given several times"
    )
    parser.add_argument("--output", required=True, metavar="DIR", help="where the three files go")
    parser.add_argument("--piece", type=int, default=4000, metavar="N", help="characters of a piece (default: 4000)")
    parser.add_argument("--format", choices=FORMATS, default="auto", help="of the files (default: by name)")
    parser.add_argument("--text_field", default="text", help="field or column that holds the text (default: text)")
    parser.add_argument("--encoding", default="utf-8", help="of text and JSON files (default: utf-8)")
    return parser.parse_args(arguments)


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
    exit_with(lambda: main(sys.argv[1:]))
