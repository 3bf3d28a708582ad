"""How often a detector is right: shares of texts called real, balanced accuracy and AUROC, with intervals."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy.stats import binomtest
from sklearn.metrics import roc_auc_score

from evaluation.texts import Input

Scores = NDArray[np.float64]
CONFIDENCE = 0.95
REAL, GENERATED = "real", "generated"  # labels
DETECTORS = {"energy": "score", "tfidf": "tfidf"}  # and the columns of their scores


def shares(rows: pa.Table, inputs: Sequence[Input]) -> list[dict[str, Any]]:
    """Of every file, in order: how many texts it has and how many are called real."""
    found = []
    for input in inputs:
        mine = rows.filter(pc.equal(rows["file"], input.source.url))
        scores = mine["score"].drop_null().to_numpy()
        found.append(
            {
                "file": input.source.url,
                "label": input.label,
                "texts": len(mine),
                "left_out": mine["score"].null_count,
                "short": int(pc.sum(mine["short"]).as_py() or 0),
                "called_real": int((scores > 0).sum()),
                "share_called_real": float((scores > 0).mean()) if len(scores) else None,
            }
        )
    return found


def accuracies(rows: pa.Table) -> list[dict[str, Any]]:
    """Each detector on each generated file, and on all of them together, against all real texts."""
    labels, urls = rows["label"].to_numpy(), rows["file"].to_numpy()
    generated = list(dict.fromkeys(urls[labels == GENERATED].tolist()))
    found = []
    for detector, column in DETECTORS.items():
        if column not in rows.column_names:
            continue
        scores = rows[column].to_numpy()
        usable = ~np.isnan(scores)
        real = scores[usable & (labels == REAL)]
        for url in [*generated, "all"] if len(generated) > 1 else generated:
            own = scores[usable & (labels == GENERATED) & ((urls == url) | (url == "all"))]
            if len(real) and len(own):
                found.append({"detector": detector, "generated": url} | measured(real, own))
    return found


def measured(real: Scores, generated: Scores) -> dict[str, Any]:
    """Of scores of real and of generated texts, s > 0 meaning real, both classes counting equally.

    A class's interval is Wilson's; that of their mean is made of the two by Newcombe's rule (squares of the distances
    from the estimate to the limits add up).
    """
    classes = {"real": share(real > 0), "generated": share(generated <= 0)}
    shares = [found["share"] for found in classes.values()]
    lower, upper = ([abs(found["interval"][side] - found["share"]) for found in classes.values()] for side in range(2))
    balanced = float(np.mean(shares))
    labels = np.repeat([1, 0], [len(real), len(generated)])
    return {
        "balanced_accuracy": balanced,
        "interval": [balanced - float(np.hypot(*lower)) / 2, balanced + float(np.hypot(*upper)) / 2],
        "auroc": float(roc_auc_score(labels, np.concatenate([real, generated]))),
        "right": classes,
    }


def share(right: NDArray[np.bool_]) -> dict[str, Any]:
    """How many of all, their share, and Wilson's interval of it."""
    found = binomtest(int(right.sum()), len(right))
    interval = found.proportion_ci(CONFIDENCE, method="wilson")
    return {
        "texts": len(right),
        "count": int(right.sum()),
        "share": float(found.statistic),
        "interval": [float(interval.low), float(interval.high)],
    }


def in_words(found: dict[str, Any]) -> str:
    low, high = found["interval"]
    real, generated = (found["right"][name] for name in ("real", "generated"))
    return (
        f"balanced accuracy {found['balanced_accuracy']:.2%} ({low:.2%} to {high:.2%}), AUROC {found['auroc']:.4f}; "
        f"right on {real['share']:.2%} of real, {generated['share']:.2%} of generated texts"
    )
