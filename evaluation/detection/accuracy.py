"""How well scores distinguish real windows from generated ones."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
CHANCE = 0.5
NEAR_CHANCE = 0.05  # above chance: a detector whose interval begins in there has learned little, if anything


@dataclass(frozen=True)
class Accuracy:
    """The mean of the shares of real and of generated windows that are called so, with a 95 % interval."""

    accuracy: float
    low: float
    high: float
    auroc: float
    real: float  # share of real windows called real
    generated: float  # share of generated windows called generated
    windows: int  # independent ones, however many samples each has

    def described(self) -> dict[str, Any]:
        return asdict(self)


def balanced_accuracy(
    real: Numbers,
    generated: Numbers,
    real_windows: NDArray[Any] | None = None,
    generated_windows: NDArray[Any] | None = None,
    threshold: float = 0.0,
) -> Accuracy:
    """Of scores s = -E, where s > threshold calls a window real.

    Scores of the same window (its real completion, its samples, both directions) are not independent of each other:
    the interval counts windows, which `real_windows` and `generated_windows` name (default: all are different).
    """
    from sklearn.metrics import roc_auc_score  # takes a second: not for those who read results alone

    if not len(real) or not len(generated):
        raise ValueError("accuracy needs both real and generated windows")
    owners = np.arange(len(real)) if real_windows is None else np.asarray(real_windows)
    others = -1 - np.arange(len(generated)) if generated_windows is None else np.asarray(generated_windows)
    right = real > threshold, generated <= threshold
    shares = float(right[0].mean()), float(right[1].mean())
    names, values = accuracy_by_window(*right, owners, others)
    low, high = interval(values)
    labels = np.concatenate([np.ones(len(real)), np.zeros(len(generated))])
    auroc = float(roc_auc_score(labels, np.concatenate([real, generated])))
    return Accuracy(sum(shares) / 2, low, high, auroc, *shares, len(names))


def accuracy_by_window(
    real: NDArray[np.bool_], generated: NDArray[np.bool_], real_windows: NDArray[Any], generated_windows: NDArray[Any]
) -> tuple[NDArray[Any], Numbers]:
    """The windows, and a number for each whose mean is the balanced accuracy of what was right and what was not.

    Each window stands for what its scores add to the estimate's deviation. Of two models on the same windows these
    can be subtracted from each other: the spread of the differences is that of a paired comparison.
    """
    right = real.astype(float), generated.astype(float)
    shares = right[0].mean(), right[1].mean()
    names, places = np.unique(np.concatenate([real_windows, generated_windows]), return_inverse=True)
    deviations = np.concatenate([(hits - share) / (2 * len(hits)) for hits, share in zip(right, shares, strict=True)])
    return names, sum(shares) / 2 + len(names) * np.bincount(places, deviations)


def interval(values: NDArray[np.floating], level: float = 0.95) -> tuple[float, float]:
    """Of the mean of values between 0 and 1, one a window, in the way of Agresti and Coull.

    Two windows that are all right and two that are all wrong are added before the usual normal interval is taken: few
    windows, or none, that went wrong otherwise promise a certainty that they do not have.
    """
    from scipy.special import ndtri

    padded = np.concatenate([values, [0.0, 0.0, 1.0, 1.0]])
    half = float(ndtri((1 + level) / 2)) * padded.std(ddof=1) / np.sqrt(len(padded))
    low, high = padded.mean() - half, padded.mean() + half
    return float(np.clip(min(low, values.mean()), 0, 1)), float(np.clip(max(high, values.mean()), 0, 1))


def is_near_chance(low: float) -> bool:
    """Of an accuracy whose interval begins at `low`."""
    return low < CHANCE + NEAR_CHANCE


@dataclass(frozen=True)
class Rule:
    """A sign and a threshold: `sign` * score > `threshold` calls a window real."""

    sign: int
    threshold: float


def best_rule(real: Numbers, generated: Numbers) -> Rule:
    """The sign and threshold with the greatest balanced accuracy on given scores, such as those of a valid split."""
    from sklearn.metrics import roc_curve

    labels = np.concatenate([np.ones(len(real)), np.zeros(len(generated))])
    found: list[tuple[float, int, Rule]] = []
    for sign in (1, -1):
        scores = sign * np.concatenate([real, generated])
        false, true, thresholds = roc_curve(labels, scores, drop_intermediate=False)
        best = int(np.argmax(true - false))
        # roc_curve calls s >= threshold real; half-way to the next score below, s > threshold is the same.
        below = scores[scores < thresholds[best]]
        threshold = (thresholds[best] + below.max()) / 2 if len(below) and np.isfinite(thresholds[best]) else -np.inf
        if not np.isfinite(thresholds[best]):
            threshold = float(scores.max())
        found.append((float((true - false)[best]), -len(found), Rule(sign, float(threshold))))
    return max(found, key=lambda entry: entry[:2])[2]
