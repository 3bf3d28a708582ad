"""Finds documents that are copies, whole or in large part, of text elsewhere: of test documents in train, above all.

  python pipeline/find_copies.py --input 'splits/train*.jsonl' --among splits/test.jsonl

A document's share is that of its distinct runs of eight words, lower-cased, that stand anywhere in --input. Named is
each document of --among with a share above --max_copied, the largest first; --output has them as JSON. The runs of
--among are held in memory, about 32 bytes a word; --input is read once, whatever its size. A file that is in both is
not searched for copies of itself. Nothing is changed, and the exit code is 0 also where copies are found.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.runtime import files
from pipeline.runtime.errors import UserError, exit_with
from pipeline.runtime.progress import Bar
from pipeline.runtime.settings import Settings, read_settings, setting
from pipeline.text.copies import MOST_COPIED, SHINGLE_WORDS, copied_shares, found_in, gather
from pipeline.text.documents import FORMATS, Source, UnusableDocument
from pipeline.text.named_texts import find_texts, read_texts

SCRIPT = "pipeline/find_copies.py"


@dataclass(frozen=True, kw_only=True)
class CopiesSettings(Settings):
    """Which documents are asked about, and which text is searched."""

    input: tuple[str, ...] = setting(
        metavar="PATTERN", help="files whose text is searched, such as train. May be given several times"
    )
    among: tuple[str, ...] = setting(
        metavar="PATTERN", help="files whose documents are asked about, such as test. May be given several times"
    )
    max_copied: float = setting(
        MOST_COPIED, metavar="F", help=f"name documents above it (default: {MOST_COPIED:g})", least=0, most=1
    )
    format: str = setting("auto", choices=FORMATS, help="of the files (default: by name)")
    text_field: str = setting("text", help="field or column that holds the text (default: text)")
    encoding: str = setting("utf-8", help="of text and JSON files (default: utf-8)")
    output: str | None = setting(None, metavar="FILE", help="a JSON file of what was found (default: none)")


class Documents:
    """The documents of files, with a bar; those that cannot be read are counted, and are empty."""

    def __init__(self, sources: list[Source], what: str):
        self.sources, self.what = sources, what
        self.names: list[tuple[str, str]] = []  # file and id of each
        self.unreadable = 0

    def __iter__(self) -> Iterator[Iterable[str]]:
        with Bar(desc=self.what, unit=" documents", unit_scale=True) as bar:
            for number, source in enumerate(self.sources, 1):
                bar.set_postfix_str(f"file {number:,} of {len(self.sources):,}", refresh=False)
                for text in read_texts(source):
                    self.names.append((source.url, text.id))
                    yield self.usable(text.pieces)
                    bar.update()

    def usable(self, pieces: Iterable[str]) -> Iterator[str]:
        try:
            yield from pieces
        except UnusableDocument:
            self.unreadable += 1


def main(arguments: Sequence[str] | None = None) -> int:
    settings = read_settings(CopiesSettings, sys.argv[1:] if arguments is None else arguments, __doc__)
    describe(find_copies(settings), settings)
    return 0


def find_copies(settings: CopiesSettings) -> dict[str, Any]:
    """What was found, as --output has it."""
    among, searched = find_files(settings)
    asked = Documents(among, "reading")
    shingles = gather(asked)
    passing = Documents(searched, "looking for copies")
    shares = copied_shares(shingles, found_in(passing, shingles)).tolist()
    over = [(*name, share) for name, share in zip(asked.names, shares, strict=True) if share > settings.max_copied]
    result = {
        "documents": len(shares),
        "searched": len(passing.names),
        "unreadable": asked.unreadable + passing.unreadable,
        "max_copied": settings.max_copied,
        "shingle_words": SHINGLE_WORDS,
        "copies": [
            {"file": file, "id": id, "share": share} for file, id, share in sorted(over, key=lambda one: -one[2])
        ],
        "call": {"stage": SCRIPT, "settings": settings.to_json()},
    }
    if settings.output is not None:
        files.put(settings.output, json.dumps(result, indent=1).encode())
    return result


def find_files(settings: CopiesSettings) -> tuple[list[Source], list[Source]]:
    """The files of --among, and those of --input that are not among them."""
    reading = settings.text_field, settings.encoding, settings.format
    among = find_texts("among", settings.among, *reading)
    own = {files.identity(source.url) for source in among}
    searched = [one for one in find_texts("input", settings.input, *reading) if files.identity(one.url) not in own]
    if not searched:
        raise UserError(f"--input {settings.input[0]}: nothing but the files of --among, which are not searched")
    return among, searched


def describe(result: dict[str, Any], settings: CopiesSettings) -> None:
    copies = result["copies"]
    print(
        f"{len(copies):,} of {result['documents']:,} documents have more than {settings.max_copied:.0%} of their runs "
        f"of {SHINGLE_WORDS} words in {result['searched']:,} others"
    )
    for copy in copies:
        print(f"  {copy['share']:4.0%}  {copy['file']}  {copy['id']}")
    if result["unreadable"]:
        print(f"  {result['unreadable']:,} documents cannot be read, and count as empty")


if __name__ == "__main__":
    exit_with(main)
