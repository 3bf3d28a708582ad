"""What every analysis leaves behind: analysis.json, figure.svg and figure.png, under names that a report can find."""

import argparse
import json
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from evaluation.results.figures import saved
from pipeline.runtime import files
from pipeline.runtime.command_line import Parser
from pipeline.runtime.errors import UserError
from pipeline.runtime.provenance import code_version

RESULT = "analysis.json"
WIDEST = 48  # characters of a text in a printed table
SHOWN = 12  # rows of a printed table


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


def parser_of(description: str | None) -> Parser:
    """A command line with the option that all analyses share."""
    parser = Parser(description)
    parser.add_argument("--output", required=True, metavar="DIR", help="where analysis.json and the figure go")
    return parser


def settings_of(options: argparse.Namespace, *names: str) -> dict[str, Any]:
    """The options that the numbers depend on, beside the inputs."""
    return {name: getattr(options, name) for name in names}


def check_counts(options: argparse.Namespace, *names: str) -> None:
    """Refuses numbers of windows, tokens, … below 1."""
    for name in names:
        if getattr(options, name) is not None and getattr(options, name) < 1:
            raise UserError(f"--{name} {getattr(options, name)}: at least 1")


def mean_and_error(values: ArrayLike) -> tuple[float, float | None]:
    """The mean, and its standard error, which a single value does not have."""
    array = np.asarray(values, np.float64)
    return float(array.mean()), float(array.std(ddof=1) / np.sqrt(len(array))) if len(array) > 1 else None


def write(analysis: Analysis, figure: Figure, output: str) -> None:
    """The figure first: where there is an analysis.json, the rest is there too."""
    for kind in ("svg", "png"):
        files.put(files.join(output, f"figure.{kind}"), saved(figure, kind))
    content = asdict(analysis) | {"code_version": code_version()}
    files.put(files.join(output, RESULT), json.dumps(content, indent=1, allow_nan=False).encode())


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
    print(f"  written: {files.join(output, RESULT)}, figure.svg, figure.png")


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    text = str(value)
    return text if len(text) <= WIDEST else text[: WIDEST - 1] + "…"
