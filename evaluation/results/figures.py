"""Figures, as bytes that can be put on any filesystem.

They have no background and ink of middle brightness: as readable on a dark page as on a white one.
"""

import io
from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Given = ParamSpec("Given")
Drawn = TypeVar("Drawn")

WORDS = {"samples": "samples of each context", "position": "position in the window"}
INK = "#767676"  # 4.5 times brighter than black, 4.5 times darker than white
COLOURS = ("#2f7ec2", "#d55e00", "#1f9170", "#a763b5", "#9a8100", "#767676")
REAL, BASE, JOINT = COLOURS[2], COLOURS[1], COLOURS[0]  # what is compared throughout, always in the same colours
STYLE = {
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": INK,
    "axes.titlesize": "medium",
    "grid.color": INK,
    "legend.frameon": False,
    "svg.hashsalt": "residual-ebm",  # without one no two files of the same figure are the same
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


def styled(draw: Callable[Given, Drawn]) -> Callable[Given, Drawn]:
    """Decorates whatever draws. Matplotlib takes its time to be imported: only what draws waits for it."""

    @wraps(draw)
    def drawing(*given: Given.args, **options: Given.kwargs) -> Drawn:
        import matplotlib
        from matplotlib.rcsetup import cycler

        with matplotlib.rc_context(STYLE | {"axes.prop_cycle": cycler(color=COLOURS)}):
            return draw(*given, **options)

    return drawing


def panels(columns: int = 1, rows: int = 1, **options: Any) -> "tuple[Figure, Any]":
    """A figure, and its axes: one, or an array of them."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6 if columns == 1 else 4.5 * columns, 1 + 3 * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, **options)


@styled
def saved(figure: "Figure", kind: str) -> bytes:
    """The figure's file, svg or png."""
    sink = io.BytesIO()
    metadata = {"Date": None} if kind == "svg" else None
    figure.savefig(sink, format=kind, dpi=150, transparent=True, metadata=metadata)
    return sink.getvalue()


@styled
def bounds_figure(points: Sequence[dict[str, float]], across: str, kind: str, base: float | None = None) -> bytes:
    """The joint model's perplexity between its bounds, and the base model's, against samples or position."""
    figure, axes = panels()
    xs = [point[across] for point in points]
    lower, upper = ([point[name] for point in points] for name in ("lower", "upper"))
    axes.fill_between(xs, lower, upper, color=JOINT, alpha=0.3, label="joint model, lower to upper bound")
    axes.plot(xs, lower, color=JOINT, marker=".")
    axes.plot(xs, upper, color=JOINT, marker=".")
    if base is not None:
        axes.axhline(base, color=BASE, label="base language model")
    else:
        axes.plot(xs, [point["base"] for point in points], color=BASE, marker=".", label="base language model")
    if across == "samples":
        axes.set_xscale("log")
    axes.set_xlabel(WORDS[across])
    axes.set_ylabel("perplexity")
    axes.legend()
    return saved(figure, kind)
