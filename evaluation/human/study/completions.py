"""Where the texts of a study come from: the completions of one model, by context."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.runtime import files
from pipeline.runtime.errors import UserError
from pipeline.stores.manifest import read_record
from pipeline.stores.reader import Store
from pipeline.text.tokenizer import load_tokenizer
from schemas.division import LEFT_TO_RIGHT, divide
from schemas.results import SAMPLES_FILE

LABELS = {"base": "base LM", "chosen": "joint", "real": "human", "best": "lowest energy", "worst": "highest energy"}


@dataclass(frozen=True)
class Passage:
    context: str
    completion: str


@dataclass(frozen=True)
class CompletionSet:
    """Completions by window id, and what to call them in a table."""

    label: str
    passages: dict[str, Passage]


def read_completions(flag: str, given: str) -> CompletionSet:
    """`FOLDER:TEXT`: samples that sample_joint.py made (or one .parquet file), and which of their texts."""
    path, text = divided(given)
    table = read_samples(flag, path)
    known = sorted(name.removesuffix("_text") for name in table.column_names if name.endswith("_text"))
    choices = [name for name in known if name != "context"]
    if text not in choices:
        raise UserError(f"{flag} {given}: say which text, {path}:{choices[0] if choices else '…'} (of {choices})")
    columns = (table[name].to_pylist() for name in ("window_id", "context_text", f"{text}_text"))
    rows = [row for row in zip(*columns, strict=True) if None not in row]
    repeated = [name for name, count in Counter(name for name, _, _ in rows).items() if count > 1]
    if repeated:
        raise UserError(f"{flag} {given}: there are several rows with the window_id {repeated[0]!r}")
    passages = {name: Passage(context, completion) for name, context, completion in rows}
    return CompletionSet(label_of(path, text), passages)


def label_of(path: str, text: str) -> str:
    """Of a language model that was sampled alone, the name of its folder; otherwise what the text is."""
    record = None if path.endswith(".parquet") else read_record(path)
    if text == "base" and record is not None and record.call and record.settings.get("energy", "") is None:
        return str(record.call["settings"]["generator"]).rstrip("/").rpartition("/")[2]
    return LABELS.get(text, text)


def read_gold(given: str, lengths: Callable[[], dict[str, int]], wanted: int) -> CompletionSet:
    """Real completions: samples' real ones, or those of a windows store, where `lengths` gives contexts' tokens."""
    if not files.is_file(files.join(given, "manifest.json")):
        path, text = divided(given)
        return read_completions("--gold", f"{path}:{text or 'real'}")
    store = Store(given, kind="windows")
    encoder = load_tokenizer(store.path)
    known = lengths()
    usual = Counter(known.values()).most_common(1)[0][0]
    passages: dict[str, Passage] = {}
    missing, others = set(known), 0
    for row in store.rows(["window_id", "tokens"]):
        name = row["window_id"]
        others += name not in known
        if name in known or others <= wanted:
            length = known.get(name, usual)
            context, completion = divide(row["tokens"], length, LEFT_TO_RIGHT)
            passages[name] = Passage(encoder.decode(context.tolist()), encoder.decode(completion.tolist()))
            missing.discard(name)
        if not missing and others >= wanted:
            break
    return CompletionSet(LABELS["real"], passages)


def context_lengths(flag: str, given: str) -> dict[str, int]:
    """How many tokens the contexts of samples have, by window id."""
    table = read_samples(flag, divided(given)[0])
    if "context" not in table.column_names:
        raise UserError(f"{flag} {given}: no column `context`, so --gold cannot be cut alike: give samples as --gold")
    return {row["window_id"]: len(row["context"]) for row in table.select(["window_id", "context"]).to_pylist()}


def divided(given: str) -> tuple[str, str]:
    """`folder:text`, where the folder may be a URL."""
    path, _, text = given.rpartition(":")
    return (path, text) if path and "/" not in text else (given, "")


def read_samples(flag: str, path: str) -> pa.Table:
    url = path if path.endswith(".parquet") else files.join(path, SAMPLES_FILE)
    if not files.is_file(url):
        raise UserError(f"{flag} {path}: no {SAMPLES_FILE} in it: evaluation/sample_joint.py makes one")
    record = None if path.endswith(".parquet") else read_record(path)
    if record is not None and record.settings.get("direction") == "right_to_left":
        raise UserError(f"{flag} {path}: of a right-to-left generator, whose completions come before their context")
    try:
        with files.open_random(url) as source:
            table = pq.read_table(source)
    except pa.ArrowInvalid as error:
        raise UserError(f"{flag} {url}: not a Parquet file that can be read: {error}") from None
    if lacking := {"window_id", "context_text"} - set(table.column_names):
        raise UserError(f"{flag} {url}: no column {min(lacking)}: sample_joint.py writes it")
    return table
