"""What every analysis leaves behind: analysis.json, figure.svg and figure.png, under names that a report can find."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from evaluation.analyses.inputs import AnalysisInput, describe_input
from evaluation.results.figures import saved
from evaluation.results.json_file import write_json
from pipeline.runtime import files
from pipeline.runtime.provenance import code_version
from pipeline.runtime.settings import Settings, read_settings, setting
from schemas.results import ANALYSIS, ANALYSIS_FILE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDEST = 48  # characters of a text in a printed table
SHOWN = 12  # rows of a printed table


@dataclass(frozen=True, kw_only=True)
class AnalysisSettings(Settings):
    """What all analyses are called with; each adds its inputs, and what its numbers depend on beside them."""

    output: str = setting(help="where analysis.json and the figure go", metavar="DIR")


S = TypeVar("S", bound=AnalysisSettings)


@dataclass(frozen=True)
class Analysis:
    """One analysis: what was looked at, the numbers as flat rows, and whole texts where they show more than numbers."""

    analysis: str
    title: str
    description: str
    rows: list[dict[str, Any]]
    inputs: list[dict[str, str]]
    settings: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    examples: list[dict[str, Any]] = field(default_factory=list)


def run(kind: type[S], analyse: Callable[[S], Analysis], arguments: Sequence[str] | None, about: str | None) -> int:
    """The main of an analysis: reads its settings from a command line, and says what was found."""
    settings = read_settings(kind, sys.argv[1:] if arguments is None else arguments, about)
    describe(analyse(settings), settings.output)
    return 0


def provenance_of(
    settings: AnalysisSettings, inputs: Mapping[str, AnalysisInput | list[AnalysisInput]], **more: Any
) -> dict[str, Any]:
    """What the numbers come from: inputs by the setting that named each, all other settings, and what more is said."""
    lists = {name: given if isinstance(given, list) else [given] for name, given in inputs.items()}
    others = {name: value for name, value in settings.to_json().items() if name not in {*inputs, "output"}}
    listed = [describe_input(f"--{name}", one) for name, given in lists.items() for one in given]
    return {"inputs": listed, "settings": others | more}


def mean_and_error(values: ArrayLike) -> tuple[float, float | None]:
    """The mean, and its standard error, which a single value does not have."""
    array = np.asarray(values, np.float64)
    return float(array.mean()), float(array.std(ddof=1) / np.sqrt(len(array))) if len(array) > 1 else None


def write(analysis: Analysis, figure: "Figure", output: str) -> Analysis:
    """The figure first: where there is an analysis.json, the rest is there too."""
    for kind in ("svg", "png"):
        files.put(files.join(output, f"figure.{kind}"), saved(figure, kind))
    content = asdict(analysis) | {"code_version": code_version()}
    write_json(files.join(output, ANALYSIS_FILE), content, ANALYSIS, allow_nan=False)
    return analysis


def describe(analysis: Analysis, output: str) -> None:
    """The table, in a few lines that fit a terminal."""
    print(analysis.title)
    columns = list(dict.fromkeys(name for row in analysis.rows for name in row))
    shown = analysis.rows[:SHOWN]
    lines = [columns, *([_shown(row.get(name)) for name in columns] for row in shown)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(columns))]
    for line in lines:
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    if len(analysis.rows) > len(shown):
        print(f"  … and {len(analysis.rows) - len(shown)} more rows")
    for sentence in analysis.warnings[:5]:
        print(f"  careful: {sentence}")
    print(f"  written: {files.join(output, ANALYSIS_FILE)}, figure.svg, figure.png")


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    text = str(value)
    return text if len(text) <= WIDEST else text[: WIDEST - 1] + "…"
