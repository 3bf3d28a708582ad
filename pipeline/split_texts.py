"""Divides text into train (90 %), valid and test (5 % each): files that make_windows.py reads.

  python pipeline/split_texts.py --input 'books/*.txt' --output texts

Where there are many documents, whole ones are divided, by the hash of their text. Where there are few, each is divided
by place: its first 90 % go to train, the next 5 % to valid, the last 5 % to test, so that text has neighbours in
another split at two seams only. --by says otherwise. Lines of valid and test that are copies of lines of train (of
test: also of valid), as far as their runs of eight words show, are named and left out: see --max_copied, and
find_copies.py for splits that exist already. The same texts are always divided in the same way.

Written are train.jsonl (with --halves: train-1.jsonl and train-2.jsonl), valid.jsonl and test.jsonl, a JSON line for
a document or a part of one, and splits.json, which says how and how much of it, and what was left out.
"""

import json
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tqdm import tqdm

from pipeline.runtime import files
from pipeline.runtime.errors import UserError, exit_with
from pipeline.runtime.settings import Settings, read_settings, setting
from pipeline.runtime.summary import print_summary
from pipeline.text.copies import MOST_COPIED, SHINGLE_WORDS, copied_shares, found_in, gather
from pipeline.text.documents import FORMATS, Source, UnusableDocument, find_sources
from pipeline.text.named_texts import read_texts
from pipeline.text.splits import BY_DOCUMENT, BY_PLACE, HALVES, WHOLE, by_document, by_place, choose_way, lines_of

SCRIPT = "pipeline/split_texts.py"
SUMMARY = "splits.json"
AUTO = "auto"
MEASURED = ("valid", "test")
MOST_SHOWN = 10  # copies, in the terminal; all are in the summary


@dataclass(frozen=True, kw_only=True)
class SplitSettings(Settings):
    """Which text is divided, by what, and which copies are left out."""

    input: tuple[str, ...] = setting(metavar="PATTERN", help="files of text. May be given several times")
    output: str = setting(metavar="DIR", help="where the files go")
    by: str = setting(
        AUTO,
        choices=(AUTO, BY_DOCUMENT, BY_PLACE),
        help="whole documents, or contiguous stretches of each (default: auto, documents where there are 60 or more "
        "and none has more than 5 % of the text)",
    )
    halves: bool = setting(
        False,
        help="instead of train.jsonl, train-1.jsonl for the language model and train-2.jsonl for the energy model: a "
        "small language model remembers its text, and an energy that is trained on the same text learns to see memory",
    )
    max_copied: float = setting(
        MOST_COPIED,
        metavar="F",
        help=f"leave lines of valid and test out if more than this share of their runs of {SHINGLE_WORDS} words stands "
        f"in train, of test: in train or valid (default: {MOST_COPIED:g}; 1 leaves none out)",
        least=0,
        most=1,
    )
    piece: int = setting(
        20_000, metavar="N", help="characters of a line, about, where a document is longer (default: 20000)", least=1
    )
    format: str = setting("auto", choices=FORMATS, help="of the files (default: by name)")
    text_field: str = setting("text", help="field or column that holds the text (default: text)")
    encoding: str = setting("utf-8", help="of text and JSON files (default: utf-8)")


@dataclass(frozen=True)
class Line:
    """A document or a part of one, as a split has it."""

    id: str
    text: str


@dataclass(frozen=True)
class Copy:
    """A line of valid or test that was left out, and the share of its shingles that stands in splits before it."""

    split: str
    id: str
    share: float


Lines = dict[str, list[Line]]


def main(arguments: Sequence[str] | None = None) -> int:
    settings = read_settings(SplitSettings, sys.argv[1:] if arguments is None else arguments, __doc__)
    describe(split_texts(settings), settings)
    return 0


def split_texts(settings: SplitSettings) -> dict[str, Any]:
    """Writes the files; returns what the summary says."""
    sources = find_sources(settings.input, "train", settings.format, settings.text_field, settings.encoding)
    refuse_own_files(sources, settings)
    documents, unreadable = read(sources)
    way, reason = choose_way([document.text for document in documents])
    if settings.by != AUTO:
        way, reason = settings.by, "--by says so"
    lines = divide(documents, way, settings)
    check_all_there(lines, settings, "too little text")
    lines, copies = without_copies(lines, settings.max_copied)
    check_all_there(lines, settings, f"{len(copies)} lines are copies, see --max_copied")
    summary = {
        "by": way,
        "reason": reason,
        "splits": {split: counts_of(found) for split, found in lines.items()},
        "unreadable": unreadable,
        "max_copied": settings.max_copied,
        "shingle_words": SHINGLE_WORDS,
        "copies": [asdict(copy) for copy in copies],
        "call": {"stage": SCRIPT, "settings": settings.to_json()},
    }
    write(lines, summary, settings.output)
    return summary


def names_in(output: str) -> set[str]:
    """Every file that any run may write."""
    return {files.join(output, name) for name in (SUMMARY, *(f"{split}.jsonl" for split in WHOLE | HALVES))}


def refuse_own_files(sources: list[Source], settings: SplitSettings) -> None:
    own = {files.identity(name) for name in names_in(settings.output)}
    for source in sources:
        if source.bytes is not None and files.identity(source.url) in own:
            raise UserError(f"--input {source.url}: it is a file that is written: choose another folder for --output")


def read(sources: list[Source]) -> tuple[deque[Line], dict[str, str]]:
    """All documents with text in them, and of those that cannot be read the reasons."""
    documents, unreadable = deque[Line](), dict[str, str]()
    for source in tqdm(sources, desc="reading", unit=" files", dynamic_ncols=True, disable=None):
        for text in read_texts(source):
            name = source.url if source.format == "text" else f"{source.url}:{text.id}"
            try:
                whole = "".join(text.pieces)
            except UnusableDocument as error:
                unreadable[name] = error.reason
                continue
            if whole.strip():
                documents.append(Line(name, whole))
    return documents, unreadable


def divide(documents: deque[Line], way: str, settings: SplitSettings) -> Lines:
    """The lines of each split. Documents are given away one by one: text is in memory once."""
    shares = HALVES if settings.halves else WHOLE
    lines: Lines = {split: [] for split in shares}
    splits = by_document([document.text for document in documents], shares) if way == BY_DOCUMENT and documents else []
    for number in range(len(documents)):
        document = documents.popleft()
        stretches = {splits[number]: document.text} if splits else by_place(document.text, shares)
        parts = ((split, part) for split, text in stretches.items() for part in lines_of(text, settings.piece))
        for place, (split, part) in enumerate((split, part) for split, part in parts if part.strip()):
            lines[split].append(Line(f"{document.id}:{place}", part))
    return lines


def check_all_there(lines: Lines, settings: SplitSettings, reason: str) -> None:
    if empty := [split for split, found in lines.items() if not found]:
        raise UserError(f"--input {settings.input[0]}: {reason}: nothing of it is left for {empty[0]}: give more text")


def without_copies(lines: Lines, most: float) -> tuple[Lines, list[Copy]]:
    """The splits without the lines of valid and test more than `most` of which stands in those before them."""
    asked = gather([line.text] for split in MEASURED for line in lines[split])
    training = [line for split, found in lines.items() if split not in MEASURED for line in found]
    in_train = found_in(pieces_of(training, "looking for copies"), asked)
    in_both = in_train | found_in(pieces_of(lines["valid"], "looking for copies in valid"), asked)
    border = len(lines["valid"])
    shares = [*copied_shares(asked, in_train)[:border].tolist(), *copied_shares(asked, in_both)[border:].tolist()]
    copies, kept = list[Copy](), dict(lines)
    for split, some in zip(MEASURED, (shares[:border], shares[border:]), strict=True):
        pairs = list(zip(lines[split], some, strict=True))
        kept[split] = [line for line, share in pairs if share <= most]
        copies += [Copy(split, line.id, share) for line, share in pairs if share > most]
    return kept, copies


def pieces_of(lines: list[Line], what: str) -> Iterator[Iterable[str]]:
    return ([line.text] for line in tqdm(lines, desc=what, unit=" lines", dynamic_ncols=True, disable=None))


def counts_of(lines: list[Line]) -> dict[str, int]:
    documents = {line.id.rpartition(":")[0] for line in lines}
    return {"documents": len(documents), "lines": len(lines), "characters": sum(len(line.text) for line in lines)}


def write(lines: Lines, summary: dict[str, Any], output: str) -> None:
    """Each split in a file, and the summary last: with it the splits are finished."""
    for name in sorted(names_in(output) - {files.join(output, f"{split}.jsonl") for split in lines}):
        files.remove(name)
    for split, found in lines.items():
        data = bytearray()
        for line in found:
            data += json.dumps(asdict(line), ensure_ascii=False).encode() + b"\n"
        files.put(files.join(output, f"{split}.jsonl"), bytes(data))
    files.put(files.join(output, SUMMARY), json.dumps(summary, indent=1).encode())


def describe(summary: dict[str, Any], settings: SplitSettings) -> None:
    facts = {"by": f"{summary['by']}: {summary['reason']}"}
    for split, counts in summary["splits"].items():
        facts[split] = ", ".join(f"{count:,} {what}" for what, count in counts.items())
    if unreadable := summary["unreadable"]:
        name, reason = next(iter(unreadable.items()))
        facts["unreadable"] = f"{len(unreadable):,} documents, the first is {name}: {reason}"
    if copies := summary["copies"]:
        counts = " and ".join(f"{sum(copy['split'] == split for copy in copies):,} of {split}" for split in MEASURED)
        most = f"more than {settings.max_copied:.0%} of their runs of {SHINGLE_WORDS} words"
        facts["left out"] = f"{counts}, copies: {most} stands in splits before them"
    print_summary(f"texts {settings.output}", facts)
    for copy in copies[:MOST_SHOWN]:
        print(f"    {copy['share']:4.0%}  {copy['split']:<5} {copy['id']}")
    if len(copies) > MOST_SHOWN:
        print(f"    … and {len(copies) - MOST_SHOWN:,} more: see {files.join(settings.output, SUMMARY)}")


if __name__ == "__main__":
    exit_with(main)
