"""What bounds and grids show of themselves in notebooks."""

from xml.etree import ElementTree

from evaluation.results.tables import BoundsTable, GridTable

HOSTILE = "<img src=x onerror=alert(1)>"
BOUNDS = {
    "contexts": 1200,
    "samples": 100,
    "base_perplexity": 29.6,
    "joint_perplexity": {"lower": 28.1234, "midpoint": 28.3, "upper": 28.5},
    "effective_samples": {"median": 40.0, "least": 2.5},
    "language_models": {HOSTILE: 29.0},
    "warnings": [f"careful {HOSTILE}"],
}


def shown(result: BoundsTable | GridTable) -> ElementTree.Element:
    """The HTML, which has to be well-formed, and has no element but a table's and a list's."""
    page = ElementTree.fromstring(f"<div>{result._repr_html_()}</div>")
    tags = {"div", "table", "caption", "thead", "tbody", "tr", "th", "td", "ul", "li"}
    assert {element.tag for element in page.iter()} <= tags
    return page


def rows_of(page: ElementTree.Element) -> list[list[str | None]]:
    return [[cell.text for cell in row] for row in page.iter("tr")]


def test_bounds_are_shown_as_a_pair_with_what_speaks_against_them():
    page = shown(BoundsTable(BOUNDS))
    assert page.find(".//caption").text == "Perplexity of 1,200 completions, 100 samples each"
    assert rows_of(page) == [
        ["base language model", "29.6000"],
        ["joint model", "28.1234 to 28.5000 (the upper bound is asymptotic)"],
        [HOSTILE, "29.0000"],
        ["effective samples", "40.0 of a context (median), 2.5 (least)"],
    ]
    assert [item.text for item in page.iter("li")] == [f"careful {HOSTILE}"]


def test_a_grid_is_shown_cell_by_cell_with_the_papers_numbers_and_what_is_missing():
    known = {"accuracy": 0.971, "low": 0.961, "high": 0.981, "setting": "in-domain", "paper": 0.95}
    cells = [
        {"row": HOSTILE, "column": "Books"} | known,
        {"row": HOSTILE, "column": "Web", "problem": f"{HOSTILE}: there is no such folder"},
    ]
    page = shown(GridTable({"title": HOSTILE, "rows": [HOSTILE], "columns": ["Books", "Web"], "cells": cells}))
    assert page.find(".//caption").text == HOSTILE
    assert rows_of(page) == [[None, "Books", "Web"], [HOSTILE, "97.1% ±1.0 (in-domain; paper 95.0%)", "–"]]
    assert [item.text for item in page.iter("li")] == [f"{HOSTILE} on Web: {HOSTILE}: there is no such folder"]
