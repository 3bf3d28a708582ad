"""The difference between two models' perplexities on the same windows, with a paired interval over documents.

Bounds on log Z say how well Z is known, not what other test text would have given. Both models read the same windows,
so what is hard for both cancels, and what is left varies from document to document; windows of one document overlap or
continue each other, and are one observation.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pipeline.runtime import files
from pipeline.runtime.errors import UserError
from pipeline.stores.manifest import MANIFEST
from pipeline.stores.reader import Store

Numbers = NDArray[np.float64]
LEVEL = 0.95
DOCUMENTS, WINDOWS = "documents", "windows"
ROUNDING = 1e-6  # percent: what a constant energy and its log Z leave of each other
LOWER, HIGHER, UNCERTAIN = "lower", "higher", "not distinguishable"


@dataclass(frozen=True)
class Interval:
    """A mean per token and its interval; no ends where one unit alone says nothing about others."""

    mean: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Units:
    """What counts as one observation: for every window the number of its document, or of itself, and why not that."""

    over: str
    numbers: NDArray[np.int64]
    count: int
    reason: str | None = None


def mean_per_token(values: ArrayLike, tokens: ArrayLike, units: ArrayLike, level: float = LEVEL) -> Interval:
    """sum(values) / sum(tokens) with an interval over units, each argument of shape (windows,).

    The delta method for a ratio of sums, its derivatives taken by leaving out one document after another (the
    jackknife), with Student's t of count - 1 degrees of freedom. It needs no seed, and test sets have few documents
    of very different lengths: there a bootstrap's percentiles are too narrow, while leaving out a long document moves
    the ratio by more than its derivative says, which errs on the safe side.
    """
    own = np.asarray(values, np.float64), np.asarray(tokens, np.float64)
    _, places = np.unique(np.asarray(units), return_inverse=True)
    sums, lengths = (np.bincount(places, column) for column in own)
    count, mean = len(sums), float(own[0].sum() / own[1].sum())
    if count < 2:
        return Interval(mean, None, None)
    from scipy.special import stdtrit

    without = (own[0].sum() - sums) / (own[1].sum() - lengths)
    error = np.sqrt((count - 1) / count * np.square(without - mean).sum())
    half = float(stdtrit(count - 1, (1 + level) / 2) * error)
    return Interval(mean, mean - half, mean + half)


def difference(lower: ArrayLike, upper: ArrayLike, tokens: ArrayLike, units: ArrayLike) -> dict[str, Any]:
    """How far a model's perplexity is from another's: as the log of their ratio, and in percent.

    `lower` and `upper` are, for every window, log P of the other model less that of this one by the two bounds on
    log Z. From low to high is what the intervals of both cover together: the lower end of the one, the higher of the
    other. The noise of log Z, which is drawn anew for every context, is in the spread between units already.
    """
    ends = [mean_per_token(values, tokens, units) for values in (lower, upper)]
    lows, highs = ([getattr(end, name) for end in ends] for name in ("low", "high"))
    ratio = {
        "lower": ends[0].mean,
        "upper": ends[1].mean,
        "low": None if None in lows else min(lows),
        "high": None if None in highs else max(highs),
    }
    return {"log_ratio": ratio, "percent": {name: percent(value) for name, value in ratio.items()}}


def percent(log_ratio: float | None) -> float | None:
    return None if log_ratio is None else float(100 * np.expm1(log_ratio))


def direction(found: dict[str, Any]) -> str:
    """`lower` or `higher` where the interval says so; else `not distinguishable`."""
    low, high = (found["percent"][name] for name in ("low", "high"))
    if high is not None and high < -ROUNDING:
        return LOWER
    return HIGHER if low is not None and low > ROUNDING else UNCERTAIN


def in_words(found: dict[str, Any], against: dict[str, Any]) -> str:
    """`lower: -3.1 % (-4.0 to -2.2 %), over 25 documents`, or `not distinguishable: …`."""
    own = found["percent"]
    ends = [f"{own[name]:+.1f}" for name in ("lower", "upper")]
    middle = ends[0] if ends[0] == ends[1] else " to ".join(ends)
    interval = "no interval" if own["low"] is None else f"{own['low']:+.1f} to {own['high']:+.1f} %"
    count = against["count"]
    over = against["over"].removesuffix("s") if count == 1 else against["over"]
    return f"{direction(found)}: {middle} % ({interval}), over {count:,} {over}"


def units_of(samples: Store, window_ids: list[str]) -> Units:
    """The documents that windows start in, by the store that the samples were drawn for; else windows by themselves.

    Windows of one document alone are units too, with that reason: there is no second document to compare it with.
    """
    try:
        documents = documents_of(samples)
        names = [documents[name] for name in window_ids]
    except (UserError, OSError) as error:
        return _numbered(WINDOWS, window_ids, f"the documents are not known: {error}")
    except KeyError as error:
        return _numbered(
            WINDOWS, window_ids, f"the documents are not known: window {error} is not in the windows store"
        )
    if len(set(names)) == 1:
        return _numbered(WINDOWS, window_ids, "all windows are of one document: the interval speaks of that text alone")
    return _numbered(DOCUMENTS, names)


def documents_of(samples: Store) -> dict[str, str]:
    """Window by window, the document that it starts in."""
    parent = samples.manifest.parent or {}
    if not parent.get("path"):
        raise UserError(f"{samples.path} names no windows store")
    path = str(parent["path"])
    # A path is as the mining command had it: where that ran, if it is not found from here.
    there = files.is_file(files.join(path, MANIFEST)) or "://" in path
    windows = Store(path if there else files.join(samples.manifest.directory, path), kind="windows")
    if windows.manifest.digest != parent.get("digest"):
        raise UserError(f"{windows.path} is not the store that {samples.path} was made from")
    found: dict[str, str] = {}
    for table in windows.batches(["window_id", "document"]):
        found |= dict(zip(table["window_id"].to_pylist(), table["document"].to_pylist(), strict=True))
    return found


def _numbered(over: str, names: list[str], reason: str | None = None) -> Units:
    known, numbers = np.unique(np.array(names, object), return_inverse=True)
    return Units(over, numbers.astype(np.int64), len(known), reason)
