"""Grids and detection as tables: what stands in a cell, what colours it, and what is left out."""

from typing import Any

from evaluation.detection.labels import IN_DOMAIN, WILD
from evaluation.reporting.accuracy import (
    MEANINGS,
    context_table,
    detection_section,
    grid_cell,
    grid_table,
    grids_section,
)
from evaluation.reporting.blocks import NOTHING, Fold, Gap, Paragraph, Table
from evaluation.reporting.inputs import Result, StudyResults

CELL = {"row": "BiT", "column": "books", "setting": IN_DOMAIN, "accuracy": 0.75, "low": 0.7, "high": 0.8}


def grid(cells: list[dict[str, Any]], **more: Any) -> Result:
    content = {"title": "Letters", "rows": ["BiT", "Lost"], "columns": ["books", "web"], "cells": cells}
    return Result("grid", "results/grid", "results/grid", content | more)


def test_a_cell_has_its_interval_setting_and_the_papers_number_in_small_print():
    cell = grid_cell(CELL | {"paper": 0.917, "warnings": ["own samples"]})
    assert (cell.text, cell.value) == ("75.0\u00a0%", 0.75)
    assert cell.small == ("70.0 to 80.0\u00a0%", IN_DOMAIN, "paper 91.7\u00a0%", "careful: see warnings")
    assert grid_cell(CELL).small == ("70.0 to 80.0\u00a0%", IN_DOMAIN)


def test_colour_begins_at_chance():
    assert [grid_cell(CELL | {"accuracy": share}).share for share in (0.4, 0.5, 0.75, 1.0)] == [0.0, 0.0, 0.5, 1.0]


def test_a_cell_that_could_not_be_filled_says_so_and_keeps_the_papers_number():
    cell = grid_cell({"row": "Lost", "column": "books", "problem": "no model", "paper": 0.9})
    assert (cell.text, cell.value, cell.share) == (NOTHING, None, None)
    assert cell.small == ("left out", "paper 90.0\u00a0%")
    assert grid_cell(None).text == NOTHING


def test_a_grid_has_its_rows_in_order_means_and_the_meaning_of_the_settings_that_occur():
    wild = CELL | {"column": "web", "setting": WILD, "accuracy": 0.6}
    table = grid_table(grid([wild, CELL], row_means={"BiT": 0.675}))
    assert table.columns == ("Trained on, or model", "books", "web", "Mean")
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["BiT", "75.0\u00a0%", "60.0\u00a0%", "67.5\u00a0%"],
        ["Lost", NOTHING, NOTHING, NOTHING],
    ]
    assert table.notes == [f"{name}: {MEANINGS[name]}." for name in (IN_DOMAIN, WILD)]
    assert "Mean" not in grid_table(grid([CELL])).columns


def test_lengths_of_context_have_a_table_of_their_own_unless_there_is_but_the_empty_one():
    part = {"accuracy": 0.6, "low": 0.5, "high": 0.7}
    table = context_table(grid([CELL | {"by_context": {"140": part, "20": part}}, CELL]))
    assert table is not None
    assert table.columns == ("Cell", "20 tokens", "140 tokens")  # by number, not by letter
    ((name, *parts),) = table.rows
    assert name.text == "BiT on books"
    assert [(cell.value, cell.small) for cell in parts] == [(0.6, ("50.0 to 70.0\u00a0%",))] * 2
    assert context_table(grid([CELL | {"by_context": {"0": part}}])) is None
    assert context_table(grid([CELL])) is None


def test_the_section_shows_every_grid_or_names_the_command():
    part = {"20": {"accuracy": 0.6, "low": 0.5, "high": 0.7}}
    words, first, second, fold = grids_section(StudyResults([grid([CELL]), grid([CELL | {"by_context": part}])])).blocks
    assert isinstance(words, Paragraph)
    assert isinstance(first, Table)
    assert isinstance(second, Table)
    assert isinstance(fold, Fold)
    (gap,) = grids_section(StudyResults()).blocks
    assert isinstance(gap, Gap)
    assert gap.commands[0].startswith("python evaluation/accuracy_grid.py --grid")


def test_detection_has_its_accuracies_and_the_share_of_each_file_that_is_called_real():
    found = {"detector": "energy", "generated": "a/small.jsonl", "balanced_accuracy": 0.93, "interval": [0.9, 0.95]}
    right = {"real": {"share": 0.9}, "generated": {"share": 0.96}}
    file = {"file": "a/web.jsonl", "label": "real", "texts": 1000, "called_real": 900, "left_out": 1}
    summary = {"energy": {"preset": "bit"}, "files": [file | {"share_called_real": 0.9}]}
    content = summary | {"accuracy": [found | {"auroc": 0.98}, found | {"auroc": 0.98, "right": right}]}
    accuracies, files = detection_section(StudyResults([Result("detection", "wild", "wild", content)])).blocks
    assert accuracies.caption == "Detection with bit (wild)"
    assert [[cell.text for cell in row] for row in accuracies.rows] == [
        ["energy", "small.jsonl", "93.00\u00a0%", "0.9800", NOTHING, NOTHING],
        ["energy", "small.jsonl", "93.00\u00a0%", "0.9800", "90.0\u00a0%", "96.0\u00a0%"],
    ]
    assert accuracies.rows[0][2].small == ("90.0 to 95.0\u00a0%",)
    assert [cell.text for cell in files.rows[0]] == ["web.jsonl", "real", "1,000", "900", "90.0\u00a0%", "1"]


def test_texts_of_which_nothing_is_known_have_shares_alone():
    file = {"file": "web.jsonl", "texts": 0, "called_real": 0, "left_out": 0}
    content = {"energy": {}, "files": [file], "accuracy": []}
    (table,) = detection_section(StudyResults([Result("detection", "wild", "wild", content)])).blocks
    assert table.caption == "Texts called real by energy model (wild)"
    assert [cell.text for cell in table.rows[0]] == ["web.jsonl", NOTHING, "0", "0", NOTHING, "0"]
    (gap,) = detection_section(StudyResults()).blocks
    assert isinstance(gap, Gap)
    assert gap.commands[0].startswith("python evaluation/detect.py")
