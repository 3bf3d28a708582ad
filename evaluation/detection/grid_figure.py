"""A grid of accuracies as a picture: the better, the darker; letters say which of the paper's settings a cell is."""

from typing import TYPE_CHECKING, Any

from evaluation.results.figures import INK, saved, styled

if TYPE_CHECKING:
    from matplotlib.patches import Rectangle

SHADES = ["#f4e9d8", "#7fb6d6", "#1f5f99"]
CHANCE, DARK = 0.5, 0.78  # beyond the latter, letters are white


@styled
def grid_figure(result: dict[str, Any], letters: dict[str, str], kind: str) -> bytes:
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure

    shades = LinearSegmentedColormap.from_list("accuracy", SHADES)
    rows, columns = result["rows"], result["columns"]
    figure = Figure(figsize=(2.6 + 1.15 * len(columns), 1.2 + 0.5 * len(rows)), layout="constrained")
    axes = figure.subplots()
    for cell in result["cells"]:
        x, y = columns.index(cell["column"]), rows.index(cell["row"])
        if "accuracy" not in cell:
            axes.text(x, y, "–", ha="center", va="center", color=INK)
            continue
        share = (cell["accuracy"] - CHANCE) / (1 - CHANCE)
        axes.add_patch(_box(x, y, shades(max(0.0, share))))
        colour = "white" if cell["accuracy"] > DARK else "black"
        axes.text(
            x, y, f"{cell['accuracy']:.1%} {letters[cell['setting']]}", ha="center", va="center", color=colour, size=9
        )
    axes.set_xlim(-0.5, len(columns) - 0.5)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), rows)
    axes.tick_params(length=0)
    axes.xaxis.tick_top()
    for spine in axes.spines.values():
        spine.set_visible(False)
    used = {cell["setting"] for cell in result["cells"] if "setting" in cell}
    axes.set_xlabel(", ".join(f"{letter} {name}" for name, letter in letters.items() if name in used), size=8)
    return saved(figure, kind)


def _box(x: float, y: float, colour: Any) -> "Rectangle":
    from matplotlib.patches import Rectangle

    return Rectangle((x - 0.48, y - 0.46), 0.96, 0.92, facecolor=colour, edgecolor="none")
