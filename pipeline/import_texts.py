"""Makes a store of negatives from real and generated texts that exist already, to train or fine-tune on and to score.

  python pipeline/import_texts.py --real webtext.train.jsonl --generated small-117M-k40.train.jsonl \\
      --tokenizer models/energy --output stores/wild-train

The texts have nothing to do with each other: their tokens are cut into blocks, all real blocks are positives, all
generated ones negatives, and a row has one of each, an empty context, and no log-probabilities. White space is
normalised (every run of it becomes one space, none at either end), and the last block of a text is kept if it is at
least half as long as the others, or the only one: as in evaluation/detect.py. The same texts and settings give the
same store, byte for byte; one that is there is not made again.
"""

import argparse
import hashlib
import json
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tqdm import tqdm

from pipeline.make_windows import changed_input, refuse_own_output
from pipeline.mining.unpaired import LEFT_TO_RIGHT, Pairing, read_blocks
from pipeline.runtime import files
from pipeline.runtime.command_line import Parser
from pipeline.runtime.errors import Obstructed, UserError, exit_with
from pipeline.runtime.lock import writing
from pipeline.stores.manifest import Manifest, Record, read_manifest, write_manifest
from pipeline.stores.shards import TOKENIZER_FOLDER, Shard, fingerprint, finished_shard, remove_others, write_shard
from pipeline.stores.writer import REJECTS, WORK, abandon, begin, commit, is_whole, store_there
from pipeline.text.blocks import BLOCK
from pipeline.text.documents import FORMATS, Source, find_sources
from pipeline.text.survey import Survey, check_rejects, survey_file
from pipeline.text.tokenizer import TextEncoder, load_tokenizer

SHARD_ROWS = 8192
SPLITS = ("train", "valid", "test")
REPEAT, DROP = "repeat", "drop"


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    options = parse(arguments)
    sources = {kind: find(kind, options) for kind in ("real", "generated")}
    settle_names(options, sources)
    encoder = load_tokenizer(options.tokenizer)
    settings = settings_of(options, sources, encoder)
    record = Record(["pipeline/import_texts.py", *arguments], os.getcwd(), settings)
    with writing(options.output):
        there = store_there(options.output, record, options.overwrite)
        changed = changed_input([*sources["real"], *sources["generated"]], there) if there else None
        if changed and not options.overwrite:
            raise UserError(f"{changed}: it has changed since {options.output} was made from it: see --overwrite")
        if there is None or changed or not is_whole(options.output, there):
            make(options, sources, encoder, record)
        else:
            print(f"{options.output}: finished before, nothing to do")
            files.remove(files.join(options.output, WORK))
    describe(options.output, read_manifest(options.output))
    return 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser(__doc__)
    texts = parser.add_argument_group("the texts (.jsonl, .txt: one text a file, .parquet; also .gz and .zst)")
    for kind in ("real", "generated"):
        what = f"{kind} ones, on any filesystem. May be given several times"
        texts.add_argument(f"--{kind}", action="append", required=True, metavar="PATTERN", help=what)
    texts.add_argument("--corpus", help="name of the real texts (default: webtext, of webtext.train.jsonl)")
    texts.add_argument("--split", help="train, valid or test (default: train, of webtext.train.jsonl)")
    texts.add_argument(
        "--generator",
        metavar="NAME",
        help="what generated the others, for later tables (default: small-117M-k40, of small-117M-k40.train.jsonl)",
    )
    texts.add_argument(
        "--architecture",
        metavar="NAME",
        help="of the generator, whatever its sampling (default: small-117M, of small-117M-k40)",
    )
    texts.add_argument("--text_field", default="text", help="field or column that holds the text (default: text)")
    texts.add_argument("--encoding", default="utf-8", help="of text and JSON files (default: utf-8)")
    texts.add_argument(
        "--max_reject_fraction",
        type=float,
        default=0.01,
        metavar="F",
        help="fail if more than this share of the texts has to be left out: invalid UTF-8, NUL bytes, broken JSON "
        "(default: 0.01)",
    )
    tokens = parser.add_argument_group("the rows")
    tokens.add_argument(
        "--tokenizer",
        required=True,
        metavar="DIR_OR_NAME",
        help="that of the energy model to be fine-tuned: its folder, a store's or a tokenizer's, or a hub name",
    )
    tokens.add_argument("--block", type=int, default=BLOCK, metavar="TOKENS", help=f"at most (default: {BLOCK})")
    tokens.add_argument(
        "--surplus",
        choices=(REPEAT, DROP),
        default=REPEAT,
        help="where there are more blocks of one kind, repeat those of the other until each is in a row (default), or "
        "drop what is too many",
    )
    tokens.add_argument("--seed", type=int, default=0, help="of the order (default: 0)")
    store = parser.add_argument_group("the store")
    store.add_argument("--output", required=True, metavar="DIR", help="its folder, on any filesystem")
    store.add_argument("--overwrite", action="store_true", help="replace a store that was made with other settings")
    options = parser.parse_args(arguments)
    if not 2 <= options.block <= 10**9:
        raise UserError(f"--block {options.block}: at least 2, at most 10^9")
    if not 0 <= options.seed < 2**63:
        raise UserError(f"--seed {options.seed}: between 0 and 2^63 - 1")
    if not 0 <= options.max_reject_fraction <= 1:
        raise UserError(f"--max_reject_fraction {options.max_reject_fraction}: between 0 and 1")
    return options


def find(kind: str, options: argparse.Namespace) -> list[Source]:
    """The files of real, or of generated texts."""
    for pattern in getattr(options, kind):
        if ":" not in pattern.partition("://")[0] and not files.glob(pattern):
            raise UserError(f"--{kind} {pattern}: no file matches: check the path, and quote the pattern")
    found = find_sources(
        getattr(options, kind), options.split or SPLITS[0], FORMATS[0], options.text_field, options.encoding
    )
    refuse_own_output(found, options.output)
    return found


def settle_names(options: argparse.Namespace, sources: dict[str, list[Source]]) -> None:
    """Corpus, split and generator: from the flags, or from files called NAME.SPLIT.jsonl."""
    names = {kind: {named(source.url) for source in found} for kind, found in sources.items()}
    guesses = {
        "corpus": {name for name, _ in names["real"]},
        "generator": {name for name, _ in names["generated"]},
        "split": {split for kind in names.values() for _, split in kind},
    }
    for flag, found in guesses.items():
        if getattr(options, flag) is None:
            if len(found) != 1 or None in found:
                raise UserError(f"--{flag}: give it, the files are not all called NAME.SPLIT.jsonl with the same one")
            setattr(options, flag, found.pop())
        if not getattr(options, flag) or not getattr(options, flag).isprintable():
            raise UserError(f"--{flag} {getattr(options, flag)!r}: it must have characters that can be printed")
    options.architecture = options.architecture or re.sub(r"-k\d+$", "", options.generator)


def named(url: str) -> tuple[str | None, str | None]:
    """NAME and SPLIT of NAME.SPLIT.jsonl."""
    parts = url.rsplit("/", 1)[-1].removesuffix(".gz").removesuffix(".zst").rsplit(".", 2)
    return (parts[0], parts[1]) if len(parts) == 3 and parts[0] and parts[1] in SPLITS else (None, None)


def settings_of(options: argparse.Namespace, sources: dict[str, list[Source]], encoder: TextEncoder) -> dict[str, Any]:
    """Every setting that the rows depend on; those that mined stores have too have the same names."""
    names = ("corpus", "split", "seed", "surplus", "text_field", "encoding", "generator", "architecture")
    return {name: getattr(options, name) for name in names} | {
        "window": options.block,
        "context_lengths": [0],
        "every_context_length": False,
        "negatives": 1,
        "samples_per_row": 1,
        "direction": LEFT_TO_RIGHT,
        "sampling": {"rule": "unknown"},
        "tokenizer": encoder.encoding_digest,
        "inputs": {
            kind: sorted([source.url.rsplit("/", 1)[-1], source.format, source.bytes] for source in found)
            for kind, found in sources.items()
        },
    }


def make(options: argparse.Namespace, sources: dict[str, list[Source]], encoder: TextEncoder, record: Record) -> None:
    """The store; bad input leaves the folder as it was."""
    existed = files.exists(options.output)
    work = begin(options.output, record)
    try:
        surveys = {kind: [survey_file(source) for source in found] for kind, found in sources.items()}
        together = [survey for found in surveys.values() for survey in found]
        rejects = [reject for survey in together for reject in survey.rejects]
        rejected, documents = (sum(getattr(survey, name) for survey in together) for name in ("rejected", "documents"))
        check_rejects(rejects, rejected, documents, options.max_reject_fraction)
        pairing = pair(options, surveys, encoder)
        encoder.save(files.join(work, TOKENIZER_FOLDER))
        commit(options.output, files.join(work, TOKENIZER_FOLDER), record)
    except Obstructed:
        raise
    except UserError:
        abandon(options.output, existed)
        raise
    if rejects:
        lines = "".join(json.dumps(asdict(reject)) + "\n" for reject in rejects)
        files.put(files.join(options.output, REJECTS, "documents.jsonl"), lines.encode())
    shards = write_shards(options, pairing, record, together)
    write_manifest(options.output, manifest_of(options, surveys, pairing, encoder, record, shards))
    remove_others(options.output, shards)
    files.remove(work)


def pair(options: argparse.Namespace, surveys: dict[str, list[Survey]], encoder: TextEncoder) -> Pairing:
    names = {"real": options.corpus, "generated": options.generator}
    blocks = {}
    total = sum(survey.characters for found in surveys.values() for survey in found)
    with tqdm(total=total, unit=" characters", unit_scale=True, dynamic_ncols=True, disable=None) as bar:
        for kind, name in names.items():
            bar.set_description(f"{kind} texts")
            found = read_blocks(surveys[kind], name, options.split, encoder, options.block, options.seed, bar.update)
            if not len(found):
                raise UserError(f"--{kind}: there is no text in {surveys[kind][0].source.url}, nor in others if given")
            blocks[kind] = found
    sizes = len(blocks["real"]), len(blocks["generated"])
    return Pairing(blocks["real"], blocks["generated"], max(sizes) if options.surplus == REPEAT else min(sizes))


def write_shards(options: argparse.Namespace, pairing: Pairing, record: Record, surveys: list[Survey]) -> list[Shard]:
    """All rows, except shards that an earlier run wrote."""
    stamp = fingerprint(record.settings | {"texts": sorted(survey.digest for survey in surveys)})
    made = []
    starts = range(0, pairing.rows, SHARD_ROWS)
    for number, first in enumerate(tqdm(starts, desc="writing", unit="shard", disable=None)):
        shard = finished_shard(options.output, number, "negatives", stamp)
        if shard is None:
            end = min(first + SHARD_ROWS, pairing.rows)
            rows = pairing.table(first, end, options.corpus, options.split, options.seed)
            shard = write_shard(options.output, number, rows, stamp)
        made.append(shard)
    return made


def manifest_of(
    options: argparse.Namespace,
    surveys: dict[str, list[Survey]],
    pairing: Pairing,
    encoder: TextEncoder,
    record: Record,
    shards: list[Shard],
) -> Manifest:
    together = [survey for found in surveys.values() for survey in found]
    texts = "".join(sorted(survey.digest for survey in surveys["generated"]))
    return Manifest(
        kind="negatives",
        shards=shards,
        settings=record.settings,
        tokenizer=encoder.description,
        parent=None,
        seed=options.seed,
        command=record.command,
        directory=record.directory,
        counts={
            "windows": min(len(pairing.real), pairing.rows),
            "negatives": pairing.rows,
            "tokens": sum(len(pairing.generated.tokens[row % len(pairing.generated)]) for row in range(pairing.rows)),
            "real_texts": sum(survey.documents for survey in surveys["real"]),
            "generated_texts": sum(survey.documents for survey in surveys["generated"]),
            "real_blocks": len(pairing.real),
            "generated_blocks": len(pairing.generated),
            "rejected": sum(survey.rejected for survey in together),
            "empty": sum(sum(survey.unused) - survey.rejected for survey in together),
        },
        inputs=[
            {
                "file": survey.source.url,
                "bytes": survey.source.bytes,
                "modified": survey.source.modified,
                "documents": survey.documents,
                "digest": survey.digest,
            }
            for survey in together
        ],
        generator={
            "name": options.generator,
            "path": ",".join(survey.source.url for survey in surveys["generated"]),
            "digest": hashlib.sha256(texts.encode()).hexdigest(),
            "architecture": options.architecture,
            "training_corpus": None,
            "training_seed": None,
            "direction": LEFT_TO_RIGHT,
        },
        sampling={"rule": "unknown", "samples_per_row": 1},
    )


def describe(output: str, manifest: Manifest) -> None:
    counts, settings = manifest.counts, manifest.settings
    left_out = [f"{counts[name]:,} {name}" for name in ("rejected", "empty") if counts[name]]
    lines = {
        "real": f"{counts['real_texts']:,} texts of {settings['corpus']}, {settings['split']}: "
        f"{counts['real_blocks']:,} blocks",
        "generated": f"{counts['generated_texts']:,} texts of {settings['generator']}: "
        f"{counts['generated_blocks']:,} blocks",
        "of which": ", ".join(left_out) + (f": see {files.join(output, REJECTS)}" if counts["rejected"] else ""),
        "rows": f"{manifest.rows:,}, blocks of at most {settings['window']} tokens",
        "shards": f"{len(manifest.shards):,}, {manifest.bytes / 1e6:,.1f} MB",
        "digest": manifest.digest,
    }
    print(f"negatives store {output}")
    for name, value in lines.items():
        if value:
            print(f"  {name:<10} {value}")


if __name__ == "__main__":
    exit_with(main)
