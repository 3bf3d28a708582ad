"""Fills a grid of accuracies: energy models and baselines (rows) on test sets of negatives (columns).

  python evaluation/accuracy_grid.py --grid grid.yaml --root mini --output results/grid

The YAML file names models and stores; what each was made from is read from its manifest, and decides how a cell is
labelled: in-domain, cross-architecture, cross-corpus or wild. Energies that are not there yet are computed, and kept as
stores below --energies. Written are grid.json, grid.parquet with a row for every cell, and a figure. What a cell lacks
is said in it; the others are still filled, and the exit code is then 1.

  columns:
    - {name: Books, stores: [stores/books-test-prefixes, stores/books-test-suffixes]}
    - {name: Web, real: [webtext.test.jsonl], generated: [small-117M-k40.test.jsonl]}    # whole texts
  rows:
    - {name: UniT, energy: models/books-unit}
    - {name: Log-likelihood, likelihood: models/books-lm, valid: [stores/books-valid-prefixes]}
    - {name: TF-IDF, tfidf: [stores/books-train-prefixes], valid: [stores/books-valid-prefixes]}

Instead of one model for a whole row there can be one for each column: energy: {Books: …, Web: …}.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

import schemas
from evaluation.detection.grid import Grid
from evaluation.detection.grid_figure import grid_figure
from evaluation.detection.labels import SETTINGS, UNKNOWN
from evaluation.results.json_file import write_json
from evaluation.results.paper import ACCURACY
from evaluation.results.parquet_file import write_parquet
from evaluation.results.tables import GridTable
from pipeline.runtime import files
from pipeline.runtime.errors import UserError, exit_with
from pipeline.runtime.progress import Bar
from pipeline.runtime.settings import Settings, read_settings, setting
from pipeline.runtime.yaml_file import read_yaml
from schemas.results import CELLS, CELLS_FILE, GRID, GRID_FILE

LETTERS = dict(zip((*SETTINGS, UNKNOWN), "iacw?", strict=True))


@dataclass(frozen=True, kw_only=True)
class GridSettings(Settings):
    """The file that describes a grid, where its paths start, and where results go."""

    grid: str = setting(help="what is tested on what, as above", metavar="FILE")
    output: str = setting(help="where table and figure go", metavar="DIR")
    root: str = setting(".", help="where the grid's paths start (default: here)", metavar="DIR")
    energies: str | None = setting(
        None, help="where stores of energies are kept (default: below --output)", metavar="DIR"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    settings = read_settings(GridSettings, sys.argv[1:] if arguments is None else arguments, __doc__)
    result = accuracy_grid(settings)
    describe(result, settings.output)
    return int(any("problem" in cell for cell in result["cells"]))


def accuracy_grid(settings: GridSettings) -> GridTable:
    """What grid.json says, which is written with the table and the figure."""
    description = read_grid(settings.grid)
    grid = Grid(settings.root, settings.energies or files.join(settings.output, "energies"))
    wanted = [(row, column) for row in description["rows"] for column in description["columns"]]
    cells = []
    for row, column in (bar := Bar(wanted, desc="filling the grid", unit=" cells")):
        bar.set_description(f"{row['name']} on {column['name']}")
        cells.append(grid.cell(row, column) | paper_cell(description, row, column))
    result = summary(description, cells)
    write(result, settings.output)
    return GridTable(result)


def read_grid(path: str) -> dict[str, Any]:
    """A grid file; no two rows, and no two columns, have the same name."""
    description = dict(read_yaml(path, schemas.read_schema("grid")))
    for kind in ("rows", "columns"):
        names = [entry["name"] for entry in description[kind]]
        if twice := [name for name in names if names.count(name) > 1]:
            raise UserError(f"{path}: two {kind} are called {twice[0]}")
    return description


def paper_cell(description: dict[str, Any], row: dict[str, Any], column: dict[str, Any]) -> dict[str, Any]:
    """What a cell is called in the paper's table, and the paper's number, if it has one."""
    if "paper" not in description:
        return {}
    names = [entry.get("paper", entry["name"]) for entry in (row, column)]
    number = ACCURACY[description["paper"]].get(names[0], {}).get(names[1])
    known = {"paper_row": names[0], "paper_column": names[1]}
    return known if number is None else known | {"paper": number / 100}


def summary(description: dict[str, Any], cells: list[dict[str, Any]]) -> dict[str, Any]:
    rows, columns = ([entry["name"] for entry in description[kind]] for kind in ("rows", "columns"))
    result = {"title": description.get("title", "Accuracy"), "rows": rows, "columns": columns, "cells": cells}
    if "paper" in description:
        result["paper"] = description["paper"]
    if description.get("row_means"):
        result["row_means"] = {
            name: sum(found) / len(found)
            for name in rows
            if len(found := [cell["accuracy"] for cell in cells if cell["row"] == name and "accuracy" in cell])
            == len(columns)
        }
    return result


def write(result: dict[str, Any], output: str) -> None:
    write_parquet(files.join(output, CELLS_FILE), pa.Table.from_pylist(result["cells"], CELLS))
    for kind in ("svg", "png"):
        files.put(files.join(output, f"grid.{kind}"), grid_figure(result, LETTERS, kind))
    write_json(files.join(output, GRID_FILE), result, GRID)


def describe(result: dict[str, Any], output: str) -> None:
    """The grid as it is read: percent, half the interval, the setting's letter, and the paper's number below."""
    cells = {(cell["row"], cell["column"]): cell for cell in result["cells"]}
    wide = max(len(name) for name in (*result["rows"], "paper")) + 2
    means = result.get("row_means", {})
    print(result["title"])
    print(" " * wide + "".join(f"{name:>16}" for name in result["columns"]) + ("      mean" if means else ""))
    for row in result["rows"]:
        own = [cells[row, column] for column in result["columns"]]
        mean = f"{means[row]:10.1%}" if row in means else ""
        print(f"{row:<{wide}}" + "".join(f"{shown(cell):>16}" for cell in own) + mean)
        if any("paper" in cell for cell in own):
            known = (f"{cell['paper']:.1%}  " if "paper" in cell else "" for cell in own)
            print(f"{'  paper':<{wide}}" + "".join(f"{value:>16}" for value in known))
    used = {cell["setting"] for cell in result["cells"] if "setting" in cell}
    print("  " + ", ".join(f"{LETTERS[name]} {name}" for name in LETTERS if name in used))
    for cell in result["cells"]:
        for sentence in cell.get("warnings", []):
            print(f"  careful    {cell['row']} on {cell['column']}: {sentence}")
        if "problem" in cell:
            print(f"  left out   {cell['row']} on {cell['column']}: {cell['problem']}")
    print(f"  written    {output}/{GRID_FILE}, {CELLS_FILE}, grid.svg, grid.png")


def shown(cell: dict[str, Any]) -> str:
    if "problem" in cell:
        return "-  "
    return f"{cell['accuracy']:.1%} ±{(cell['high'] - cell['low']) * 50:.1f} {LETTERS[cell['setting']]}"


if __name__ == "__main__":
    exit_with(main)
