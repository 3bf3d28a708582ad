"""Mines negatives: for every window of a store, completions that a language model samples for its context.

  python pipeline/mine_negatives.py --windows stores/books-train --generator models/books-tiny \\
      --sampling temperature --output stores/books-train-negatives

One row a window: its tokens, the context's length (drawn from --context_lengths by the window's own hash), the true
completion's log-probability, and the negatives with theirs. A killed run continues when the same command is given
again. --generator and --sampling may be given several times: every pair gets a store of its own below --output. Every
further option is Beam's: --runner DataflowRunner uses a fleet. Without Beam, --devices 8 uses eight GPUs of this
machine, and --part 3/64, in as many processes as one likes, any cluster.
"""

import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from pipeline import make_windows
from pipeline.engines.environment import prepare_environment
from pipeline.mining.settings import MiningSettings, context_lengths_of
from pipeline.runtime import files
from pipeline.runtime.errors import ResumableError, UserError, exit_with
from pipeline.runtime.parts import run_parts, visible_gpus
from pipeline.runtime.private import leave_meeting
from pipeline.runtime.progress import noted, showing
from pipeline.runtime.settings import read_known_settings
from pipeline.runtime.summary import print_summary
from pipeline.stores.manifest import MANIFEST, Manifest, read_manifest
from pipeline.stores.reader import Store
from pipeline.text.inputs import text_of
from pipeline.windows.settings import WindowsSettings

if TYPE_CHECKING:
    from pipeline.mining.job import MiningJob, StoreJob
    from pipeline.mining.plan import WindowsFacts
    from pipeline.text.documents import Source
    from pipeline.windows.job import WindowsJob

    WindowsWork = tuple[WindowsJob, list[Source]]

SEEN_TEXT = (
    "the generator was trained on documents that it continues here: an energy may learn to see its memory; keep them "
    "apart with make_windows.py --documents 1/2 and 2/2"
)


def main(arguments: Sequence[str] | None = None) -> int:
    settings, beam = read_arguments(sys.argv[1:] if arguments is None else arguments)
    return report(mine_negatives(settings, beam), settings, beam)


def read_arguments(arguments: Sequence[str]) -> tuple[MiningSettings, list[str]]:
    """The settings, and what is left for Beam; with an --input the rest says first what the windows are made of."""
    settings, rest = read_known_settings(MiningSettings, arguments, __doc__)
    if not any(word.partition("=")[0] == "--input" for word in rest):
        return settings, rest
    text, rest = read_known_settings(WindowsSettings, [*rest, "--output", settings.windows], make_windows.__doc__)
    return replace(settings, text=text), rest


def mine_negatives(settings: MiningSettings, beam: Sequence[str] = ()) -> "list[StoreJob]":
    """Makes the stores of negatives that are not there yet; says which they are. `beam` are Beam's options.

    Without any, the shards are made in this process, one after another, or in one process a device.
    """
    if beam:
        make_windows.check_beam_options(beam)
        if not settings.alone or settings.devices is not None:
            raise UserError("--part, --finish, --devices: without options of Beam's, which divides the work itself")
    with opening_windows(settings, beam) as (windows, work):
        lengths = context_lengths_of(settings.context_lengths, windows.window)
        prepare_environment()
        from pipeline.mining.job import MiningJob  # torch comes with it
        from pipeline.mining.plan import find_stores, is_elsewhere, needs_sharing

        stores = list(find_stores(settings, windows, lengths, beam))
        run = uuid.uuid4().hex
        job = MiningJob(settings, tuple(stores), lengths, needs_sharing(stores, beam), run, is_elsewhere(beam))
        if (parts := devices_of(settings, beam)) > 1:
            return mine_on_devices(job, windows, parts)
        with ExitStack() as locks:
            for store in stores:
                alone = settings.alone
                locks.enter_context(store.writer.held(job.run_of(store)) if alone else store.writer.shared())
            missing = [store for store in stores if not is_finished(store, windows, settings.overwrite)]
            if missing:
                mine(replace(job, stores=tuple(missing)), work, beam)
    return stores


def devices_of(settings: MiningSettings, beam: Sequence[str]) -> int:
    """How many parts are made at once on this machine."""
    if beam or not settings.alone:
        return 1
    return settings.devices or max(1, visible_gpus())


@contextmanager
def opening_windows(
    settings: MiningSettings, beam: Sequence[str]
) -> Iterator[tuple["WindowsFacts", "WindowsWork | None"]]:
    """The windows; and what there is to be done for them, if that is part of the same graph."""
    from pipeline.mining.plan import WindowsFacts

    if settings.text is not None and not beam:
        make_windows.make_windows(replace(settings.text, output=settings.windows))
    if settings.text is None or not beam:
        manifest = Store(settings.windows, kind="windows").manifest
        yield facts_of(settings.windows, manifest), None
        return
    with make_windows.making(replace(settings.text, output=settings.windows), beam) as work:
        if work is None:
            manifest = read_manifest(settings.windows)
            facts = facts_of(settings.windows, manifest)
        else:
            job, _ = work
            facts = WindowsFacts(settings.windows, job.writer.record.settings, job.tokenizer, None)
        yield facts, work


def facts_of(path: str, manifest: Manifest) -> "WindowsFacts":
    from pipeline.mining.plan import WindowsFacts

    return WindowsFacts(path, manifest.settings, manifest.tokenizer, manifest.digest, text_of(manifest))


def is_finished(store: "StoreJob", windows: "WindowsFacts", overwrite: bool) -> bool:
    """Whether this store was made before, from these windows, and is whole."""

    def changed(manifest: Manifest) -> str | None:
        same = windows.digest is None or (manifest.parent or {}).get("digest") == windows.digest
        return None if same else f"--output {store.writer.output}: made from other windows than these"

    return store.writer.made_before(overwrite, changed) is not None and windows.digest is not None


def mine(job: "MiningJob", work: "WindowsWork | None", beam: Sequence[str]) -> None:
    """Makes stores that are not there yet, or a part of them; bad input leaves their folders as they were."""
    from pipeline.mining.pool import MEETING, close_all

    started = time.monotonic()
    try:
        with ExitStack() as folders:
            if job.settings.alone:
                for store in job.stores:
                    folders.enter_context(store.writer.making())
            counters = run_graph(job, work, beam) if beam else mine_here(job)
    finally:
        close_all()
        leave_meeting(MEETING, job.run)
    if counters.get("shards"):
        seconds = time.monotonic() - started
        print(
            f"{counters['shards']:,} shards in {seconds:,.0f} s: {counters['negatives'] / seconds:,.1f} negatives/s, "
            f"{counters['tokens'] / seconds:,.0f} tokens/s, starting the engine included"
        )


def mine_here(job: "MiningJob") -> dict[str, int]:
    """Makes the shards of this part, or all of them, in this process; finishes the stores if none is lacking."""
    from pipeline.mining.finishing import finish_here, is_lacking

    parent = read_manifest(job.settings.windows)
    if job.settings.alone:
        job.claim(parent)
    else:
        job.join(parent)
    counters: Counter[str] = Counter()
    try:
        with shown(job):
            if not job.settings.finish:
                counters.update(make_shards(job, parent))
        if job.settings.finish or not is_lacking(job, parent):
            finish_here(job, parent)
    except (OSError, ResumableError):
        # The work folder goes when a store is finished, also from under a part that was started twice.
        if job.settings.alone or not all(store.writer.is_finished for store in job.stores):
            raise
    return counters


def make_shards(job: "MiningJob", parent: Manifest) -> Counter[str]:
    """Makes the shards of this part, one after another: what they came to."""
    from pipeline.mining.making import ShardMaker

    counters: Counter[str] = Counter()
    maker = ShardMaker(job, parent)
    try:
        for unit in job.settings.own(job.units(parent)):
            for made in maker.make(unit):
                if made.counts is not None:
                    counters.update({"shards": 1} | asdict(made.counts))
    finally:
        maker.close()
    return counters


def mine_on_devices(job: "MiningJob", windows: "WindowsFacts", parts: int) -> "list[StoreJob]":
    """Makes all parts at once on this machine, a process each; the last one finishes the stores."""
    stores = list(job.stores)
    if all(is_finished(store, windows, job.settings.overwrite) for store in stores):
        return stores
    words = replace(job.settings, text=None).recorded().to_words()
    with shown(job):
        run_parts("pipeline.mine_negatives", words, parts)
    return stores


def shown(job: "MiningJob", on: bool = True) -> AbstractContextManager[None]:
    """A bar, or lines where there is no terminal, of what the workers on this machine's filesystems have noted."""
    started = time.monotonic()
    visible = on and all(files.is_local(store.writer.output) for store in job.stores)
    return showing(lambda: progress(job), " windows", visible, lambda: details(job, time.monotonic() - started))


def run_graph(job: "MiningJob", work: "WindowsWork | None", rest: Sequence[str]) -> dict[str, int]:
    """Makes the windows if they are not there, generates and writes, wherever Beam's options say."""
    import apache_beam as beam

    from pipeline.mining.graph import MineNegatives
    from pipeline.runtime.beam import beam_options, is_local, run
    from pipeline.windows.graph import MakeWindows

    options = beam_options(rest)

    def build(pipeline: beam.Pipeline) -> object:
        windows = MakeWindows(*work) if work else beam.Create([job.settings.windows])
        return pipeline | "Windows" >> windows | "Negatives" >> MineNegatives(job)

    with shown(job, is_local(options)):
        return run(build, options)


def progress(job: "MiningJob") -> tuple[str, int, int | None]:
    done, total = (sum(noted(store.writer.work, what) for store in job.stores) for what in ("done", "total"))
    if not total:
        there = files.is_file(files.join(job.settings.windows, MANIFEST))
        return ("starting the engine", 0, None) if there else make_windows.progress(job.settings.windows)
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


def report(stores: "Sequence[StoreJob]", settings: MiningSettings, beam: Sequence[str] = ()) -> int:
    """Says what was made, and names what could not be; 0 only if all stores, or this part of them, are there."""
    missing = failed = 0
    for output, rejected in [(store.writer.output, store.writer.rejected_shards()) for store in stores]:
        for file, content in rejected:
            print(f"error: {file}: {content['shard']}: {content['error']}", file=sys.stderr)
            failed += 1
        if files.is_file(files.join(output, MANIFEST)):
            describe(output, read_manifest(output))
        elif settings.part is not None and not rejected:
            print(f"{output}: part {settings.part} is there, others are not yet")
        elif not (beam and is_handed_over(beam)):
            missing += 1
    if failed:
        print(f"error: {failed} shards could not be made: mend that, then run the same command again", file=sys.stderr)
    elif missing:
        print(f"error: {missing} stores were not finished: run the same command again", file=sys.stderr)
    return 1 if failed or missing else 0


def is_handed_over(beam: Sequence[str]) -> bool:
    from pipeline.runtime import beam as beam_runner

    return beam_runner.is_handed_over(beam_runner.beam_options(beam))


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
