"""The page that a data set of pairs has on the hub, made from what the stores' manifests say."""

from collections.abc import Mapping
from typing import Any

import yaml

from pipeline.pairs.formats import WITH_LABEL
from pipeline.runtime.markdown import inline, table

COLUMNS = ("split", "rows", "corpus", "generator", "sampling", "contexts, tokens", "windows, tokens", "store")
SIZES = ((10**3, "n<1K"), (10**4, "1K<n<10K"), (10**5, "10K<n<100K"), (10**6, "100K<n<1M"), (10**7, "1M<n<10M"))


def card(name: str, form: str, readers: str, ending: str, licence: str, splits: Mapping[str, Mapping[str, Any]]) -> str:
    """README.md: the hub's own part, which says where the files of a split are, and a page for people."""
    rows = sum(facts["rows"] for facts in splits.values())
    head = {
        "license": licence,
        "task_categories": ["text-classification" if form in WITH_LABEL else "text-generation"],
        "size_categories": [size_of(rows)],
        "tags": ["residual-ebm", "negatives", "machine-generated-text"],
        "configs": [
            {
                "config_name": "default",
                "data_files": [{"split": split, "path": f"data/{split}-*.{ending}"} for split in splits],
            }
        ],
    }
    columns = next(iter(splits.values()))["columns"]
    lines = [
        "---",
        yaml.safe_dump(head, sort_keys=False, allow_unicode=True).strip(),
        "---",
        "",
        f"# {inline(name)}",
        "",
        "Real text, and what a language model wrote in its place: the same beginning, continued by people and by the "
        f"model. In the form that {readers} read, with the columns {', '.join(f'`{column}`' for column in columns)}.",
        *(["", "The label is 1 for real text and 0 for generated text."] if form in WITH_LABEL else []),
        "",
        "```python",
        "from datasets import load_dataset",
        "",
        f'pairs = load_dataset("{name}", split="{next(iter(splits))}")',
        "```",
        "",
        "## Where it comes from",
        "",
        *table(COLUMNS, [cells_of(split, facts) for split, facts in splits.items()]),
    ]
    lines += [
        "",
        "Completions are as long as the real ones, in tokens, so they end in the middle of a sentence. The generated "
        "texts are false wherever they claim something; do not take them for news, advice or facts about people. The "
        "real texts have the licence of their corpus.",
        "",
    ]
    return "\n".join(lines)


def size_of(rows: int) -> str:
    """The hub's word for so many rows."""
    return next((size for most, size in SIZES if rows < most), "n>10M")


def cells_of(split: str, facts: Mapping[str, Any]) -> list[Any]:
    known = [facts[name] for name in ("corpus", "generator", "sampling", "contexts", "window")]
    return [split, f"{facts['rows']:,}", *known, facts["digest"][:16]]
