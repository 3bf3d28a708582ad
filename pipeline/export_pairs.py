"""Writes a store of negatives as text, in the form that other libraries train on: a data set for `load_dataset`.

  python pipeline/export_pairs.py stores/negatives --format preference --output pairs

  preference      prompt, chosen, rejected           TRL; with --conversational as messages, for chat models
  triplet         anchor, positive, negative         sentence-transformers
  n-tuple         anchor, positive, negative_1, …    the same, a row for all negatives of a window
  list            query, docs, labels                the same, listwise
  labelled-pair   anchor, text, label                the same, a completion a row: 1 is real, 0 generated
  labelled        text, label                        classifiers: whole texts

The output is a folder: data/SPLIT-00000-of-00004.parquet, a file for every shard of the store, and README.md, the page
that the hub shows, made from the store's manifest. Export stores of other splits into the same folder, and it has all
of them. What was killed continues with the files that are missing.

With --output hf://datasets/user/name it is made in a temporary folder and sent to the hub whole, in one commit, beside
the splits that are there. The token is huggingface_hub's: HF_TOKEN, or `hf auth login`.
"""

import json
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.pairs.card import card
from pipeline.pairs.formats import (
    CONVERSATIONAL,
    FORMATS,
    LABELS,
    N_TUPLE,
    PREFERENCE,
    WITH_LABEL,
    PairFormat,
    table_of,
)
from pipeline.pairs.hub_folder import HubFolder, shown_name
from pipeline.pairs.texts import texts_of
from pipeline.runtime import files
from pipeline.runtime.digests import digest_of
from pipeline.runtime.errors import UserError, exit_with
from pipeline.runtime.hub import is_hub
from pipeline.runtime.progress import Bar
from pipeline.runtime.settings import Settings, read_settings, setting
from pipeline.runtime.summary import print_summary
from pipeline.stores.reader import Store
from pipeline.text.tokenizer import TextEncoder, load_tokenizer

PARQUET, JSON_LINES = "parquet", "jsonl"
DATA, FACTS, CARD = "data", "stores", "README.md"


@dataclass(frozen=True, kw_only=True)
class ExportPairsSettings(Settings):
    """A store, the form of its pairs, and where they go."""

    store: str = setting(metavar="STORE", help="of negatives, on any filesystem", positional=True)
    format: str = setting(PREFERENCE, choices=tuple(FORMATS), help=f"of the pairs (default: {PREFERENCE})", result=True)
    conversational: bool = setting(False, help="preference: prompts and answers as messages of a chat", result=True)
    file_format: str = setting(PARQUET, choices=(PARQUET, JSON_LINES), help=f"(default: {PARQUET})", result=True)
    joint: str | None = setting(
        None,
        metavar="TEXT",
        help="stands where documents are joined (default: the tokenizer's own word, such as <|endoftext|>)",
        result=True,
    )
    split: str | None = setting(None, help="its name in the data set (default: the store's)")
    licence: str = setting("other", help="of the data set, for its page: one of the hub's names (default: other)")
    output: str = setting(metavar="DIR", help="the data set's folder, on any filesystem or the hub")
    private: bool = setting(False, help="on the hub: for you alone; one that is there already and public is refused")
    overwrite: bool = setting(False, help="replace what was exported with other settings")

    def check(self) -> None:
        if self.conversational and self.format != PREFERENCE:
            raise UserError(f"--conversational: for --format {PREFERENCE} alone")
        if self.split is not None and not re.fullmatch(r"\w+(\.\w+)*", self.split):
            raise UserError(f"--split {self.split!r}: letters, digits, _ and dots, as the hub has it")
        if self.private and not is_hub(self.output):
            raise UserError(f"--private: for --output hf://datasets/user/name alone, not {self.output}")


def main(arguments: Sequence[str] | None = None) -> int:
    settings = read_settings(ExportPairsSettings, sys.argv[1:] if arguments is None else arguments, __doc__)
    describe(settings, export_pairs(settings))
    return 0


def export_pairs(settings: ExportPairsSettings) -> dict[str, Any]:
    """Writes the files that are not there yet, then the page; what the data set says of this split."""
    store = Store(settings.store, kind="negatives")
    split = settings.split or re.sub(r"\W", "_", str(store.manifest.settings.get("split") or "train"))
    if not is_hub(settings.output):
        return export_here(settings, store, split, settings.output)
    with HubFolder.of(settings.output, [settings.to_json(), store.manifest.digest]) as hub:
        hub.fetch(FACTS, DATA, split)
        facts = export_here(replace(settings, output=hub.folder, private=False), store, split, settings.output)
        return facts | {"commit": hub.send(split, (DATA, FACTS), settings.private)}


def export_here(settings: ExportPairsSettings, store: Store, split: str, place: str) -> dict[str, Any]:
    """The same in a folder; `place` is what the page and errors call it."""
    form = CONVERSATIONAL if settings.conversational else FORMATS[settings.format]
    negatives = negatives_of(store, settings.format)
    facts = facts_of(settings, store, form, negatives)
    claim(settings, split, facts, place)
    encoder = load_tokenizer(settings.store)
    rows, shards = 0, len(store.manifest.shards)
    with Bar(total=len(store), desc="exporting", unit=" rows", unit_scale=True) as bar:
        for number, shard in enumerate(store.manifest.shards):
            name = f"{split}-{number:05d}-of-{shards:05d}"
            url = files.join(settings.output, DATA, f"{name}.{settings.file_format}")
            counted = files.join(settings.output, FACTS, f"{name}.rows")
            if not (files.is_file(url) and files.is_file(counted)):
                pairs = pairs_of(store, number, form, negatives, encoder, settings.joint)
                files.put(url, encoded(pairs, settings))
                files.put(counted, str(len(pairs)).encode())
            rows += int(files.read(counted))
            bar.update(shard.rows)
    facts |= {"rows": rows}
    files.put(files.join(settings.output, FACTS, f"{split}.json"), json.dumps(facts, indent=1).encode())
    write_card(settings, form, place)
    return facts | {"split": split}


def negatives_of(store: Store, form: str) -> int:
    """How many negatives every row has; columns are as many."""
    if form != N_TUPLE:
        return 1
    tables = store.batches(["negatives"])
    counts = {count for table in tables for count in pc.list_value_length(table["negatives"]).unique().to_pylist()}
    if len(counts) != 1:
        raise UserError(
            f"--format {N_TUPLE}: rows of {store.path} have {min(counts)} to {max(counts)} negatives, and a column can "
            f"hold one of each: export --format list"
        )
    return counts.pop()


def facts_of(settings: ExportPairsSettings, store: Store, form: PairFormat, negatives: int) -> dict[str, Any]:
    """What the page says of a split, and what has to be the same for files to be kept."""
    manifest = store.manifest
    generator, sampling = manifest.generator or {}, manifest.sampling or {}
    lengths = manifest.settings.get("context_lengths") or []
    return {
        "export": digest_of([settings.result(), manifest.digest]),
        "format": settings.result(),
        "columns": list(form.columns(negatives)),
        "digest": manifest.digest,
        "corpus": manifest.settings.get("corpus"),
        "window": manifest.settings.get("window"),
        "contexts": ", ".join(map(str, lengths)) if len(lengths) < 6 else f"{min(lengths)} to {max(lengths)}",
        "generator": generator.get("name") or os.path.basename(str(generator.get("path") or "unknown").rstrip("/")),
        "generator_digest": generator.get("digest"),
        "sampling": ", ".join(f"{name} {value}" for name, value in sampling.items() if name != "samples_per_row"),
    }


def claim(settings: ExportPairsSettings, split: str, facts: dict[str, Any], place: str) -> None:
    """Notes what is exported before its files: those of another store or form are refused, or replaced if asked for."""
    note = files.join(settings.output, FACTS, f"{split}.json")
    if files.is_file(note):
        there = json.loads(files.read(note))
        if there.get("export") == facts["export"]:
            return
        if not settings.overwrite:
            raise UserError(
                f"--output {place}: its split {split} was exported from another store or with other "
                f"settings: choose another --output or --split, or --overwrite"
            )
        for folder in (DATA, FACTS):
            for name in files.names_in(files.join(settings.output, folder)):
                if name.startswith(f"{split}-"):
                    files.remove(files.join(settings.output, folder), name)
    files.put(note, json.dumps(facts, indent=1).encode())


def pairs_of(
    store: Store, number: int, form: PairFormat, negatives: int, encoder: TextEncoder, joint: str | None
) -> pa.Table:
    tables = [table_of(texts_of(rows, encoder, joint), form, negatives) for rows in store.batches(shards=[number])]
    return pa.concat_tables(tables) if tables else table_of([], form, negatives)


def encoded(pairs: pa.Table, settings: ExportPairsSettings) -> bytes | pa.Buffer:
    """The bytes of a file; Parquet says which label is which, as `datasets` reads it."""
    if settings.file_format == JSON_LINES:
        return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in pairs.to_pylist()).encode(
            "utf-8", "replace"
        )
    if settings.format in WITH_LABEL:
        features = {
            name: {"names": list(LABELS), "_type": "ClassLabel"}
            if name == "label"
            else {"dtype": "string", "_type": "Value"}
            for name in pairs.column_names
        }
        pairs = pairs.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(pairs, sink, compression="zstd")
    return sink.getvalue()


def write_card(settings: ExportPairsSettings, form: PairFormat, place: str) -> None:
    """The page of all splits that are there whole."""
    splits = {}
    for name in sorted(files.names_in(files.join(settings.output, FACTS))):
        if name.endswith(".json"):
            facts = json.loads(files.read(files.join(settings.output, FACTS, name)))
            if "rows" in facts:
                splits[name.removesuffix(".json")] = facts
    first = sorted(splits.items(), key=lambda item: (item[0] != "train", item[0]))
    name = shown_name(place) if is_hub(place) else os.path.basename(place.rstrip("/"))
    page = card(name, settings.format, form.readers, settings.file_format, settings.licence, dict(first))
    files.put(files.join(settings.output, CARD), page.encode())


def describe(settings: ExportPairsSettings, facts: dict[str, Any]) -> None:
    shown = {
        "pairs": f"{facts['rows']:,} rows of {', '.join(facts['columns'])}",
        "split": facts["split"],
        "generator": str(facts["generator"]),
        "open it": f'datasets.load_dataset("{shown_name(settings.output)}", split="{facts["split"]}")',
        "commit": facts.get("commit", ""),
    }
    print_summary(f"data set {settings.output}", shown)


if __name__ == "__main__":
    exit_with(main)
