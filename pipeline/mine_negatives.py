"""Mines negatives: for every window of a store, completions that a language model samples for its context.

  python pipeline/mine_negatives.py --windows stores/books-train --generator models/books-tiny \\
      --sampling temperature --output stores/books-train-negatives

One row a window: its tokens, the context's length (drawn from --context_lengths by the window's own hash), the true
completion's log-probability, and the negatives with theirs. A killed run continues when the same command is given
again. --generator and --sampling may be given several times: every pair gets a store of its own below --output. Every
further option is Beam's: --direct_num_workers 2 uses two processes, --runner DataflowRunner a fleet.
"""

import argparse
import json
import os
import shutil
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipeline import make_windows
from pipeline.engines.choice import ENGINE_HELP, ENGINES, default_engine
from pipeline.engines.environment import prepare_environment
from pipeline.runtime import files
from pipeline.runtime.command_line import Parser
from pipeline.runtime.errors import Obstructed, UserError, exit_with
from pipeline.runtime.lock import writing
from pipeline.runtime.progress import noted, showing
from pipeline.stores.manifest import Manifest, Record, read_manifest
from pipeline.stores.reader import Store
from pipeline.stores.shards import SHARDS
from pipeline.stores.writer import REJECTS, WORK, abandon, begin, is_whole, store_there

if TYPE_CHECKING:
    from pipeline.windows.graph import MakeWindows

RULES = ("temperature", "top_k", "nucleus")


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    options, rest = parse(arguments)
    with opening_windows(options, rest) as (windows, transform, beam_flags):
        lengths = context_lengths(options.context_lengths, windows)
        if beam_flags:
            check_beam_options(beam_flags)
        prepare_environment()
        stores = list(find_stores(options, windows, lengths, arguments))
        with ExitStack() as locks:
            for store in stores:
                locks.enter_context(writing(store.output))
            missing = [store for store in stores if not is_finished(store, windows, options.overwrite)]
            if missing:
                mine(options, missing, lengths, transform, beam_flags)
            return report(stores)


@dataclass(frozen=True)
class WindowsFacts:
    """What has to be known of the windows before they are read, or made; the digest only if they are there."""

    path: str
    settings: dict[str, Any]
    tokenizer: dict[str, Any]
    digest: str | None

    @property
    def window(self) -> int:
        return int(self.settings["window"])


@contextmanager
def opening_windows(
    options: argparse.Namespace, rest: list[str]
) -> Iterator[tuple[WindowsFacts, "MakeWindows | None", list[str]]]:
    """The windows, what makes them if there is an --input, and what is left of the command line for Beam."""
    if not any(word.partition("=")[0] == "--input" for word in rest):
        manifest = Store(options.windows, kind="windows").manifest
        yield WindowsFacts(options.windows, manifest.settings, manifest.tokenizer, manifest.digest), None, rest
        return
    arguments = [*rest, "--output", options.windows]
    text, beam_flags = make_windows.parse(arguments)
    make_windows.settle(text)
    with make_windows.making(text, arguments) as transform:
        if transform is None:
            manifest = read_manifest(options.windows)
            facts = WindowsFacts(options.windows, manifest.settings, manifest.tokenizer, manifest.digest)
        else:
            job = transform.job
            facts = WindowsFacts(options.windows, job.record.settings, job.tokenizer, None)
        yield facts, transform, beam_flags


def mine(
    options: argparse.Namespace,
    stores: list[Any],
    lengths: tuple[int, ...],
    transform: "MakeWindows | None",
    beam_flags: list[str],
) -> None:
    """Makes the stores that are not there yet; bad input leaves their folders as they were."""
    from pipeline.mining.job import MiningJob

    job = MiningJob(
        windows=options.windows,
        stores=tuple(stores),
        context_lengths=lengths,
        every_context_length=options.every_context_length,
        negatives=options.negatives,
        samples_per_row=options.samples_per_row,
        seed=options.seed,
        max_duplicate_fraction=options.max_duplicate_fraction,
        shared=needs_sharing(stores, beam_flags),
        run=uuid.uuid4().hex,
    )
    existed = {store.output: files.exists(store.output) for store in stores}
    for store in stores:
        begin(store.output, store.record)
    try:
        run_graph(job, transform, beam_flags, options.accelerator)
    except Obstructed:
        raise
    except UserError:
        for store in stores:
            if not files.names_in(files.join(store.output, SHARDS)):
                abandon(store.output, existed[store.output])
        raise


def parse(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    parser = Parser(__doc__)
    what = parser.add_argument_group("what is mined")
    what.add_argument(
        "--windows",
        required=True,
        metavar="STORE",
        help="a windows store; with --input and make_windows.py's other options, where it is made first",
    )
    what.add_argument(
        "--generators",
        metavar="FILE",
        help="instead of --generator and --sampling: a YAML list, each entry with generator, and if wanted sampling, "
        "top_k, top_p, and name, of its store below --output",
    )
    what.add_argument(
        "--generator",
        action="append",
        default=[],
        metavar="DIR_OR_NAME",
        help="a language model: a folder that train_lm.py made, or a hub name. May be given several times",
    )
    what.add_argument(
        "--sampling",
        action="append",
        choices=RULES,
        help="temperature (1), top_k or nucleus (default: temperature). May be given several times",
    )
    what.add_argument("--top_k", type=int, default=10, metavar="K", help="of top_k (default: 10)")
    what.add_argument("--top_p", type=float, default=0.9, metavar="P", help="of nucleus (default: 0.9)")
    what.add_argument(
        "--context_lengths",
        metavar="N,N-N,…",
        help="of which a window has one, each as likely as any other; 0-159 are all of them, the empty context "
        "included (default: 120,140; three quarters and seven eighths of windows that are not of 160 tokens)",
    )
    what.add_argument(
        "--every_context_length", action="store_true", help="a row for each of the lengths, instead of one drawn"
    )
    what.add_argument("--negatives", type=int, default=1, metavar="N", help="samples of each context (default: 1)")
    what.add_argument(
        "--samples_per_row",
        type=int,
        metavar="N",
        help="more negatives than that are divided into several rows and shards (default: by memory, at most 1000)",
    )
    what.add_argument("--seed", type=int, default=0, help="of the run; every window has its own from it (default: 0)")
    store = parser.add_argument_group("the store")
    store.add_argument("--output", required=True, metavar="DIR", help="its folder, on any filesystem")
    store.add_argument("--overwrite", action="store_true", help="replace a store that was made with other settings")
    store.add_argument(
        "--max_duplicate_fraction",
        type=float,
        default=0.5,
        metavar="F",
        help="stop if more than this share of the negatives, at temperature 1 and of 20 tokens or more, is equal to "
        "another window's (default: 0.5)",
    )
    engine = parser.add_argument_group("the engine")
    engine.add_argument("--engine", choices=ENGINES, default=default_engine(), help=ENGINE_HELP)
    engine.add_argument(
        "--accelerator",
        metavar="TYPE",
        help="what a fleet's generating workers have, such as type:nvidia-l4;count:1;install-nvidia-driver",
    )
    options, rest = parser.parse_known_args(arguments)
    if bool(options.generators) == bool(options.generator):
        raise UserError("--generator: name at least one, or a list of them with --generators, not both")
    if options.generators and options.sampling:
        raise UserError("--sampling: with --generators the list has the rules")
    options.sampling = options.sampling or ["temperature"]
    ranges = {"negatives": (1, 10**9), "samples_per_row": (1, 10**4), "seed": (0, 2**63 - 1), "top_k": (1, 10**9)}
    for flag, (least, most) in ranges.items():
        value = getattr(options, flag)
        if value is not None and not least <= value <= most:
            raise UserError(f"--{flag} {value}: between {least} and {most}")
    if not 0 < options.top_p <= 1:
        raise UserError(f"--top_p {options.top_p}: above 0 and at most 1")
    if not 0 <= options.max_duplicate_fraction <= 1:
        raise UserError(f"--max_duplicate_fraction {options.max_duplicate_fraction}: between 0 and 1")
    return options, rest


def context_lengths(given: str | None, windows: WindowsFacts) -> tuple[int, ...]:
    window = windows.window
    lengths = [window * 3 // 4, window * 7 // 8] if given is None else []
    for part in given.split(",") if given is not None else []:
        first, dash, last = part.partition("-")
        if not (first.strip().isdecimal() and (last.strip().isdecimal() or not dash)):
            raise UserError(f"--context_lengths {given}: numbers and ranges with commas between them: 0,120-159")
        start, end = int(first), int(last or first)
        for length in (start, end):
            if length >= window:
                raise UserError(f"--context_lengths {length}: between 0 and {window - 1}, windows have {window} tokens")
        if end < start:
            raise UserError(f"--context_lengths {part}: a range from the smaller number to the larger one")
        lengths += range(start, end + 1)
    if len(set(lengths)) < len(lengths):
        raise UserError(f"--context_lengths {given}: each length once")
    return tuple(lengths)


def check_beam_options(arguments: list[str]) -> None:
    from pipeline.runtime.beam import beam_options

    beam_options(arguments)


def find_stores(
    options: argparse.Namespace, windows: WindowsFacts, lengths: tuple[int, ...], arguments: list[str]
) -> Iterator[Any]:
    """A store for every generator and rule; what does not fit the windows is refused here, before an engine loads."""
    from pipeline.engines.sampling import Sampling
    from pipeline.mining.job import StoreJob
    from pipeline.models.language_model import open_language_model

    chosen = list(choices(options))
    outputs: set[str] = set()
    for name, rule, top_k, top_p, own in chosen:
        model = open_language_model(name)
        model.check_fits(windows.window, windows.tokenizer, windows.path)
        sampling = Sampling(rule, top_k, top_p)
        output = options.output if len(chosen) == 1 else files.join(options.output, own)
        if output in outputs:
            raise UserError(f"--generator {name}: two generators of the same name and rule would share {output}")
        outputs.add(output)
        description = describe_generator(model)
        settings = {
            "corpus": windows.settings.get("corpus"),
            "split": windows.settings.get("split"),
            "window": windows.window,
            "context_lengths": list(lengths),
            "every_context_length": options.every_context_length,
            "negatives": options.negatives,
            "samples_per_row": options.samples_per_row,
            "seed": options.seed,
            "generator": description["digest"],
            "direction": description["direction"],
            "sampling": sampling.description,
            "engine": options.engine,
        }
        record = Record(["pipeline/mine_negatives.py", *narrowed(arguments, name, sampling)], os.getcwd(), settings)
        yield StoreJob(output, name, options.engine, sampling, description, record)


def describe_generator(model: Any) -> dict[str, Any]:
    """What the manifest says of a generator, from which tables are labelled later."""
    model.check_weights()
    known = model.provenance
    return {
        "path": model.name,
        "digest": model.weights_digest,
        "architecture": known.get("preset") or model.config.model_type,
        "training_corpus": known.get("corpus"),
        "training_seed": known.get("seed"),
        "direction": model.direction,
    }


def choices(options: argparse.Namespace) -> Iterator[tuple[str, str, int, float, str]]:
    """Every generator with its rule, and the name of their store: from the flags, or from a YAML list."""
    if not options.generators:
        for name in options.generator:
            for rule in options.sampling:
                yield name, rule, options.top_k, options.top_p, f"{os.path.basename(name.rstrip('/'))}-{rule}"
        return
    import yaml

    try:
        entries = yaml.safe_load(files.read(options.generators))
    except (OSError, yaml.YAMLError) as error:
        raise UserError(f"--generators {options.generators}: it cannot be read ({error})") from None
    known = {"generator", "sampling", "top_k", "top_p", "name"}
    for number, entry in enumerate(entries if isinstance(entries, list) and entries else [None], 1):
        if not isinstance(entry, dict) or not isinstance(entry.get("generator"), str) or not entry.keys() <= known:
            raise UserError(
                f"--generators {options.generators}: entry {number} is not a generator with, if wanted, "
                f"{', '.join(sorted(known - {'generator'}))}"
            )
        rule = str(entry.get("sampling", "temperature"))
        own = entry.get("name") or f"{os.path.basename(entry['generator'].rstrip('/'))}-{rule}"
        try:
            numbers = int(entry.get("top_k", options.top_k)), float(entry.get("top_p", options.top_p))
        except (TypeError, ValueError):
            raise UserError(f"--generators {options.generators}: entry {number}: top_k and top_p are numbers") from None
        yield entry["generator"], rule, *numbers, str(own)


def narrowed(arguments: list[str], generator: str, sampling: Any) -> list[str]:
    """The command that makes one of several stores alone, which is what repairing it needs."""
    kept, position = [], 0
    while position < len(arguments):
        flag, equals, _ = arguments[position].partition("=")
        if flag in ("--generator", "--generators", "--sampling", "--top_k", "--top_p"):
            position += 1 if equals else 2
            continue
        kept.append(arguments[position])
        position += 1
    rule = ["--sampling", sampling.rule, "--top_k", str(sampling.top_k), "--top_p", str(sampling.top_p)]
    return [*kept, "--generator", generator, *rule]


def needs_sharing(stores: list[Any], rest: list[str]) -> bool:
    """Whether generators need processes of their own: several workers, or several vLLM engines."""
    from pipeline.runtime.beam import beam_options, is_local, worker_processes

    engines = {(store.generator, store.sampling.rule == "nucleus") for store in stores if store.engine == "vllm"}
    options = beam_options(rest)
    return len(engines) > 1 or (is_local(options) and worker_processes(options) > 1)


def is_finished(store: Any, windows: WindowsFacts, overwrite: bool) -> bool:
    """Whether this store was made before, from these windows, and is whole."""
    there = store_there(store.output, store.record, overwrite)
    if there is None or there.parent is None or windows.digest is None:
        return False
    if there.parent["digest"] != windows.digest:
        if not overwrite:
            raise UserError(f"--output {store.output}: made from other windows than these: see --overwrite")
        return False
    if is_whole(store.output, there):
        files.remove(files.join(store.output, WORK))
        return True
    return False


def run_graph(job: Any, transform: "MakeWindows | None", rest: list[str], accelerator: str | None) -> None:
    """Makes the windows if they are not there, generates and writes, wherever Beam's options say."""
    import apache_beam as beam

    from pipeline.mining.graph import MineNegatives
    from pipeline.mining.pool import close_all, meeting_place
    from pipeline.runtime import beam as beam_runner

    options = beam_runner.beam_options(rest)
    hints = {"accelerator": accelerator} if accelerator else {}
    visible = beam_runner.is_local(options) and all(files.is_local(store.output) for store in job.stores)

    def build(pipeline: beam.Pipeline) -> object:
        windows = transform or beam.Create([job.windows])
        return pipeline | "Windows" >> windows | "Negatives" >> MineNegatives(job, hints)

    started = time.monotonic()
    try:
        with showing(lambda: progress(job), " windows", visible, lambda: details(job, time.monotonic() - started)):
            counters = beam_runner.run(build, options)
    finally:
        close_all()
        shutil.rmtree(meeting_place(job), ignore_errors=True)
    if counters.get("shards"):
        seconds = time.monotonic() - started
        print(
            f"{counters['shards']:,} shards in {seconds:,.0f} s: {counters['negatives'] / seconds:,.1f} negatives/s, "
            f"{counters['tokens'] / seconds:,.0f} tokens/s, starting the engine included"
        )


def progress(job: Any) -> tuple[str, int, int | None]:
    done, total = (sum(noted(store.work, what) for store in job.stores) for what in ("done", "total"))
    if not total:
        return make_windows.progress(job.windows)
    return "mining" if done else "starting the engine", done, total


def details(job: Any, seconds: float) -> str:
    """What the bar says beside how much is done."""
    names = ("shards", "tokens", "negatives", "equal_to_positive", "rejects")
    shards, tokens, negatives, equal, rejects = (sum(noted(store.work, name) for store in job.stores) for name in names)
    if not shards:
        return f"{rejects} rejects" if rejects else ""
    duplicates = max(noted(store.work, "duplicates") for store in job.stores) / 1e6
    return (
        f"{shards} shards, {tokens / seconds:,.0f} tokens/s, {duplicates:.1%} duplicates, {equal / negatives:.1%} true"
        + (f", {rejects} rejects" if rejects else "")
    )


def report(stores: Sequence[Any]) -> int:
    """Says what was made, and names what could not be; 1 if there is such a thing."""
    failed = 0
    for store in stores:
        folder = files.join(store.output, REJECTS)
        for name in files.names_in(folder):
            content = json.loads(files.read(files.join(folder, name)))
            print(f"error: {files.join(folder, name)}: {content['shard']}: {content['error']}", file=sys.stderr)
            failed += 1
        if files.is_file(files.join(store.output, "manifest.json")):
            describe(store.output, read_manifest(store.output))
        elif not files.exists(folder):
            print(f"{store.output}: handed over to the runner, which writes the store")
    if failed:
        print(f"error: {failed} shards could not be made: mend that, then run the same command again", file=sys.stderr)
    return 1 if failed else 0


def describe(output: str, manifest: Manifest) -> None:
    counts, generator, settings = manifest.counts, manifest.generator or {}, manifest.settings
    equal = counts["equal_to_positive"] / max(1, counts["negatives"])
    rule = sampling_words(manifest.sampling or {})
    lines = {
        "windows": f"{counts['windows']:,} of {settings['corpus']}, {settings['split']}",
        "generator": f"{generator['path']} ({generator['architecture']}, {generator['direction']})",
        "negatives": f"{counts['negatives']:,} of {counts['tokens']:,} tokens, {rule}",
        "duplicates": f"{counts['duplicates_per_million'] / 1e6:.2%} are another window's too, {equal:.2%} are true",
        "shards": f"{len(manifest.shards):,}, {manifest.bytes / 1e6:,.1f} MB",
        "a row": f"{manifest.bytes / max(1, manifest.rows):,.0f} bytes",
        "digest": manifest.digest,
    }
    print(f"negatives store {output}")
    for name, value in lines.items():
        print(f"  {name:<10} {value}")


def sampling_words(sampling: dict[str, Any]) -> str:
    rule = sampling["rule"]
    return {"temperature": "temperature 1"}.get(rule) or f"{rule} {sampling.get('top_k') or sampling.get('top_p')}"


if __name__ == "__main__":
    exit_with(main)
