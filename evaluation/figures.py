"""Figures, as bytes that can be put on any filesystem."""

import io
from collections.abc import Sequence

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt

plt.rcParams["svg.hashsalt"] = "residual-ebm"  # the same figure is the same file

WORDS = {"samples": "samples of each context", "position": "position in the window"}


def bounds_figure(points: Sequence[dict[str, float]], across: str, kind: str, base: float | None = None) -> bytes:
    """The joint model's perplexity between its bounds, and the base model's, against samples or position."""
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    xs = [point[across] for point in points]
    lower, upper = ([point[name] for point in points] for name in ("lower", "upper"))
    axes.fill_between(xs, lower, upper, alpha=0.3, label="joint model, lower to upper bound")
    axes.plot(xs, lower, color="C0", marker=".")
    axes.plot(xs, upper, color="C0", marker=".")
    if base is not None:
        axes.axhline(base, color="C1", label="base language model")
    else:
        axes.plot(xs, [point["base"] for point in points], color="C1", marker=".", label="base language model")
    if across == "samples":
        axes.set_xscale("log")
    axes.set_xlabel(WORDS[across])
    axes.set_ylabel("perplexity")
    axes.legend()
    sink = io.BytesIO()
    figure.savefig(sink, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)
    plt.close(figure)
    return sink.getvalue()
