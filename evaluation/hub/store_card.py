"""The page of a store, from its manifest, with a head by which `load_dataset` finds its shards."""

import os
import re
from typing import Any

from evaluation.hub.page import Fact, flat, footer, made, page, used
from evaluation.hub.subjects import StoreSubject
from pipeline.pairs.card import size_of
from pipeline.runtime.markdown import table
from pipeline.stores.manifest import Manifest
from pipeline.stores.shards import SHARDS

ABOUT = {
    "windows": "Windows of text: consecutive tokens of one corpus, as ids of the tokenizer beside them.",
    "negatives": "Windows of text, and what a language model wrote in place of the end of each (or of its beginning, "
    "where `direction` says so): token ids, with the log-probabilities of the samples. Nobody has checked what "
    "was generated.",
    "energies": "Energies, log-probabilities and nothing else: of windows of text (`sample` is -1) and of what a "
    "language model wrote in their place, one number each, low for what looks real.",
}
SETTINGS = {
    "corpus": "corpus",
    "split": "split",
    "window": "tokens of a window",
    "stride": "from a window's start to the next one's",
    "context_lengths": "lengths of contexts, tokens",
    "negatives": "negatives of each window",
    "direction": "direction of the generator",
    "deduplicate": "only one of several equal documents",
    "precision": "precision",
}
CODE = """
from datasets import load_dataset

rows = load_dataset("{repo}", split="{split}")
"""
OWN_CODE = """
# as a store, every row group compared with its checksum; commands take the same address
from pipeline import Store

row = Store("hf://datasets/{repo}")[0]
"""


def store_card(subject: StoreSubject, repo: str, licence: str | None, data_sets: tuple[str, ...]) -> str:
    from huggingface_hub import DatasetCardData

    manifest, split = subject.store.manifest, split_of(subject.store.manifest)
    head = DatasetCardData(
        license=licence,
        size_categories=[size_of(manifest.rows)],
        source_datasets=list(data_sets) or None,
        tags=["residual-ebm", subject.what.replace(" ", "-")],
        configs=[{"config_name": "default", "data_files": [{"split": split, "path": f"{SHARDS}/*.parquet"}]}],
    )
    columns = [(field.name, str(field.type).replace(" not null", "")) for field in subject.store.schema]
    parts = [
        [ABOUT[manifest.kind]],
        ["## Columns", "", *table(("column", "type"), columns)],
        made(facts_of(manifest)),
        used(CODE.format(repo=repo, split=split) + OWN_CODE.format(repo=repo)),
        footer(licence),
    ]
    return page(head.to_yaml(), repo, parts)


def split_of(manifest: Manifest) -> str:
    """Its split, spelled as the hub has it."""
    return re.sub(r"[^A-Za-z0-9_]", "_", str(manifest.settings.get("split") or "train"))


def facts_of(manifest: Manifest) -> list[Fact]:
    """What the manifest says, without this machine's paths."""
    facts: list[Fact] = [("rows", f"{manifest.rows:,}")]
    facts += [("shards", f"{len(manifest.shards):,}, {manifest.bytes / 1e6:,.1f} MB")]
    for name, label in SETTINGS.items():
        if name in manifest.settings:
            facts.append((label, flat(manifest.settings[name])))
    if manifest.generator:
        facts += generator_facts(manifest.generator)
    if manifest.sampling:
        facts.append(("sampling", flat(manifest.sampling)))
    energy = manifest.settings.get("energy")
    if manifest.kind == "energies" and isinstance(energy, dict):
        facts += [("energy model", named(energy)), ("its weights", flat(energy.get("digest")))]
    if manifest.parent:
        facts.append(("made from the store", flat(manifest.parent["digest"])))
    facts += [
        ("seed", str(manifest.seed)),
        ("pieces of the tokenizer", f"{manifest.tokenizer['vocabulary_size']:,}"),
        ("digest of the tokenizer", manifest.tokenizer["digest"]),
        ("digest of the store", manifest.digest),
        ("made", f"{manifest.created}, by version {manifest.code_version}"),
    ]
    return facts


def generator_facts(generator: dict[str, Any]) -> list[Fact]:
    known = (
        ("its architecture", "architecture"),
        ("its training corpus", "training_corpus"),
        ("its training seed", "training_seed"),
        ("numbers in its weights", "parameters"),
        ("its digest", "digest"),
        ("trained on the text that it continues", "trained_on_this_text"),
    )
    return [
        ("generator", named(generator)),
        *((label, flat(generator[key])) for label, key in known if key in generator),
    ]


def named(model: dict[str, Any]) -> str:
    """Its name, or the last of its path: where it lay on somebody's disk concerns nobody."""
    return str(model.get("name") or os.path.basename(str(model.get("path") or "unknown").rstrip("/")))
