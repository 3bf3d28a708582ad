"""Networks without dropout: loss curves are exact, and the same on any number of ranks."""

import copy
from typing import Any

from transformers import PretrainedConfig

FROZEN = "base"  # of a ralm: it is never trained, and stays as it was
HEADS = ("summary_", "classifier_")  # of classifiers and multiple choice, which no language model has


def without_dropout(config: PretrainedConfig, heads: bool = False) -> PretrainedConfig:
    """A copy of a configuration in which nothing is dropped, by whatever name, also in the networks inside of it.

    The heads that a language model has none of are left as they are, unless they are asked for.
    """
    found = copy.deepcopy(config)
    for name, value in list(vars(found).items()):
        if (kept := _without_dropout(name, value, heads)) is not value:
            setattr(found, name, kept)
    return found


def _without_dropout(name: str, value: Any, heads: bool) -> Any:
    if name == FROZEN:
        return value
    if isinstance(value, PretrainedConfig):
        return without_dropout(value, heads)
    if isinstance(value, dict):
        return {inner: _without_dropout(str(inner), each, heads) for inner, each in value.items()}
    kept = not is_dropout(name, value) or (name.startswith(HEADS) and not heads)
    return value if kept else type(value)()


def is_dropout(name: str, value: Any) -> bool:
    """Whether a setting of a network is the probability with which it drops states, attention or whole layers.

    transformers' names are of many kinds (attn_pdrop, hidden_dropout, layerdrop, drop_path_rate); all of them say drop.
    """
    return "drop" in name and isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 1
