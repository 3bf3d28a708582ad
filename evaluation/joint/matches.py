"""How often a model finds the real completion itself: what counts where, as with sums, only one completion is right."""

import numpy as np
from numpy.typing import NDArray

from evaluation.joint.contexts import contexts_of
from pipeline.stores.reader import Store
from schemas.division import divide

SIZES = (1, 10, 100, 1000, 10_000, 100_000)


def matches(samples: Store, scored: Store, count: int | None = None) -> dict[str, object]:
    """The share of real completions among the generator's samples, and among those that the joint model chooses.

    For n samples of a context the joint model takes one with probability softmax(-E): its share is the expectation of
    that. The oracle takes a real one whenever there is one among the n.
    """
    right = _equal_to_real(samples)
    parts = [
        (
            contexts.scores,
            np.stack([right[key] for key in zip(contexts.window_ids, contexts.context_lengths, strict=True)]),
        )
        for contexts in contexts_of(samples, scored, count)
    ]
    most = parts[0][0].shape[1]
    found = []
    for size in sorted({n for n in SIZES if n < most} | {most}):
        chosen, there = [], []
        for scores, flags in parts:
            weights = np.exp(scores[:, :size] - scores[:, :size].max(1, keepdims=True))
            chosen.append((weights * flags[:, :size]).sum(1) / weights.sum(1))
            there.append(flags[:, :size].any(1))
        joint, oracle = np.concatenate(chosen).mean(), np.concatenate(there).mean()
        found.append({"samples": size, "joint": float(joint), "oracle": float(oracle)})
    base = np.concatenate([flags[:, :most].mean(1) for _, flags in parts]).mean()
    return {"base": float(base), "joint": found}


def _equal_to_real(samples: Store) -> dict[tuple[str, int], NDArray[np.bool_]]:
    """For every context, which of its samples are the real completion."""
    drawn = int(samples.manifest.settings["negatives"])
    found: dict[tuple[str, int], NDArray[np.bool_]] = {}
    names = ["window_id", "tokens", "direction", "context_length", "first_sample", "negatives"]
    for table in samples.batches(names):
        for row in table.to_pylist():
            _, real = divide(np.array(row["tokens"]), row["context_length"], row["direction"])
            flags = found.setdefault((row["window_id"], row["context_length"]), np.zeros(drawn, bool))
            first, completions = row["first_sample"], np.array(row["negatives"])
            flags[first : first + len(completions)] = (completions == real).all(1)
    return found
