"""Distinguishes real from generated texts with an energy model, in any number of files, whatever the texts' length.

  python evaluation/detect.py --energy models/energy --input 'texts/*.jsonl' --output scores.parquet
  python evaluation/detect.py --energy models/energy --real webtext.test.jsonl \\
      --generated small-117M-k40.test.jsonl --output scores.parquet

A text's white space is normalised first: every run of it becomes one space, and there is none at either end (line
breaks alone would give generated text away). Its tokens are cut into blocks that do not overlap; its score is the
mean of s = -E over them, and it is called real if that is above 0. The last block is kept if it is at least half as
long as the others, or the only one: the text is then marked as short. A text that is empty, or no UTF-8, or no JSON,
has no score but a problem; all others are scored, and the exit code is 1.

Written are a Parquet file with a row for every text (id, file, label, score, probability, blocks, tokens, short,
problem) and, beside it, a JSON file with the share of each file that is called real. Where it is known what is real
(--real, --generated), it also has balanced accuracy, with a 95 % interval, and AUROC, for each generated file against
all real texts. --tfidf_train and --tfidf_valid put a TF-IDF baseline beside the energy model.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from evaluation.detection.detector import Detection, Detector
from evaluation.detection.summary import GENERATED, REAL, accuracies, in_words, shares
from evaluation.detection.texts import LabelledFile, whole_texts
from evaluation.detection.tfidf import Tfidf, train_tfidf
from evaluation.results.json_file import write_json
from evaluation.results.parquet_file import write_parquet
from pipeline.runtime import files
from pipeline.runtime.errors import UserError, exit_with
from pipeline.runtime.progress import Bar
from pipeline.runtime.provenance import code_version
from pipeline.runtime.settings import Settings, read_settings, setting
from pipeline.text.blocks import BLOCK_TOKENS, LAST_BLOCK, WHITE_SPACE
from pipeline.text.documents import Source
from pipeline.text.named_texts import find_texts, read_texts
from schemas.results import DETECTION, DETECTIONS, TFIDF_SCORE

TEXTS_AT_ONCE = 256  # of TF-IDF
METADATA = b"residual_ebm"
OF_TEXTS = "the texts (.jsonl, .txt: one text a file, .parquet; also .gz and .zst)"
OF_BASELINE = "a TF-IDF baseline beside the energy model"
PAIRED = ("--tfidf_train", "--tfidf_valid")


@dataclass(frozen=True, kw_only=True)
class DetectSettings(Settings):
    """An energy model, texts, and a baseline if one is wanted: real and generated files in turn, a pair each time."""

    energy: str = setting(help="the energy model", metavar="DIR_OR_NAME")
    input: tuple[str, ...] = setting((), help="texts of any kind", metavar="PATTERN", group=OF_TEXTS)
    real: tuple[str, ...] = setting((), help="texts that are real", metavar="PATTERN", group=OF_TEXTS)
    generated: tuple[str, ...] = setting((), help="texts that are generated", metavar="PATTERN", group=OF_TEXTS)
    text_field: str = setting("text", help="field or column that holds the text (default: text)", group=OF_TEXTS)
    encoding: str = setting("utf-8", help="of text and JSON files (default: utf-8)", group=OF_TEXTS)
    block: int | None = setting(
        None,
        help=f"length of a block (default: {BLOCK_TOKENS}, or as many as the model can read)",
        metavar="TOKENS",
        group=OF_TEXTS,
    )
    tfidf_train: tuple[str, ...] = setting(
        (),
        help="texts to train it on: real and generated ones, two files or patterns",
        metavar="FILE",
        group=OF_BASELINE,
        several=True,
    )
    tfidf_valid: tuple[str, ...] = setting(
        (), help="texts to choose its C on: real and generated ones", metavar="FILE", group=OF_BASELINE, several=True
    )
    output: str = setting(help="a Parquet file, on any filesystem", metavar="FILE")
    batch_size: int | None = setting(None, help="blocks at once (default: 64, on GPUs 512)", metavar="N", least=1)

    def check(self) -> None:
        if not (self.input or self.real or self.generated):
            raise UserError("--input: name texts, or use --real and --generated for texts that are known to be so")
        for flag, given in zip(PAIRED, (self.tfidf_train, self.tfidf_valid), strict=True):
            if len(given) % 2:
                raise UserError(f"argument {flag}: expected 2 arguments: see --help")
        if bool(self.tfidf_train) != bool(self.tfidf_valid):
            raise UserError(f"{', '.join(PAIRED)}: give both, each with a file of real and one of generated texts")
        if not self.output.endswith(".parquet") or (files.exists(self.output) and not files.is_file(self.output)):
            raise UserError(f"--output {self.output}: a file whose name ends with .parquet")


def main(arguments: Sequence[str] | None = None) -> int:
    settings = read_settings(DetectSettings, sys.argv[1:] if arguments is None else arguments, __doc__)
    rows, result = detect(settings)
    return describe(rows, result, settings.output)


def detect(settings: DetectSettings) -> tuple[pa.Table, dict[str, Any]]:
    """A row for every text, and what they come to; both are written."""
    inputs = find_inputs(settings)
    baseline = train_baseline(settings) if settings.tfidf_train else None
    detector = Detector(settings.energy, settings.block, settings.batch_size)
    rows = score_texts(inputs, detector)
    if baseline:
        rows = rows.append_column(TFIDF_SCORE, baseline_scores(inputs, baseline, rows["problem"]))
    facts = describe_run(detector, baseline)
    result = facts | {"files": shares(rows, inputs), "accuracy": accuracies(rows)}
    write(rows, facts, result, settings.output)
    return rows, result


def find_inputs(settings: DetectSettings) -> list[LabelledFile]:
    """All files, each once: those of --real, of --generated, of --input."""
    found: dict[str, LabelledFile] = {}
    for flag, label in (("real", REAL), ("generated", GENERATED), ("input", None)):
        for source in find_texts(flag, getattr(settings, flag), settings.text_field, settings.encoding):
            name = files.identity(source.url)
            if name in found:
                raise UserError(f"--{flag} {source.url}: it is among the texts of --{found[name].label or 'input'} too")
            found[name] = LabelledFile(source, label)
    if files.identity(settings.output) in found:
        raise UserError(f"--output {settings.output}: it is one of the texts: choose another file")
    return list(found.values())


def score_texts(inputs: list[LabelledFile], detector: Detector) -> pa.Table:
    """A row for every text, in the order of the files."""
    sizes = [input.source.bytes for input in inputs]
    plain = not any(input.source.url.endswith((".gz", ".zst", ".parquet")) for input in inputs)
    total = sum(size or 0 for size in sizes) if plain and None not in sizes else None
    columns: dict[str, list[Any]] = {name: [] for name in DETECTIONS.names}
    with Bar(total=total, desc="scoring", unit=" bytes", unit_scale=True) as bar:
        for number, input in enumerate(inputs, 1):
            bar.set_description(f"file {number} of {len(inputs)}")
            before, ids = bar.done, columns["id"]
            texts = noting_ids(input.source, ids)
            for found in detector.stream(texts, bar.update):
                add(columns, input, found)
            bar.update((input.source.bytes or 0) - (bar.done - before) if total else 0)
    return pa.table(columns, DETECTIONS)


def noting_ids(source: Source, ids: list[str]) -> Iterator[Iterable[str]]:
    """The texts of a file; their ids are put aside."""
    for text in read_texts(source):
        ids.append(text.id)
        yield text.pieces


def add(columns: dict[str, list[Any]], input: LabelledFile, found: Detection) -> None:
    """Everything of one text but its id."""
    known = {"file": input.source.url, "label": input.label}
    for name in DETECTIONS.names:
        if name != "id":
            columns[name].append(known[name] if name in known else getattr(found, name))


@dataclass(frozen=True)
class LabelledTexts:
    """What a baseline learns from: texts, whether each is real, and how many could not be read or are empty."""

    texts: list[str]
    is_real: list[bool]
    left_out: int


def train_baseline(settings: DetectSettings) -> Tfidf:
    """TF-IDF, trained on the files that the flags name, as far as their texts can be read."""
    train = labelled_texts("tfidf_train", settings.tfidf_train, settings)
    valid = labelled_texts("tfidf_valid", settings.tfidf_valid, settings)
    trained = train_tfidf(train.texts, train.is_real, valid.texts, valid.is_real)
    left_out = train.left_out + valid.left_out
    print(
        f"TF-IDF trained on {len(train.texts):,} texts{f' ({left_out:,} empty or unreadable)' if left_out else ''}: "
        f"C {trained.strength:g}, right on {trained.valid_accuracy:.2%} of {len(valid.texts):,} validation texts",
        flush=True,
    )
    return trained


def labelled_texts(flag: str, patterns: Sequence[str], settings: DetectSettings) -> LabelledTexts:
    """Of files that are real and generated in turn."""
    texts: list[str] = []
    is_real: list[bool] = []
    left_out = 0
    for place, pattern in enumerate(patterns):
        for source in find_texts(flag, [pattern], settings.text_field, settings.encoding):
            found = list(whole_texts(source))
            texts += filter(None, found)
            is_real += [place % 2 == 0] * (len(texts) - len(is_real))
            left_out += found.count("")
    return LabelledTexts(texts, is_real, left_out)


def baseline_scores(inputs: list[LabelledFile], baseline: Tfidf, problems: pa.ChunkedArray) -> pa.Array:
    """The baseline's scores of the same texts, null where there is a problem."""
    texts = (text for input in inputs for text in whole_texts(input.source))
    found: list[float] = []
    while some := list(islice(texts, TEXTS_AT_ONCE)):
        found += baseline.score(some).tolist()
    return pc.if_else(pc.is_null(problems), pa.array(found, pa.float64()), None).combine_chunks()


def describe_run(detector: Detector, baseline: Tfidf | None) -> dict[str, Any]:
    """What the scores depend on: it stands in the JSON file and in the Parquet file's metadata."""
    facts = {
        "energy": {
            "path": detector.folder.name,
            "digest": detector.folder.weights_digest,
            "kind": detector.folder.family,
            "preset": detector.folder.provenance.get("preset"),
            "stores": detector.folder.provenance.get("stores"),
        },
        "block": detector.block,
        "last_block": LAST_BLOCK,
        "white_space": WHITE_SPACE,
        "code_version": code_version(),
    }
    if baseline:
        facts["tfidf"] = {"C": baseline.strength, "valid_accuracy": baseline.valid_accuracy}
    return facts


def write(rows: pa.Table, facts: dict[str, Any], result: dict[str, Any], output: str) -> None:
    described = rows.replace_schema_metadata({METADATA: json.dumps(facts).encode()})
    write_parquet(output, described, compression="zstd")
    write_json(summary_file(output), result, DETECTION)


def summary_file(output: str) -> str:
    return f"{output.removesuffix('.parquet')}.json"


def describe(rows: pa.Table, result: dict[str, Any], output: str) -> int:
    """Says what was found, and names texts that were left out; 1 if there are such."""
    print(f"detection {output}, {summary_file(output)}")
    print(f"  energy model of blocks of {result['block']} tokens: {result['energy']['path']}")
    for file in result["files"]:
        called = "" if file["share_called_real"] is None else f" ({file['share_called_real']:.2%})"
        label = f" ({file['label']})" if file["label"] else ""
        more = "".join(f", {file[name]:,} {name.replace('_', ' ')}" for name in ("short", "left_out") if file[name])
        print(f"  {file['file']}{label}: {file['called_real']:,} of {file['texts']:,} texts called real{called}{more}")
    for found in result["accuracy"]:
        print(f"  {found['detector']} on {found['generated'].rsplit('/', 1)[-1]}: {in_words(found)}")
    bad = rows.filter(pc.is_valid(rows["problem"]))
    for row in bad.slice(0, 10).to_pylist():
        print(f"error: {row['file']}: text {row['id']}: {row['problem']}", file=sys.stderr)
    if len(bad):
        print(f"error: {len(bad):,} of {len(rows):,} texts have no score: see the column problem", file=sys.stderr)
    return 1 if len(bad) else 0


if __name__ == "__main__":
    exit_with(main)
