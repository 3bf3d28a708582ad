"""The columns that other libraries want of pairs, in their names and their order."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pipeline.pairs.texts import RowTexts

PREFERENCE, TRIPLET, N_TUPLE, LIST = "preference", "triplet", "n-tuple", "list"
LABELLED, LABELLED_PAIR = WITH_LABEL = ("labelled", "labelled-pair")
LABELS = ("generated", "real")  # 0 and 1: higher is realer, as the logits of energy models are
TEXT = pa.string()
MESSAGES = pa.list_(pa.struct([("role", TEXT), ("content", TEXT)]))
Row = list[Any]


@dataclass(frozen=True)
class PairFormat:
    """A form of pairs: who reads it, its columns, and the rows of a row of negatives."""

    readers: str
    columns: Callable[[int], dict[str, pa.DataType]]  # of so many negatives a row
    rows: Callable[[RowTexts], Iterable[Row]]


def preference(texts: RowTexts) -> Iterable[Row]:
    return ([texts.prompt, texts.real, generated] for generated in texts.generated)


def conversation(texts: RowTexts) -> Iterable[Row]:
    asked, real = [{"role": "user", "content": texts.prompt}], [{"role": "assistant", "content": texts.real}]
    return ([asked, real, [{"role": "assistant", "content": generated}]] for generated in texts.generated)


def n_tuple(texts: RowTexts) -> Iterable[Row]:
    return [[texts.prompt, texts.real, *texts.generated]]


def listed(texts: RowTexts) -> Iterable[Row]:
    return [[texts.prompt, [texts.real, *texts.generated], [1, *[0] * len(texts.generated)]]]


def labelled(texts: RowTexts) -> Iterable[Row]:
    real, *generated = texts.whole
    return [*([[real, 1]] if texts.is_first else []), *([text, 0] for text in generated)]


def labelled_pair(texts: RowTexts) -> Iterable[Row]:
    real = [[texts.prompt, texts.real, 1]] if texts.is_first else []
    return [*real, *([texts.prompt, text, 0] for text in texts.generated)]


def numbered(negatives: int) -> dict[str, pa.DataType]:
    names = [f"negative_{number}" for number in range(1, negatives + 1)] if negatives > 1 else ["negative"]
    return dict.fromkeys(["anchor", "positive", *names], TEXT)


def same(**columns: pa.DataType) -> Callable[[int], dict[str, pa.DataType]]:
    return lambda negatives: columns


FORMATS = {
    PREFERENCE: PairFormat(
        "TRL's RewardTrainer and DPOTrainer", same(prompt=TEXT, chosen=TEXT, rejected=TEXT), preference
    ),
    TRIPLET: PairFormat(
        "sentence-transformers' losses of triplets", same(anchor=TEXT, positive=TEXT, negative=TEXT), preference
    ),
    N_TUPLE: PairFormat("sentence-transformers' losses of several negatives", numbered, n_tuple),
    LIST: PairFormat(
        "sentence-transformers' listwise losses",
        same(query=TEXT, docs=pa.list_(TEXT), labels=pa.list_(pa.int64())),
        listed,
    ),
    LABELLED: PairFormat("classifiers", same(text=TEXT, label=pa.int64()), labelled),
    LABELLED_PAIR: PairFormat(
        "sentence-transformers' losses of labelled pairs",
        same(anchor=TEXT, text=TEXT, label=pa.int64()),
        labelled_pair,
    ),
}
CONVERSATIONAL = PairFormat(
    "TRL's trainers, for chat models", same(prompt=MESSAGES, chosen=MESSAGES, rejected=MESSAGES), conversation
)


def table_of(texts: Iterable[RowTexts], form: PairFormat, negatives: int) -> pa.Table:
    """The rows of a form; column order matters to who reads them."""
    columns = form.columns(negatives)
    rows: Sequence[Row] = [row for one in texts for row in form.rows(one)]
    values = zip(*rows, strict=True) if rows else [[] for _ in columns]
    arrays = [pa.array(list(column), type) for column, type in zip(values, columns.values(), strict=True)]
    return pa.table(dict(zip(columns, arrays, strict=True)))
