"""How often a detector is right: shares of texts called real, balanced accuracy and AUROC, with intervals."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from evaluation.detection.accuracy import balanced_accuracy
from evaluation.detection.texts import LabelledFile
from schemas.results import TFIDF_SCORE

Numbers = NDArray[np.float64]
REAL, GENERATED = "real", "generated"  # labels
DETECTORS = {"energy": "score", "tfidf": TFIDF_SCORE.name}  # and the columns of their scores


def shares(rows: pa.Table, inputs: Sequence[LabelledFile]) -> list[dict[str, Any]]:
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


def measured(real: Numbers, generated: Numbers) -> dict[str, Any]:
    """Of scores of real and of generated texts, s > 0 meaning real, both classes counting equally."""
    found = balanced_accuracy(real, generated)
    counted = {"real": (found.real, len(real)), "generated": (found.generated, len(generated))}
    return {
        "balanced_accuracy": found.accuracy,
        "interval": [found.low, found.high],
        "auroc": found.auroc,
        "right": {name: {"share": share, "texts": texts} for name, (share, texts) in counted.items()},
    }


def in_words(found: dict[str, Any]) -> str:
    low, high = found["interval"]
    real, generated = (found["right"][name] for name in ("real", "generated"))
    return (
        f"balanced accuracy {found['balanced_accuracy']:.2%} ({low:.2%} to {high:.2%}), AUROC {found['auroc']:.4f}; "
        f"right on {real['share']:.2%} of real, {generated['share']:.2%} of generated texts"
    )
