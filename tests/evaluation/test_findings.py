"""The job: what it reads of a study that real jobs made, and what it writes and prints."""

import json

import numpy as np
import pytest

from evaluation import findings, report
from evaluation.claims.cells import cells_of
from evaluation.claims.decision import PAIRED, contrast
from evaluation.reporting.inputs import find_results
from pipeline.runtime.errors import UserError
from schemas.results import FINDINGS
from tests.helpers.pages import Page


def test_the_table_is_written_printed_and_shown_on_the_page(results, tmp_path, capsys):
    assert findings.main(["--input", str(results), "--output", str(tmp_path / "findings")]) == 0
    content = json.loads((tmp_path / "findings/findings.json").read_text())
    found = {one["name"]: one for one in content["findings"]}
    names = FINDINGS["properties"]["findings"]["items"]["properties"]["verdict"]["enum"]
    assert {one["verdict"] for one in found.values()} <= set(names)
    printed = capsys.readouterr().out
    assert all(one["claim"] in printed and (one["reason"] or "") in printed for one in found.values())
    base = found["joint-below-base"]
    (part,) = base["parts"]
    bounds = json.loads((results / "results/bounds/bounds.json").read_text())["differences"]
    assert part["low"] == -bounds["base"]["percent"]["high"]
    assert part["over"] == "paired, 30 windows"
    assert found["bounds-close"]["verdict"] == "seen"
    assert found["last-position-exact"]["parts"]
    assert found["joint-densities-closer"]["parts"][0]["over"] == "paired, 30 contexts"
    assert found["readers-prefer-joint"]["reason"].startswith("not measured")
    output = tmp_path / "report.html"
    assert report.main(["--input", str(tmp_path / "findings"), "--output", str(output)]) == 0
    rows = Page(output.read_text()).table("Findings (findings)")[1:]
    measured = [one for one in content["findings"] if one["parts"]]
    assert [(row[0], row[-1]) for row in rows] == [(one["claim"], one["verdict"]) for one in measured]


def test_cells_are_paired_by_the_windows_of_their_stores(results):
    (cell,) = cells_of_all(results)
    measured = cell.measured
    names, values = measured.windows
    assert len(names) == 30
    assert values.mean() == pytest.approx(measured.value)
    nothing, over = contrast([(1, measured), (-1, measured)])
    assert (nothing.value, over) == (0, PAIRED)
    assert -0.15 < nothing.low < 0 < nothing.high < 0.15
    cell.content["energies"] = ["nowhere"]
    assert cell.measured.windows is None
    assert np.isfinite(cell.measured.low)


def cells_of_all(results):
    """The one cell of the grid, though its negatives are the training generator's own."""
    found = find_results([str(results / "results/grid")])
    for cell in found.of("grid")[0].content["cells"]:
        cell["warnings"] = []
    return cells_of(found)


def test_bad_input_is_named(tmp_path):
    with pytest.raises(UserError, match="there is no such folder"):
        findings.main(["--input", str(tmp_path / "nowhere"), "--output", str(tmp_path)])
