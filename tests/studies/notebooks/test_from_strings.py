"""The page of cells, run from top to bottom as a notebook does, on sizes for a test."""

import ast
import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from pipeline.stores.reader import Store
from tests.helpers.commands import ROOT

PAGE = ROOT / "studies" / "notebooks" / "from_strings.py"
FACES = {"pipeline", "training", "evaluation"}


def cells() -> Iterator[str]:
    """The cells that hold code."""
    for cell in re.split(r"(?m)^# %%", PAGE.read_text())[1:]:
        if not cell.startswith(" [markdown]"):
            yield cell.partition("\n")[2]


def run(cell: str, names: dict[str, Any]) -> Any:
    """Runs a cell, and gives what a notebook would show below it: the value of its last line."""
    tree = ast.parse(cell)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, str(PAGE), "exec"), names)
    return None if last is None else eval(compile(ast.Expression(last.value), str(PAGE), "eval"), names)


@pytest.mark.slow
def test_the_page_goes_from_strings_to_joint_samples(tmp_path, one_thread):
    names: dict[str, Any] = {"__name__": "page"}
    first, *rest = cells()
    run(first, names)
    names |= {"FOLDER": str(tmp_path), "STEPS": 3, "SAMPLES": 4, "texts": names["texts"][:300]}
    shown = [run(cell, names) for cell in rest]
    tables = [value._repr_html_() for value in shown if hasattr(value, "_repr_html_")]
    assert [table.partition("<caption>")[2].split()[0] for table in tables] == ["Store", "Store", "Perplexity"]
    assert len(names["energies"]) + len(names["language"]) == pytest.approx(200, rel=0.1)
    assert not {*ids(names["energies"])} & {*ids(names["language"])}
    assert len(names["samples"][0]["negatives"]) == 4
    bounds = names["bounds"]
    assert bounds["samples"] == 4
    assert bounds["joint_perplexity"]["lower"] <= bounds["joint_perplexity"]["upper"]
    assert [len(text) > 0 for text in names["completions"].values()] == [True, True]


def ids(store: Store) -> list[str]:
    return [row["window_id"] for row in store.rows(["window_id"])]


def test_the_page_uses_the_packages_faces_alone():
    tree = ast.parse(PAGE.read_text())
    imported = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    modules = {node.module for node in imported if isinstance(node, ast.ImportFrom)}
    assert {name for name in modules if name not in sys.stdlib_module_names} == FACES
    assert not any(isinstance(node, ast.Import) for node in imported)
