"""The figures that a report draws itself, from the numbers that it shows."""

import re
from base64 import b64encode
from collections.abc import Sequence
from typing import Any

from evaluation.results.figures import BASE, INK, JOINT, WORDS, saved, styled

WIDE = 500.0  # points


def embedded(svg: bytes) -> str:
    """An SVG file as the source of an image: one picture's ids cannot meet another's, and its scripts do not run."""
    return f"data:image/svg+xml;base64,{b64encode(svg).decode()}"


def is_wide(svg: bytes) -> bool:
    """Whether a figure has panels side by side, which are too small to be read on a phone."""
    found = re.search(rb'<svg[^>]*\swidth="([\d.]+)pt"', svg)
    return found is not None and float(found[1]) > WIDE


@styled
def curve_figure(
    points: Sequence[dict[str, Any]], across: str, base: float | None, last: dict[str, Any] | None = None
) -> str:
    """The bounds on the joint perplexity against samples or position; `last` adds the exact values at the end."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(5, 3), layout="constrained")
    axes = figure.subplots()
    xs = [point[across] for point in points]
    lower, upper = ([point[name] for point in points] for name in ("lower", "upper"))
    if base is not None:
        axes.axhline(base, color=BASE, linewidth=1.4, label="base")
    else:
        axes.plot(xs, [point["base"] for point in points], color=BASE, marker=".", linewidth=1.4, label="base")
    axes.fill_between(xs, lower, upper, color=JOINT, alpha=0.25, linewidth=0)
    axes.plot(xs, upper, color=JOINT, marker=".", linestyle="--", linewidth=1.2, label="joint, upper (asymptotic)")
    axes.plot(xs, lower, color=JOINT, marker=".", linewidth=1.2, label="joint, lower")
    if last:
        axes.plot(xs[-1:], [last["exact"]], color=INK, marker="D", linestyle="", label="joint, exact at the last token")
    if across == "samples":
        axes.set_xscale("log")
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel(WORDS[across])
    axes.set_ylabel("perplexity")
    axes.legend(fontsize="small")
    return embedded(saved(figure, "svg"))
