"""What results say against themselves, gathered."""

from typing import Any

from evaluation.reporting.inputs import Result, StudyResults
from evaluation.reporting.warnings import CAREFUL, PROBLEM, warnings_of


def bounds(name: str, least: float, warnings: list[str]) -> Result:
    content: dict[str, Any] = {"effective_samples": {"median": 50.0, "least": least}, "samples": 100}
    content["differences"] = {"over": "documents", "count": 9}
    return Result("bounds", name, name, content | {"warnings": warnings})


def test_problems_come_first_and_the_same_sentence_once():
    grid = {"cells": [{"row": "r", "column": "c", "problem": "lost"}, {"row": "r", "column": "d", "warnings": ["w"]}]}
    found = StudyResults(
        [bounds("one", 2.0, ["heavy"]), bounds("two", 2.0, ["heavy"]), Result("grid", "g", "g", grid)], ["x: broken"]
    )
    made = warnings_of(found)
    assert [(one.kind, one.text) for one in made] == [
        (PROBLEM, "x: broken"),
        (PROBLEM, "lost"),
        (CAREFUL, "w"),
        (CAREFUL, "heavy"),
    ]
    assert made[-1].where == "Bounds and joint samples: one, two"


def test_few_effective_samples_are_doubted_where_the_job_said_nothing():
    (made,) = warnings_of(StudyResults([bounds("old", 2.0, [])]))
    assert made.text.startswith("100 samples of a context are worth as few as 2.0")
    assert "About 520 of each would do: pipeline/mine_negatives.py --negatives 520" in made.text
    assert warnings_of(StudyResults([bounds("fine", 40.0, [])])) == []


def test_samples_too_few_for_bounds_and_for_joint_samples_are_said_once():
    few = bounds("bit", 2.0, ["too few"])
    few.content["energy"] = {"digest": "e" * 64}
    settings = {"samples": 100, "energy": "e" * 64}
    chosen = Result("samples", "news", "news", {"effective_samples": {"median": 3.0}, "settings": settings})
    (made,) = warnings_of(StudyResults([few, chosen]))
    assert (made.where, made.text) == ("Bounds and joint samples: bit, news", "too few")
    (alone,) = warnings_of(StudyResults([chosen]))
    assert "more --samples" in alone.text
