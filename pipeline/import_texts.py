"""Makes a store of negatives from real and generated texts that exist already, to train or fine-tune on and to score.

  python pipeline/import_texts.py --real webtext.train.jsonl --generated small-117M-k40.train.jsonl \\
      --tokenizer models/energy --output stores/wild-train

The texts have nothing to do with each other: their tokens are cut into blocks, all real blocks are positives, all
generated ones negatives, and a row has one of each, an empty context, and no log-probabilities. White space is
normalised (every run of it becomes one space, none at either end), and the last block of a text is kept if it is at
least half as long as the others, or the only one: as in evaluation/detect.py. The same texts and settings give the
same store, byte for byte; one that is there is not made again.
"""

import hashlib
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from pipeline.mining.unpaired import Pairing, read_blocks
from pipeline.runtime import files
from pipeline.runtime.digests import digest_of
from pipeline.runtime.errors import UserError, exit_with
from pipeline.runtime.progress import Bar
from pipeline.runtime.settings import Settings, read_settings, setting
from pipeline.runtime.summary import print_summary
from pipeline.stores.manifest import Manifest, Record
from pipeline.stores.shards import TOKENIZER_FOLDER, Shard
from pipeline.stores.writer import REJECTS, StoreWriter
from pipeline.text.blocks import BLOCK_TOKENS
from pipeline.text.documents import FORMATS, Source, find_sources
from pipeline.text.inputs import changed_input, input_names, refuse_own_output
from pipeline.text.survey import Survey, check_rejects, survey_file
from pipeline.text.tokenizer import TextEncoder, load_tokenizer
from schemas.division import LEFT_TO_RIGHT

SCRIPT = "pipeline/import_texts.py"
SHARD_ROWS = 8192
SPLITS = ("train", "valid", "test")
REPEAT, DROP = "repeat", "drop"
TEXTS, ROWS = "the texts (.jsonl, .txt: one text a file, .parquet; also .gz and .zst)", "the rows"
SEVERAL = "ones, on any filesystem. May be given several times"


@dataclass(frozen=True, kw_only=True)
class ImportSettings(Settings):
    """Which texts become which rows, and where they go."""

    real: tuple[str, ...] = setting(metavar="PATTERN", help=f"real {SEVERAL}", group=TEXTS)
    generated: tuple[str, ...] = setting(metavar="PATTERN", help=f"generated {SEVERAL}", group=TEXTS)
    corpus: str | None = setting(
        None, help="name of the real texts (default: webtext, of webtext.train.jsonl)", group=TEXTS, result=True
    )
    split: str | None = setting(
        None, help="train, valid or test (default: train, of webtext.train.jsonl)", group=TEXTS, result=True
    )
    generator: str | None = setting(
        None,
        metavar="NAME",
        help="what generated the others, for later tables (default: small-117M-k40, of small-117M-k40.train.jsonl)",
        group=TEXTS,
        result=True,
    )
    architecture: str | None = setting(
        None,
        metavar="NAME",
        help="of the generator, whatever its sampling (default: small-117M, of small-117M-k40)",
        group=TEXTS,
        result=True,
    )
    text_field: str = setting(
        "text", help="field or column that holds the text (default: text)", group=TEXTS, result=True
    )
    encoding: str = setting("utf-8", help="of text and JSON files (default: utf-8)", group=TEXTS, result=True)
    max_reject_fraction: float = setting(
        0.01,
        metavar="F",
        help="fail if more than this share of the texts has to be left out: invalid UTF-8, NUL bytes, broken JSON "
        "(default: 0.01)",
        group=TEXTS,
        least=0,
        most=1,
    )
    tokenizer: str = setting(
        metavar="DIR_OR_NAME",
        help="that of the energy model to be fine-tuned: its folder, a store's or a tokenizer's, or a hub name",
        group=ROWS,
    )
    block: int = setting(
        BLOCK_TOKENS, metavar="TOKENS", help=f"at most (default: {BLOCK_TOKENS})", group=ROWS, least=2, most=10**9
    )
    surplus: str = setting(
        REPEAT,
        choices=(REPEAT, DROP),
        help="where there are more blocks of one kind, repeat those of the other until each is in a row (default), or "
        "drop what is too many",
        group=ROWS,
        result=True,
    )
    seed: int = setting(0, help="of the order (default: 0)", group=ROWS, least=0, most=2**63 - 1, result=True)
    output: str = setting(metavar="DIR", help="its folder, on any filesystem", group="the store")
    overwrite: bool = setting(False, help="replace a store that was made with other settings", group="the store")


@dataclass(frozen=True)
class Texts:
    """The files of real and of generated texts."""

    real: list[Source]
    generated: list[Source]

    @property
    def all(self) -> list[Source]:
        return [*self.real, *self.generated]


def main(arguments: Sequence[str] | None = None) -> int:
    settings = read_settings(ImportSettings, sys.argv[1:] if arguments is None else arguments, __doc__)
    describe(settings.output, import_texts(settings))
    return 0


def import_texts(settings: ImportSettings) -> Manifest:
    """Makes a store of negatives from texts, unless it is there."""
    texts = Texts(find("real", settings.real, settings), find("generated", settings.generated, settings))
    settings = settled(settings, texts)
    encoder = load_tokenizer(settings.tokenizer)
    writer = StoreWriter(settings.output, Record.of(SCRIPT, settings, result_of(settings, texts, encoder)), "negatives")
    with writer.held():
        there = writer.made_before(settings.overwrite, lambda made: changed_input(texts.all, made, settings.output))
        if there is not None:
            print(f"{settings.output}: finished before, nothing to do")
            return there
        with writer.making():
            return make(settings, texts, encoder, writer)


def find(kind: str, patterns: Sequence[str], settings: ImportSettings) -> list[Source]:
    """The files of real, or of generated texts."""
    for pattern in patterns:
        if ":" not in pattern.partition("://")[0] and not files.glob(pattern):
            raise UserError(f"--{kind} {pattern}: no file matches: check the path, and quote the pattern")
    split = settings.split or SPLITS[0]
    found = find_sources(patterns, split, FORMATS[0], settings.text_field, settings.encoding)
    refuse_own_output(found, settings.output)
    return found


def settled(settings: ImportSettings, texts: Texts) -> ImportSettings:
    """With corpus, split and generator: from the flags, or from files called NAME.SPLIT.jsonl."""
    real, generated = ([named(source.url) for source in found] for found in (texts.real, texts.generated))
    guesses = {
        "corpus": {name for name, _ in real},
        "generator": {name for name, _ in generated},
        "split": {split for _, split in [*real, *generated]},
    }
    names: dict[str, Any] = {}
    for flag, found in guesses.items():
        value = getattr(settings, flag)
        if value is None:
            if len(found) != 1 or None in found:
                raise UserError(f"--{flag}: give it, the files are not all called NAME.SPLIT.jsonl with the same one")
            value = found.pop()
        if not value or not value.isprintable():
            raise UserError(f"--{flag} {value!r}: it must have characters that can be printed")
        names[flag] = value
    architecture = settings.architecture or re.sub(r"-k\d+$", "", names["generator"])
    return replace(settings, **names, architecture=architecture)


def named(url: str) -> tuple[str | None, str | None]:
    """NAME and SPLIT of NAME.SPLIT.jsonl."""
    parts = url.rsplit("/", 1)[-1].removesuffix(".gz").removesuffix(".zst").rsplit(".", 2)
    return (parts[0], parts[1]) if len(parts) == 3 and parts[0] and parts[1] in SPLITS else (None, None)


def result_of(settings: ImportSettings, texts: Texts, encoder: TextEncoder) -> dict[str, Any]:
    """Every setting that the rows depend on; those that mined stores have too have the same names."""
    return settings.result() | {
        "window": settings.block,
        "context_lengths": [0],
        "every_context_length": False,
        "negatives": 1,
        "samples_per_row": 1,
        "direction": LEFT_TO_RIGHT,
        "sampling": {"rule": "unknown"},
        "tokenizer": encoder.encoding_digest,
        "inputs": {"real": input_names(texts.real), "generated": input_names(texts.generated)},
    }


def make(settings: ImportSettings, texts: Texts, encoder: TextEncoder, writer: StoreWriter) -> Manifest:
    """Reads all texts, then writes the store: what is wrong with them comes up before the folder is claimed."""
    real, generated = ([survey_file(source) for source in found] for found in (texts.real, texts.generated))
    surveys = [*real, *generated]
    rejects = [reject for survey in surveys for reject in survey.rejects]
    rejected, documents = (sum(getattr(survey, name) for survey in surveys) for name in ("rejected", "documents"))
    check_rejects(rejects, rejected, documents, settings.max_reject_fraction)
    pairing = pair(settings, real, generated, encoder)
    encoder.save(files.join(writer.work, TOKENIZER_FOLDER))
    writer.claim(files.join(writer.work, TOKENIZER_FOLDER))
    writer.list_rejects(map(asdict, rejects))
    return writer.finish(
        write_shards(settings, pairing, writer, surveys),
        tokenizer=encoder.description,
        parent=None,
        seed=settings.seed,
        counts=counts_of(real, generated, pairing),
        inputs=[survey.as_input for survey in surveys],
        generator=generator_of(settings, generated),
        sampling={"rule": "unknown", "samples_per_row": 1},
    )


def pair(settings: ImportSettings, real: list[Survey], generated: list[Survey], encoder: TextEncoder) -> Pairing:
    blocks = []
    total = sum(survey.characters for survey in [*real, *generated])
    with Bar(total=total, desc="reading", unit=" characters", unit_scale=True) as bar:
        for kind, name, surveys in (("real", settings.corpus, real), ("generated", settings.generator, generated)):
            bar.set_description(f"{kind} texts")
            names = str(name), str(settings.split)
            found = read_blocks(surveys, *names, encoder, settings.block, settings.seed, bar.update)
            if not len(found):
                raise UserError(f"--{kind}: there is no text in {surveys[0].source.url}, nor in others if given")
            blocks.append(found)
    sizes = [len(found) for found in blocks]
    return Pairing(blocks[0], blocks[1], max(sizes) if settings.surplus == REPEAT else min(sizes))


def write_shards(settings: ImportSettings, pairing: Pairing, writer: StoreWriter, surveys: list[Survey]) -> list[Shard]:
    """All rows, except shards that an earlier run wrote."""
    settings_digest = digest_of(writer.record.settings | {"texts": sorted(survey.digest for survey in surveys)})
    shards, there = [], writer.shard_files()
    starts = range(0, pairing.rows, SHARD_ROWS)
    for number, first in enumerate(Bar(starts, desc="writing", unit=" shards")):
        shard = writer.shard(there.get(number, ()), settings_digest)
        if shard is None:
            end = min(first + SHARD_ROWS, pairing.rows)
            rows = pairing.table(first, end, str(settings.corpus), str(settings.split), settings.seed)
            shard = writer.write(number, rows, settings_digest)
        shards.append(shard)
    return shards


def counts_of(real: list[Survey], generated: list[Survey], pairing: Pairing) -> dict[str, int]:
    return {
        "windows": min(len(pairing.real), pairing.rows),
        "negatives": pairing.rows,
        "tokens": sum(len(pairing.generated.tokens[row % len(pairing.generated)]) for row in range(pairing.rows)),
        "real_texts": sum(survey.documents for survey in real),
        "generated_texts": sum(survey.documents for survey in generated),
        "real_blocks": len(pairing.real),
        "generated_blocks": len(pairing.generated),
        "rejected": sum(survey.rejected for survey in [*real, *generated]),
        "empty": sum(survey.empty for survey in [*real, *generated]),
    }


def generator_of(settings: ImportSettings, generated: list[Survey]) -> dict[str, Any]:
    """What the manifest says of whatever wrote the generated texts: they stand for its weights."""
    texts = "".join(sorted(survey.digest for survey in generated))
    return {
        "name": settings.generator,
        "path": ",".join(survey.source.url for survey in generated),
        "digest": hashlib.sha256(texts.encode()).hexdigest(),
        "architecture": settings.architecture,
        "training_corpus": None,
        "training_seed": None,
        "direction": LEFT_TO_RIGHT,
    }


def describe(output: str, manifest: Manifest) -> None:
    counts, settings = manifest.counts, manifest.settings
    left_out = [f"{counts[name]:,} {name}" for name in ("rejected", "empty") if counts[name]]
    facts = {
        "real": f"{counts['real_texts']:,} texts of {settings['corpus']}, {settings['split']}: "
        f"{counts['real_blocks']:,} blocks",
        "generated": f"{counts['generated_texts']:,} texts of {settings['generator']}: "
        f"{counts['generated_blocks']:,} blocks",
        "of which": ", ".join(left_out) + (f": see {files.join(output, REJECTS)}" if counts["rejected"] else ""),
        "rows": f"{manifest.rows:,}, blocks of at most {settings['window']} tokens",
        "shards": f"{len(manifest.shards):,}, {manifest.bytes / 1e6:,.1f} MB",
        "digest": manifest.digest,
    }
    print_summary(f"negatives store {output}", facts)


if __name__ == "__main__":
    exit_with(main)
