"""Mines negatives: for every window of a store, completions that a language model samples for its context.

  python pipeline/mine_negatives.py --windows stores/books-train --generator models/books-tiny \\
      --sampling temperature --output stores/books-train-negatives

One row a window: its tokens, the context's length (drawn from --context_lengths by the window's own hash), the true
completion's log-probability, and the negatives with theirs. A killed run continues when the same command is given
again. --generator and --sampling may be given several times: every pair gets a store of its own below --output. Every
further option is Beam's: --direct_num_workers 2 uses two processes, --runner DataflowRunner a fleet.
"""

import shutil
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pipeline import make_windows
from pipeline.engines.environment import prepare_environment
from pipeline.mining.settings import MiningSettings, context_lengths_of
from pipeline.runtime import files
from pipeline.runtime.errors import exit_with
from pipeline.runtime.progress import noted, showing
from pipeline.runtime.settings import read_known_settings
from pipeline.runtime.summary import print_summary
from pipeline.stores.manifest import MANIFEST, Manifest, read_manifest
from pipeline.stores.reader import Store
from pipeline.stores.writer import REJECTS
from pipeline.text.inputs import text_of
from pipeline.windows.settings import WindowsSettings

if TYPE_CHECKING:
    from pipeline.mining.job import MiningJob, StoreJob
    from pipeline.mining.plan import WindowsFacts
    from pipeline.windows.graph import MakeWindows

SEEN_TEXT = (
    "the generator was trained on documents that it continues here: an energy may learn to see its memory; keep them "
    "apart with make_windows.py --documents 1/2 and 2/2"
)


def main(arguments: Sequence[str] | None = None) -> int:
    settings, beam = read_arguments(sys.argv[1:] if arguments is None else arguments)
    return report(mine_negatives(settings, beam))


def read_arguments(arguments: Sequence[str]) -> tuple[MiningSettings, list[str]]:
    """The settings, and what is left for Beam; with an --input the rest says first what the windows are made of."""
    settings, rest = read_known_settings(MiningSettings, arguments, __doc__)
    if not any(word.partition("=")[0] == "--input" for word in rest):
        return settings, rest
    text, rest = read_known_settings(WindowsSettings, [*rest, "--output", settings.windows], make_windows.__doc__)
    return replace(settings, text=text), rest


def mine_negatives(settings: MiningSettings, beam: Sequence[str] = ()) -> "list[StoreJob]":
    """Makes the stores of negatives that are not there yet; says which they are. `beam` are Beam's options."""
    with opening_windows(settings, beam) as (windows, transform):
        lengths = context_lengths_of(settings.context_lengths, windows.window)
        if beam:
            make_windows.check_beam_options(beam)
        prepare_environment()
        from pipeline.mining.plan import find_stores  # torch and Beam come with it

        stores = list(find_stores(settings, windows, lengths, beam))
        with ExitStack() as locks:
            for store in stores:
                locks.enter_context(store.writer.held())
            missing = [store for store in stores if not is_finished(store, windows, settings.overwrite)]
            if missing:
                mine(settings, missing, lengths, transform, beam)
    return stores


@contextmanager
def opening_windows(
    settings: MiningSettings, beam: Sequence[str]
) -> Iterator[tuple["WindowsFacts", "MakeWindows | None"]]:
    """The windows, and what makes them if the settings say what of."""
    from pipeline.mining.plan import WindowsFacts

    if settings.text is None:
        manifest = Store(settings.windows, kind="windows").manifest
        yield facts_of(settings.windows, manifest), None
        return
    with make_windows.making(replace(settings.text, output=settings.windows), beam) as transform:
        if transform is None:
            manifest = read_manifest(settings.windows)
            facts = facts_of(settings.windows, manifest)
        else:
            job = transform.job
            facts = WindowsFacts(settings.windows, job.writer.record.settings, job.tokenizer, None)
        yield facts, transform


def facts_of(path: str, manifest: Manifest) -> "WindowsFacts":
    from pipeline.mining.plan import WindowsFacts

    return WindowsFacts(path, manifest.settings, manifest.tokenizer, manifest.digest, text_of(manifest))


def is_finished(store: "StoreJob", windows: "WindowsFacts", overwrite: bool) -> bool:
    """Whether this store was made before, from these windows, and is whole."""

    def changed(manifest: Manifest) -> str | None:
        same = windows.digest is None or (manifest.parent or {}).get("digest") == windows.digest
        return None if same else f"--output {store.writer.output}: made from other windows than these"

    return store.writer.made_before(overwrite, changed) is not None and windows.digest is not None


def mine(
    settings: MiningSettings,
    stores: "list[StoreJob]",
    lengths: tuple[int, ...],
    transform: "MakeWindows | None",
    beam: Sequence[str],
) -> None:
    """Makes stores that are not there yet; bad input leaves their folders as they were."""
    from pipeline.mining.job import MiningJob
    from pipeline.mining.plan import needs_sharing

    job = MiningJob(settings, tuple(stores), lengths, needs_sharing(stores, beam), run=uuid.uuid4().hex)
    with ExitStack() as folders:
        for store in stores:
            folders.enter_context(store.writer.making())
        run_graph(job, transform, beam)


def run_graph(job: "MiningJob", transform: "MakeWindows | None", rest: Sequence[str]) -> None:
    """Makes the windows if they are not there, generates and writes, wherever Beam's options say."""
    import apache_beam as beam

    from pipeline.mining.graph import MineNegatives
    from pipeline.mining.pool import close_all, meeting_place
    from pipeline.runtime.beam import beam_options, is_local, run

    options = beam_options(rest)
    hints = {"accelerator": job.settings.accelerator} if job.settings.accelerator else {}
    visible = is_local(options) and all(files.is_local(store.writer.output) for store in job.stores)

    def build(pipeline: beam.Pipeline) -> object:
        windows = transform or beam.Create([job.settings.windows])
        return pipeline | "Windows" >> windows | "Negatives" >> MineNegatives(job, hints)

    started = time.monotonic()
    try:
        with showing(lambda: progress(job), " windows", visible, lambda: details(job, time.monotonic() - started)):
            counters = run(build, options)
    finally:
        close_all()
        shutil.rmtree(meeting_place(job), ignore_errors=True)
    if counters.get("shards"):
        seconds = time.monotonic() - started
        print(
            f"{counters['shards']:,} shards in {seconds:,.0f} s: {counters['negatives'] / seconds:,.1f} negatives/s, "
            f"{counters['tokens'] / seconds:,.0f} tokens/s, starting the engine included"
        )


def progress(job: "MiningJob") -> tuple[str, int, int | None]:
    done, total = (sum(noted(store.writer.work, what) for store in job.stores) for what in ("done", "total"))
    if not total:
        return make_windows.progress(job.settings.windows)
    return "mining" if done else "starting the engine", done, total


def details(job: "MiningJob", seconds: float) -> str:
    """What the bar says beside how much is done."""
    works = [store.writer.work for store in job.stores]
    names = ("shards", "tokens", "negatives", "equal_to_positive", "rejects")
    shards, tokens, negatives, equal, rejects = (sum(noted(work, name) for work in works) for name in names)
    if not shards:
        return f"{rejects} rejects" if rejects else ""
    duplicates = max(noted(work, "duplicates") for work in works) / 1e6
    return (
        f"{shards} shards, {tokens / seconds:,.0f} tokens/s, {duplicates:.1%} duplicates, {equal / negatives:.1%} true"
        + (f", {rejects} rejects" if rejects else "")
    )


def report(stores: "Sequence[StoreJob]") -> int:
    """Says what was made, and names what could not be; 1 if there is such a thing."""
    failed = 0
    for output, rejected in [(store.writer.output, store.writer.rejected_shards()) for store in stores]:
        for file, content in rejected:
            print(f"error: {file}: {content['shard']}: {content['error']}", file=sys.stderr)
            failed += 1
        if files.is_file(files.join(output, MANIFEST)):
            describe(output, read_manifest(output))
        elif not files.exists(files.join(output, REJECTS)):
            print(f"{output}: handed over to the runner, which writes the store")
    if failed:
        print(f"error: {failed} shards could not be made: mend that, then run the same command again", file=sys.stderr)
    return 1 if failed else 0


def describe(output: str, manifest: Manifest) -> None:
    counts, generator, settings = manifest.counts, manifest.generator or {}, manifest.settings
    equal = counts["equal_to_positive"] / max(1, counts["negatives"])
    rule = sampling_words(manifest.sampling or {})
    facts = {
        "windows": f"{counts['windows']:,} of {settings['corpus']}, {settings['split']}",
        "generator": f"{generator['path']} ({generator['architecture']}, {generator['direction']})",
        "negatives": f"{counts['negatives']:,} of {counts['tokens']:,} tokens, {rule}",
        "duplicates": f"{counts['duplicates_per_million'] / 1e6:.2%} are another window's too, {equal:.2%} are true",
        "shards": f"{len(manifest.shards):,}, {manifest.bytes / 1e6:,.1f} MB",
        "a row": f"{manifest.bytes / max(1, manifest.rows):,.0f} bytes",
        "digest": manifest.digest,
    }
    if generator.get("trained_on_this_text"):
        facts["careful"] = SEEN_TEXT
    print_summary(f"negatives store {output}", facts)


def sampling_words(sampling: dict[str, Any]) -> str:
    rule = sampling["rule"]
    return {"temperature": "temperature 1"}.get(rule) or f"{rule} {sampling.get('top_k') or sampling.get('top_p')}"


if __name__ == "__main__":
    exit_with(main)
