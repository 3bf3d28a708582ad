"""How long the bounds of log Z take against the number of samples, which should be n times a constant.

Sizes take turns in one process, each computed so often in its turn that a million samples go through; a ratio is taken
within a round. The tail index, which sorts, is only computed when asked for and timed apart.
"""

import statistics
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import numpy as np
from side_by_side import print_header, print_table, seconds_of, show

from evaluation.joint.bounds import log_partition_bounds, tail_index

SIZES = (1_000, 10_000, 100_000, 1_000_000)
REFERENCE = 100_000
SAMPLES_A_TURN = 1_000_000
ROUNDS = 9


def main() -> None:
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("numpy", "arviz-stats"))
    print_header(f"Bounds of log Z, time against the number of samples n; {versions}")
    scores = {n: np.random.default_rng(0).normal(size=n) for n in SIZES}
    bounds, tails = measure(log_partition_bounds, scores), measure(tail_index, scores)
    heads = ("milliseconds", "ns a sample", f"of that at n = {REFERENCE:,}", "least to most")
    rows = [("n", *heads, "tail index, milliseconds")]
    for n in SIZES:
        seconds = statistics.median(bounds[n])
        pairs = zip(bounds[n], bounds[REFERENCE], strict=True)
        ratios = [(own / n) / (reference / REFERENCE) for own, reference in pairs]
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        numbers = (f"{seconds * 1e3:,.2f}", f"{seconds / n * 1e9:.1f}", f"{statistics.median(ratios):.2f}", spread)
        rows.append((f"{n:,}", *numbers, f"{statistics.median(tails[n]) * 1e3:,.2f}"))
    print_table(rows, words=0)


def measure(work: Callable[[np.ndarray], object], scores: dict[int, np.ndarray]) -> dict[int, list[float]]:
    """Seconds of one call at every size, one number a round; a first round is not counted."""
    seconds: dict[int, list[float]] = {n: [] for n in SIZES}
    for number in range(ROUNDS + 1):
        shift = number % len(SIZES)
        for n in SIZES[shift:] + SIZES[:shift]:
            calls = SAMPLES_A_TURN // n
            seconds[n].append(seconds_of(lambda n=n, calls=calls: [work(scores[n]) for _ in range(calls)]) / calls)
            show(f"round {number} of {ROUNDS}: {work.__name__}, n = {n:,}")
    show("")
    return {n: times[1:] for n, times in seconds.items()}


if __name__ == "__main__":
    main()
