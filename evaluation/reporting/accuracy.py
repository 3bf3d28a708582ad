"""Accuracy: grids as coloured tables with the paper's numbers in small print, and detection of whole texts."""

import os
from typing import Any

from evaluation.detection.accuracy import CHANCE, is_near_chance
from evaluation.detection.labels import CROSS_ARCHITECTURE, CROSS_CORPUS, ENERGY, IN_DOMAIN, LIKELIHOOD, UNKNOWN, WILD
from evaluation.reporting.blocks import (
    NOTHING,
    Cell,
    Fold,
    Gap,
    PageBlock,
    PageSection,
    Paragraph,
    Table,
    count,
    decimal,
    in_interval,
    in_percent,
    percent,
    words,
)
from evaluation.reporting.commands import usage
from evaluation.reporting.inputs import Result, StudyResults

MEANINGS = {
    IN_DOMAIN: "the corpus and the generator's architecture are those of training",
    CROSS_ARCHITECTURE: "another generator's architecture",
    CROSS_CORPUS: "another corpus",
    WILD: "another corpus and another architecture",
    UNKNOWN: "what the model was trained on, or tested on, is not known",
}


SO = "it has hardly learned, and what it adds to the language model is to be doubted."
NEAR = f"The energy model's accuracy is at chance, 50 %, or near it: {SO}"
BELOW = f"The energy model distinguishes texts less well than a language model's log-likelihood does: {SO}"
NEAR_AND_BELOW = (
    f"The energy model's accuracy is at chance or near it, and below that of a language model's log-likelihood: {SO}"
)


def role_of(cell: dict[str, Any]) -> str | None:
    return (cell.get("model") or {}).get("role")


def likelihood_beside(cell: dict[str, Any], cells: list[dict[str, Any]]) -> float | None:
    """The best accuracy of a log-likelihood on the same test set."""
    found = [
        float(other["accuracy"])
        for other in cells
        if role_of(other) == LIKELIHOOD and other["column"] == cell["column"] and "accuracy" in other
    ]
    return max(found, default=None)


def doubt_about(cell: dict[str, Any], cells: list[dict[str, Any]]) -> str | None:
    """Whether the energy model of a cell has hardly learned: at chance, or below the log-likelihood beside it."""
    if role_of(cell) != ENERGY or "accuracy" not in cell:
        return None
    likelihood = likelihood_beside(cell, cells)
    near, below = is_near_chance(cell["low"]), likelihood is not None and cell["accuracy"] < likelihood
    return NEAR_AND_BELOW if near and below else NEAR if near else BELOW if below else None


def doubted_energies(found: StudyResults) -> set[str]:
    """The digests of energy models that have hardly learned, by the grids."""
    return {
        cell["model"]["digest"]
        for grid in found.of("grid")
        for cell in grid.content["cells"]
        if doubt_about(cell, grid.content["cells"])
    }


def grids_section(found: StudyResults) -> PageSection:
    blocks: list[PageBlock] = []
    if grids := found.of("grid"):
        text = (
            "Rows: what was trained. Columns: what it is tested on. Chance is 50 %; below each accuracy stand its 95 % "
            "interval, the setting, and the paper's number where it has one, which is of full-size models."
        )
        blocks.append(Paragraph(text))
    for grid in grids:
        blocks.append(grid_table(grid))
        if by_context := context_table(grid):
            blocks.append(Fold(f"By length of context: {grid.content['title']}", [by_context]))
    if not grids:
        blocks.append(Gap("No accuracy grids: there is no grid.json in these folders.", [usage("accuracy_grid.py")]))
    return PageSection("accuracy", "Accuracy grids", blocks)


def grid_table(grid: Result) -> Table:
    content = grid.content
    cells = {(cell["row"], cell["column"]): cell for cell in content["cells"]}
    means = content.get("row_means") or {}
    rows = []
    for row in content["rows"]:
        shown = [words(row), *(grid_cell(cells.get((row, column))) for column in content["columns"])]
        rows.append(shown + ([percent(means.get(row))] if means else []))
    used = {cell.get("setting") for cell in content["cells"]}
    notes = [f"{name}: {meaning}." for name, meaning in MEANINGS.items() if name in used]
    columns = ("Trained on, or model", *content["columns"], *(["Mean"] if means else []))
    return Table(f"{content['title']} ({grid.name})", columns, rows, notes)


def grid_cell(cell: dict[str, Any] | None) -> Cell:
    """Percent, interval, setting, the paper's number; or that it was left out."""
    if cell is None:
        return words(None)
    paper = (f"paper {in_percent(cell['paper'])}",) if "paper" in cell else ()
    if "accuracy" not in cell:
        return Cell(NOTHING, small=("left out", *paper), tag="problem")
    share = min(1.0, max(0.0, (cell["accuracy"] - CHANCE) / (1 - CHANCE)))
    careful = ("careful: see warnings",) if cell.get("warnings") else ()
    small = (in_interval(cell["low"], cell["high"]), cell["setting"], *paper, *careful)
    return Cell(in_percent(cell["accuracy"]), cell["accuracy"], small, share)


def context_table(grid: Result) -> Table | None:
    """Accuracy for every length of context by itself; none where whole texts were tested."""
    cells = [cell for cell in grid.content["cells"] if cell.get("by_context")]
    lengths = sorted({length for cell in cells for length in cell["by_context"]}, key=int)
    if not cells or lengths == ["0"]:
        return None
    rows = [
        [
            words(f"{cell['row']} on {cell['column']}"),
            *(part_cell(cell["by_context"].get(length)) for length in lengths),
        ]
        for cell in cells
    ]
    columns = ("Cell", *(f"{length} tokens" for length in lengths))
    return Table(f"By length of context: {grid.content['title']}", columns, rows)


def part_cell(part: dict[str, Any] | None) -> Cell:
    if part is None:
        return words(None)
    return Cell(in_percent(part["accuracy"]), part["accuracy"], (in_interval(part["low"], part["high"]),))


def detection_section(found: StudyResults) -> PageSection:
    blocks: list[PageBlock] = []
    for result in found.of("detection"):
        blocks += detection_blocks(result)
    if not blocks:
        blocks.append(Gap("No detection of whole texts.", [usage("detect.py")]))
    return PageSection("detection", "Detection of whole texts", blocks)


def detection_blocks(result: Result) -> list[PageBlock]:
    content = result.content
    model = content["energy"].get("preset") or content["energy"].get("kind") or "energy model"
    blocks: list[PageBlock] = []
    if content["accuracy"]:
        rows = []
        for one in content["accuracy"]:
            low, high = one["interval"][:2]
            right = one.get("right") or {}
            rows.append(
                [
                    words(one["detector"]),
                    words(os.path.basename(one["generated"])),
                    Cell(in_percent(one["balanced_accuracy"], 2), one["balanced_accuracy"], (in_interval(low, high),)),
                    decimal(one["auroc"], 4),
                    *(percent((right.get(name) or {}).get("share")) for name in ("real", "generated")),
                ]
            )
        columns = ("Detector", "Generated texts", "Balanced accuracy", "AUROC", "Right on real", "Right on generated")
        blocks.append(Table(f"Detection with {model} ({result.name})", columns, rows))
    rows = [
        [
            words(os.path.basename(file["file"])),
            words(file.get("label")),
            count(file["texts"]),
            count(file["called_real"]),
            percent(file.get("share_called_real")),
            count(file["left_out"]),
        ]
        for file in content["files"]
    ]
    columns = ("File", "It is", "Texts", "Called real", "Share", "Left out")
    return [*blocks, Table(f"Texts called real by {model} ({result.name})", columns, rows)]
