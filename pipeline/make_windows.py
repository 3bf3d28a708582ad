"""Turns text into a store of windows: every run of --window tokens, a --stride apart, shuffled into shards.

  python pipeline/make_windows.py --corpus books --split train --input 'books/train/*.txt' \\
      --tokenizer gpt2 --output stores/books-train

The same text and settings give the same store, byte for byte, on any runner, with any number of workers and in any
order of the input files. A killed run continues when the same command is given again. Every further option is
Beam's: --direct_num_workers 4 uses four processes, --runner DataflowRunner a fleet.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict

from pipeline.runtime import files
from pipeline.runtime.digests import digest_of
from pipeline.runtime.errors import exit_with
from pipeline.runtime.progress import noted, showing
from pipeline.runtime.settings import read_known_settings
from pipeline.runtime.summary import print_summary
from pipeline.stores.manifest import MANIFEST, Manifest, Record, read_manifest
from pipeline.stores.reader import Store
from pipeline.stores.shards import SHARDS, TOKENIZER_FOLDER
from pipeline.stores.writer import REJECTS, WORK, StoreWriter
from pipeline.text.builtin_corpora import ALPHABET
from pipeline.text.documents import Source, UnusableDocument, find_sources, read_documents
from pipeline.text.inputs import changed_input, input_names, refuse_own_output
from pipeline.text.stretches import undivided
from pipeline.text.tokenizer import TextEncoder, character_tokenizer, chunks, load_tokenizer, train_tokenizer
from pipeline.windows.job import WindowsJob
from pipeline.windows.settings import WindowsSettings

SCRIPT = "pipeline/make_windows.py"


def main(arguments: Sequence[str] | None = None) -> None:
    words = sys.argv[1:] if arguments is None else arguments
    settings, beam = read_known_settings(WindowsSettings, words, __doc__)
    manifest = make_windows(settings, beam)
    if manifest is not None:
        describe(settings.output, manifest)
    else:
        print(f"{settings.output}: handed over to the runner, which writes the store")


def make_windows(settings: WindowsSettings, beam: Sequence[str] = ()) -> Manifest | None:
    """Makes a store of windows, unless it is there; None where a runner writes it later. `beam` are Beam's options."""
    if beam:
        check_beam_options(beam)
    with making(settings, beam) as work:
        if work is not None:
            if beam:
                run_graph(*work, beam)
            else:
                make_in_this_process(*work)
    there = files.is_file(files.join(settings.output, MANIFEST))
    return read_manifest(settings.output) if there else None


@contextmanager
def making(settings: WindowsSettings, beam: Sequence[str] = ()) -> Iterator[tuple[WindowsJob, list[Source]] | None]:
    """What there is to be done for the store that the settings describe; None if it was made before.

    The store is held for this process until the block ends; if what the block runs finds the input to be bad, the
    folder is left as it was.
    """
    settings = settings.settled()
    sources = find_sources(settings.input, settings.split, settings.format, settings.text_field, settings.encoding)
    refuse_own_output(sources, settings.output)
    encoder = find_tokenizer(settings)
    tokens = encoder.encoding_digest if encoder else f"trained, {settings.train_tokenizer} pieces"
    result = settings.result() | {"tokenizer": tokens, "inputs": input_names(sources)}
    writer = StoreWriter(settings.output, Record.of(SCRIPT, settings, result, beam), "windows")
    with writer.held():
        if writer.made_before(settings.overwrite, lambda made: changed_input(sources, made, settings.output)):
            print(f"{settings.output}: finished before, nothing to do")
            yield None
            return
        damaged = None if settings.overwrite else writer.there(overwrite=False)
        with writer.making():
            encoder = encoder or train(settings, sources, writer.work)
            for line in undivided(sources, encoder.cuts_exactly):
                print(line)
            yield job_of(settings, writer, encoder, damaged), sources


def find_tokenizer(settings: WindowsSettings) -> TextEncoder | None:
    """The tokenizer that the settings name; None where one has to be trained."""
    if settings.tokenizer:
        return load_tokenizer(settings.tokenizer)
    return None if settings.train_tokenizer else character_tokenizer(ALPHABET)


def train(settings: WindowsSettings, sources: list[Source], work: str) -> TextEncoder:
    """A tokenizer of the input's own, or the one that a killed run of this command trained on the same files."""
    folder = files.join(work, f"trained-{digest_of({'sources': [asdict(source) for source in sources]})[:16]}")
    if not files.is_file(files.join(folder, "tokenizer.json")):
        print(f"training a tokenizer of {settings.train_tokenizer} pieces")
        train_tokenizer(usable_text(sources), int(settings.train_tokenizer or 0)).save(folder)
    return load_tokenizer(folder)


def usable_text(sources: list[Source]) -> Iterator[str]:
    for source in sources:
        for document in read_documents(source):
            try:
                yield from chunks(document)
            except UnusableDocument:
                continue


def check_beam_options(arguments: Sequence[str]) -> None:
    from pipeline.runtime.beam import beam_options

    beam_options(arguments)


def job_of(
    settings: WindowsSettings, writer: StoreWriter, encoder: TextEncoder, damaged: Manifest | None
) -> WindowsJob:
    """What every worker has to know, the tokenizer saved where it is found."""
    folder = files.join(writer.work, TOKENIZER_FOLDER)
    encoder.save(folder)
    return WindowsJob(
        settings=settings,
        writer=writer,
        cut_documents=encoder.cuts_exactly,
        tokenizer=encoder.description,
        tokenizer_folder=folder,
        text_digests=sorted(entry["digest"] for entry in damaged.inputs) if damaged else None,
    )


def make_in_this_process(job: WindowsJob, sources: list[Source]) -> None:
    from pipeline.windows.here import make_here

    with shown(job.settings.output):
        make_here(job, sources)


def run_graph(job: WindowsJob, sources: list[Source], rest: Sequence[str]) -> None:
    """Surveys, tokenises, cuts and writes, wherever Beam's options say."""
    from pipeline.runtime.beam import beam_options, is_local, run
    from pipeline.windows.graph import MakeWindows

    options = beam_options(rest)
    with shown(job.settings.output, is_local(options)):
        run(lambda pipeline: pipeline | MakeWindows(job, sources), options)


def shown(output: str, on: bool = True) -> AbstractContextManager[None]:
    return showing(lambda: progress(output), unit="", on=on and files.is_local(output))


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
    names = {"rejected": "rejected", "empty": "empty", "repeated": "repeated", "near_copies": "near copies"}
    left_out = [f"{counts[name]:,} {words}" for name, words in names.items() if counts.get(name)]
    window = load_tokenizer(files.join(output, TOKENIZER_FOLDER)).decode(Store(output)[0]["tokens"])
    facts = {
        "corpus": f"{settings['corpus']}, {settings['split']}",
        "text": f"{counts['documents']:,} documents in {len(manifest.inputs):,} files, {counts['tokens']:,} tokens",
        "of which": ", ".join(left_out) + (f": see {files.join(output, REJECTS)}" if counts["rejected"] else ""),
        "windows": f"{manifest.rows:,} of {settings['window']} tokens, stride {settings['stride']}",
        "pieces": f"{manifest.tokenizer['vocabulary_size']:,} in the tokenizer",
        "shards": f"{len(manifest.shards):,}, {manifest.bytes / 1e6:,.1f} MB",
        "digest": manifest.digest,
        "a window": f"{window[:100]!r}{' …' if len(window) > 100 else ''}",
    }
    print_summary(f"windows store {output}", facts)


if __name__ == "__main__":
    exit_with(main)
