"""What votes say: how often one model is preferred, how surely, and how far raters agree. Pure functions."""

import warnings
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Preference:
    """One rater's preference in one item; `counts` is False where the page's attention check was failed."""

    rater: str
    item: str
    for_model_2: bool
    counts: bool = True


@dataclass(frozen=True)
class Tally:
    model_1: int
    model_2: int


@dataclass(frozen=True)
class Rate:
    """The share of items in which fewer (`<`), or not more (`≤`), voters prefer model 1 than model 2."""

    relation: str
    wins: int
    items: int
    rate: float
    p_value: float
    low: float
    high: float


def tallies(votes: Iterable[Preference]) -> dict[str, Tally]:
    """Surviving votes by item; items without any are not there."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for vote in votes:
        if vote.counts:
            counts[vote.item][vote.for_model_2] += 1
    return {item: Tally(*pair) for item, pair in counts.items()}


def rate(items: Iterable[Tally], relation: str) -> Rate | None:
    """The paper's preference rate with its single-sided binomial p-value against 1/2, and Wilson's interval."""
    known = list(items)
    if not known:
        return None
    from scipy.stats import binomtest  # a second, which the flags of whoever reads votes do not need

    wins = sum(one.model_1 < one.model_2 or (relation == "≤" and one.model_1 == one.model_2) for one in known)
    one_sided = binomtest(wins, len(known), 0.5, alternative="greater")
    # An interval with two ends: that of the one-sided test ends at 1.
    interval = binomtest(wins, len(known), 0.5).proportion_ci(CONFIDENCE, method="wilson")
    share = wins / len(known)
    return Rate(relation, wins, len(known), share, float(one_sided.pvalue), float(interval.low), float(interval.high))


def agreement(votes: Sequence[Preference]) -> float | None:
    """Krippendorff's alpha of the surviving votes; None where no item has two, or all votes are the same."""
    kept = [vote for vote in votes if vote.counts]
    raters = {name: place for place, name in enumerate(dict.fromkeys(vote.rater for vote in kept))}
    items = {name: place for place, name in enumerate(dict.fromkeys(vote.item for vote in kept))}
    values = np.full((len(raters), len(items)), np.nan)
    for vote in kept:
        values[raters[vote.rater], items[vote.item]] = vote.for_model_2
    paired = (~np.isnan(values)).sum(0) > 1
    known = values[:, paired]
    if not known.size or len(np.unique(known[~np.isnan(known)])) < 2:
        return None
    import krippendorff

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return float(krippendorff.alpha(reliability_data=known, level_of_measurement="nominal"))
