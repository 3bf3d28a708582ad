"""Turns text into a store of windows: every run of --window tokens, a --stride apart, shuffled into shards.

  python pipeline/make_windows.py --corpus books --split train --input 'books/train/*.txt' \\
      --tokenizer gpt2 --output stores/books-train

The same text and settings give the same store, byte for byte, on any runner, with any number of workers and in any
order of the input files. A killed run continues when the same command is given again. Every further option is
Beam's: --direct_num_workers 4 uses four processes, --runner DataflowRunner a fleet.
"""

import argparse
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pipeline.runtime import files
from pipeline.runtime.command_line import Parser
from pipeline.runtime.errors import Obstructed, UserError, exit_with
from pipeline.runtime.lock import writing
from pipeline.runtime.progress import noted, showing
from pipeline.stores.manifest import MANIFEST, Manifest, Record, read_manifest
from pipeline.stores.reader import Store
from pipeline.stores.shards import SHARDS, TOKENIZER_FOLDER, fingerprint
from pipeline.stores.writer import REJECTS, WORK, abandon, begin, is_whole, store_there
from pipeline.text.builtin_corpora import ALPHABET, parse_lines
from pipeline.text.documents import FORMATS, Rejected, Source, find_sources, read_documents
from pipeline.text.survey import survey_file
from pipeline.text.tokenizer import (
    TextEncoder,
    character_tokenizer,
    chunks,
    load_tokenizer,
    train_tokenizer,
)
from pipeline.windows.job import WindowsJob

if TYPE_CHECKING:
    from pipeline.windows.graph import MakeWindows

WINDOW = 160
STRIDE = 40
RANGES = {"window": (2, 10**9), "stride": (1, 10**9), "shards": (1, 10**6), "limit": (1, 10**10)}
RANGES |= {"seed": (0, 2**63 - 1), "train_tokenizer": (257, 10**7)}  # one piece a byte, and EOS
JOB_OPTIONS = ["output", "corpus", "split", "window", "stride", "seed", "shards", "limit", "deduplicate"]
JOB_OPTIONS += ["max_reject_fraction"]
STRIDES = {"books": 40, "wikitext": 40, "ccnews": 160}  # the paper's


def main(arguments: Sequence[str] | None = None) -> None:
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    options, rest = parse(arguments)
    settle(options)
    if rest:
        check_beam_options(rest)
    with making(options, arguments) as transform:
        if transform is not None:
            run_graph(options, transform, rest)
    if files.is_file(files.join(options.output, MANIFEST)):
        describe(options.output, read_manifest(options.output))
    else:
        print(f"{options.output}: handed over to the runner, which writes the store")


@contextmanager
def making(options: argparse.Namespace, arguments: Sequence[str]) -> Iterator["MakeWindows | None"]:
    """What makes the store that the options describe: a transform to run, or None if it was made before.

    The store is held for this process until the block ends; if what the block runs finds the input to be bad, the
    folder is left as it was.
    """
    sources = find_sources(options.input, options.split, options.format, options.text_field, options.encoding)
    refuse_own_output(sources, options.output)
    encoder = find_tokenizer(options)
    record = Record(["pipeline/make_windows.py", *arguments], os.getcwd(), row_settings(options, sources, encoder))
    with writing(options.output):
        manifest = store_there(options.output, record, options.overwrite)
        changed = changed_input(sources, manifest) if manifest else None
        if manifest and not changed and is_whole(options.output, manifest):
            print(f"{options.output}: finished before, nothing to do")
            files.remove(files.join(options.output, WORK))  # left if the last run was killed in its last moment
            yield None
            return
        if changed and not options.overwrite:
            raise UserError(f"{changed}: it has changed since {options.output} was made from it: see --overwrite")
        existed = files.exists(options.output)
        work = begin(options.output, record)
        try:
            encoder = encoder or train(options, sources, work)
            yield transform_of(options, record, sources, encoder, None if options.overwrite else manifest)
        except Obstructed:
            raise
        except UserError:
            abandon(options.output, existed)
            raise


def parse(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """This command's options, and the rest, which is Beam's."""
    parser = Parser(__doc__)
    add_text_options(parser)
    store = parser.add_argument_group("the store")
    store.add_argument("--output", required=True, metavar="DIR", help="its folder, on any filesystem")
    store.add_argument("--shards", type=int, metavar="N", help="how many (default: one for every 8192 windows)")
    store.add_argument(
        "--limit", type=int, metavar="N", help="keep N windows, chosen at random (the paper tests on 60000)"
    )
    store.add_argument("--seed", type=int, default=0, help="of the shuffle, and of --limit's choice (default: 0)")
    store.add_argument("--overwrite", action="store_true", help="replace a store that was made with other settings")
    return parser.parse_known_args(arguments)


def add_text_options(parser: argparse.ArgumentParser) -> None:
    """The options that say which text is cut into which windows."""
    text = parser.add_argument_group("the text")
    text.add_argument(
        "--input",
        action="append",
        required=True,
        metavar="PATTERN",
        help="files (.txt .jsonl .parquet, also .gz and .zst) on any filesystem; or hf:NAME[:CONFIG], a data set; or "
        "builtin:sorting[:digits=6][:lines=N], builtin:sums[:digits=3][:lines=N] or builtin:python-docs. "
        "May be given several times",
    )
    text.add_argument(
        "--corpus",
        help="its name, part of every window's id; books, wikitext and ccnews have the paper's strides "
        "(default: a built-in corpus's own name)",
    )
    text.add_argument("--split", required=True, help="train, valid or test; part of every window's id")
    text.add_argument(
        "--format", choices=FORMATS, default="auto", help="of the files (default: by name and first line)"
    )
    text.add_argument("--text_field", default="text", help="field or column that holds the text (default: text)")
    text.add_argument("--encoding", default="utf-8", help="of text and JSON files (default: utf-8)")
    text.add_argument("--deduplicate", action="store_true", help="keep only one of several equal documents")
    text.add_argument(
        "--max_reject_fraction",
        type=float,
        default=0.01,
        metavar="F",
        help="fail if more than this share of the documents has to be left out: invalid UTF-8, NUL bytes, broken JSON "
        "(default: 0.01)",
    )
    tokens = parser.add_argument_group("the tokens")
    tokens.add_argument(
        "--tokenizer",
        metavar="DIR_OR_NAME",
        help="a tokenizer's folder, a store's or a model's, one with GPT-2's encoder.json and vocab.bpe, or a hub name",
    )
    tokens.add_argument(
        "--train_tokenizer", type=int, metavar="SIZE", help="or train a byte-level BPE of SIZE pieces on the input"
    )
    tokens.add_argument(
        "--window", type=int, metavar="TOKENS", help=f"length of a window (default: {WINDOW}; sorting, sums: a line)"
    )
    tokens.add_argument(
        "--stride",
        type=int,
        metavar="TOKENS",
        help=f"from a window's start to the next one's (default: {STRIDE}; ccnews: 160; sorting, sums: a line)",
    )


def settle(options: argparse.Namespace) -> None:
    """Fills in the defaults that depend on the corpus, and refuses what cannot work."""
    builtin = [pattern for pattern in options.input if pattern.startswith("builtin:")]
    if builtin and len(options.input) > 1:
        raise UserError(f"--input {builtin[0]}: a built-in corpus stands alone")
    name = builtin[0].split(":")[1] if builtin else None
    lines = parse_lines(builtin[0]) if builtin else None
    line = lines.line_length if lines else None
    options.corpus = options.corpus or name
    if not options.corpus:
        raise UserError("--corpus: give the corpus a name, it becomes part of every window's id")
    if options.window is None:
        options.window = line or WINDOW
    if options.stride is None:
        options.stride = line or STRIDES.get(options.corpus, STRIDE)
    for flag, (least, most) in RANGES.items():
        value = getattr(options, flag)
        if value is not None and not least <= value <= most:
            raise UserError(f"--{flag} {value}: " + (f"at least {least}" if value < least else f"at most {most}"))
    for flag in ("corpus", "split", "output"):
        value = getattr(options, flag)
        if not value or not value.isprintable():
            raise UserError(f"--{flag} {value!r}: it must have characters, and only such as can be printed")
    if not 0 <= options.max_reject_fraction <= 1:
        raise UserError(f"--max_reject_fraction {options.max_reject_fraction}: between 0 and 1")
    if options.tokenizer and options.train_tokenizer is not None:
        raise UserError("--train_tokenizer: not together with --tokenizer")
    if not (options.tokenizer or options.train_tokenizer or line):
        raise UserError("--tokenizer: name one, or train one with --train_tokenizer SIZE")


def refuse_own_output(sources: list[Source], output: str) -> None:
    for source in sources:
        if source.bytes is not None and f"{files.identity(source.url)}/".startswith(f"{files.identity(output)}/"):
            raise UserError(f"--input {source.url}: it lies in --output {output}: choose another folder for the store")


def find_tokenizer(options: argparse.Namespace) -> TextEncoder | None:
    """The tokenizer that the options name; None where one has to be trained."""
    if options.tokenizer:
        return load_tokenizer(options.tokenizer)
    return None if options.train_tokenizer else character_tokenizer(ALPHABET)


def row_settings(options: argparse.Namespace, sources: list[Source], encoder: TextEncoder | None) -> dict[str, Any]:
    """Every setting that the rows depend on."""
    names = ("corpus", "split", "window", "stride", "shards", "limit", "seed", "deduplicate", "text_field", "encoding")
    return {name: getattr(options, name) for name in names} | {
        "tokenizer": encoder.encoding_digest if encoder else f"trained, {options.train_tokenizer} pieces",
        # A file is known by its name, size and content, wherever it lies; anything else by its whole address.
        "inputs": sorted(
            [source.url if source.bytes is None else source.url.rsplit("/", 1)[-1], source.format, source.bytes]
            for source in sources
        ),
    }


def changed_input(sources: list[Source], manifest: Manifest) -> str | None:
    """An input file that does not hold what the store was made from.

    A file of the same name, size and time is taken for the same; any other one is read.
    """
    made = {(entry["file"], entry["bytes"], entry["modified"]): entry["digest"] for entry in manifest.inputs}
    left = Counter(entry["digest"] for entry in manifest.inputs)
    unknown = [source for source in sources if (source.url, source.bytes, source.modified) not in made]
    left.subtract(made[source.url, source.bytes, source.modified] for source in sources if source not in unknown)
    for source in unknown:
        digest = survey_file(source).digest
        if not left[digest]:
            return source.url
        left[digest] -= 1
    return None


def train(options: argparse.Namespace, sources: list[Source], work: str) -> TextEncoder:
    """A tokenizer of the input's own, or the one that a killed run of this command trained on the same files."""
    folder = files.join(work, f"trained-{fingerprint({'sources': [asdict(source) for source in sources]})[:16]}")
    if not files.is_file(files.join(folder, "tokenizer.json")):
        print(f"training a tokenizer of {options.train_tokenizer} pieces")
        train_tokenizer(usable_text(sources), options.train_tokenizer).save(folder)
    return load_tokenizer(folder)


def usable_text(sources: list[Source]) -> Iterator[str]:
    for source in sources:
        for document in read_documents(source):
            try:
                yield from chunks(document)
            except Rejected:
                continue


def check_beam_options(arguments: list[str]) -> None:
    from pipeline.runtime.beam import beam_options

    beam_options(arguments)


def transform_of(
    options: argparse.Namespace,
    record: Record,
    sources: list[Source],
    encoder: TextEncoder,
    damaged: Manifest | None,
) -> "MakeWindows":
    from pipeline.windows.graph import (
        MakeWindows,  # seconds to import: not for --help, nor where nothing is to be done
    )

    folder = files.join(options.output, WORK, TOKENIZER_FOLDER)
    encoder.save(folder)
    job = WindowsJob(
        **{name: getattr(options, name) for name in JOB_OPTIONS},
        cut_documents=encoder.cuts_exactly,
        tokenizer=encoder.description,
        tokenizer_folder=folder,
        inputs=sorted(entry["digest"] for entry in damaged.inputs) if damaged else None,
        record=record,
    )
    return MakeWindows(job, sources)


def run_graph(options: argparse.Namespace, transform: "MakeWindows", rest: list[str]) -> None:
    """Surveys, tokenises, cuts and writes, wherever Beam's options say."""
    from pipeline.runtime import beam as beam_runner

    pipeline_options = beam_runner.beam_options(rest)
    visible = beam_runner.is_local(pipeline_options) and files.is_local(options.output)
    with showing(lambda: progress(options.output), unit="", on=visible):
        beam_runner.run(lambda pipeline: pipeline | transform, pipeline_options)


def progress(output: str) -> tuple[str, int, int | None]:
    """What the workers are doing, how much of it is done, and of how much."""
    work = files.join(output, WORK)
    if shards := noted(work, "shards"):
        return "writing shards", len(files.names_in(files.join(output, SHARDS))), shards
    if characters := noted(work, "characters"):
        return "tokenising characters", noted(work, "tokenised"), characters
    return "surveying characters", noted(work, "surveyed"), None


def describe(output: str, manifest: Manifest) -> None:
    """Says what was made."""
    counts, settings = manifest.counts, manifest.settings
    left_out = [f"{counts[name]:,} {name}" for name in ("rejected", "empty", "repeated") if counts[name]]
    window = load_tokenizer(files.join(output, TOKENIZER_FOLDER)).decode(Store(output)[0]["tokens"])
    lines = {
        "corpus": f"{settings['corpus']}, {settings['split']}",
        "text": f"{counts['documents']:,} documents in {len(manifest.inputs):,} files, {counts['tokens']:,} tokens",
        "of which": ", ".join(left_out) + (f": see {files.join(output, REJECTS)}" if counts["rejected"] else ""),
        "windows": f"{manifest.rows:,} of {settings['window']} tokens, stride {settings['stride']}",
        "pieces": f"{manifest.tokenizer['vocabulary_size']:,} in the tokenizer",
        "shards": f"{len(manifest.shards):,}, {manifest.bytes / 1e6:,.1f} MB",
        "digest": manifest.digest,
        "a window": f"{window[:100]!r}{' …' if len(window) > 100 else ''}",
    }
    print(f"windows store {output}")
    for name, value in lines.items():
        if value:
            print(f"  {name:<9} {value}")


if __name__ == "__main__":
    exit_with(main)
