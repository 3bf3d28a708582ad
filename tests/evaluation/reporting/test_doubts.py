"""What the page must not claim: no gain that the intervals do not show, no scale that makes one up."""

from typing import Any

import pytest

from evaluation.reporting.accuracy import BELOW, NEAR, NEAR_AND_BELOW
from evaluation.reporting.headline import LEAST_SPAN, headline, line_of
from evaluation.reporting.inputs import Result, StudyResults
from evaluation.reporting.perplexity import perplexity_section
from evaluation.reporting.warnings import warnings_of

DIGEST = "e" * 64


def bounds(base: float, lower: float, upper: float, low: float | None, high: float | None, **more: Any) -> Result:
    percent = {"lower": 100 * (lower / base - 1), "upper": 100 * (upper / base - 1), "low": low, "high": high}
    content = {
        "corpus": "mine",
        "split": "test",
        "generator": {"architecture": "transf-tiny"},
        "energy": {"preset": "bit-tiny", "digest": DIGEST},
        "contexts": 500,
        "samples": 100,
        "base_perplexity": base,
        "joint_perplexity": {"lower": lower, "upper": upper},
        "effective_samples": {"median": 90.0, "least": 70.0},
        "differences": {"over": "documents", "count": 25, "base": {"percent": percent, "log_ratio": percent}},
    }
    return Result("bounds", "b", "b", content | more)


def cell(row: str, role: str, accuracy: float, low: float, high: float) -> dict[str, Any]:
    model = {"role": role, "digest": DIGEST if role == "energy" else "l" * 64}
    numbers = {"accuracy": accuracy, "low": low, "high": high, "setting": "in-domain", "warnings": []}
    return {"row": row, "column": "test", "model": model} | numbers


def grid(*cells: dict[str, Any]) -> Result:
    return Result("grid", "g", "g", {"title": "G", "rows": [], "columns": [], "cells": list(cells)})


def test_a_difference_inside_its_interval_is_not_called_lower():
    found = StudyResults([bounds(73.84, 73.73, 73.74, -0.6, 0.4)])
    said = "not distinguishable: −0.1\u00a0% (−0.6 to +0.4\u00a0%), over 25 documents"
    assert said in headline(found).sentence
    assert said in headline(found).facts[0].note
    (table, *_) = [block for block in perplexity_section(found).blocks if block.kind == "table"]
    assert table.rows[0][-1].small == ("−0.6 to +0.4\u00a0%", "not distinguishable")
    assert "over 25 documents" in table.notes[-1]


@pytest.mark.parametrize(
    ("low", "high", "said"), [(-12.0, -8.0, "lower: −10.0"), (8.0, 12.0, "higher: +10.0"), (None, None, "not dist")]
)
def test_what_its_interval_shows_is_called_so(low, high, said):
    joint = 90 if said.startswith("lower") else 110
    assert said in headline(StudyResults([bounds(100, joint, joint, low, high)])).sentence


def test_an_older_result_without_an_interval_is_called_neither_lower_nor_distinguished():
    old = bounds(100, 90, 91, None, None)
    del old.content["differences"]
    sentence = headline(StudyResults([old])).sentence
    assert "−10.0 to −9.0\u00a0% by the bounds, with no interval" in sentence
    assert "lower" not in sentence
    assert "no interval" in warnings_of(StudyResults([old]))[0].text


def test_the_scale_does_not_make_a_gain_of_a_tenth_of_a_percent_look_like_one():
    line = line_of(bounds(73.84, 73.73, 73.74, -0.6, 0.4).content)
    low, high = map(float, line.ends)
    assert high - low >= LEAST_SPAN * 73.84 - 0.01
    marks = {span.style: span for span in line.spans}
    assert marks["base"].start - marks["joint"].start < 0.05
    assert all(0 < span.start <= span.end < 1 for span in line.spans)
    wide = line_of(bounds(100, 60, 61, -41, -38).content)
    assert {span.style: span.start for span in wide.spans}["joint"] == pytest.approx(0.12 / 1.24, abs=1e-3)


@pytest.mark.parametrize(
    ("energy", "likelihood", "text"),
    [
        ((0.54, 0.51, 0.57), 0.60, NEAR_AND_BELOW),
        ((0.501, 0.48, 0.52), 0.50, NEAR),
        ((0.75, 0.73, 0.77), 0.82, BELOW),
        ((0.85, 0.83, 0.87), 0.60, None),
    ],
)
def test_an_energy_that_hardly_learned_is_said_once_and_marks_what_rests_on_it(energy, likelihood, text):
    cells = cell("BiT", "energy", *energy), cell("LM", "likelihood", likelihood, likelihood - 0.02, likelihood + 0.02)
    found = StudyResults([bounds(73.84, 73.73, 73.74, -0.6, 0.4), grid(*cells)])
    said = [one for one in warnings_of(found) if one.where.startswith("Energy model")]
    assert [one.text for one in said] == ([text] if text else [])
    if text:
        assert (
            f"BiT on test ({100 * energy[0]:.1f}\u00a0%, log-likelihood {100 * likelihood:.1f}\u00a0%)" in said[0].where
        )
    assert {fact.careful for fact in headline(found).facts} == {bool(text)}


def test_the_best_accuracy_is_the_energys_with_the_baseline_beside_it():
    cells = cell("BiT", "energy", 0.54, 0.51, 0.57), cell("LM", "likelihood", 0.60, 0.58, 0.62)
    (fact,) = headline(StudyResults([grid(*cells)])).facts
    assert fact.now == "54.0\u00a0%"
    assert "log-likelihood 60.0\u00a0%" in fact.note


def test_without_a_grid_the_accuracy_in_training_warns():
    model = Result("energy_model", "m", "models/bit", {"provenance": {"accuracy": 0.52}})
    (said,) = warnings_of(StudyResults([model]))
    assert said.text == NEAR
    assert "models/bit (52.0\u00a0% in training)" in said.where
