"""The finding in numbers: which results it is taken from, and how a line is drawn of them."""

import pytest

from evaluation.reporting.headline import MOST, accuracy_fact, best_of_each_corpus, headline, line_of
from evaluation.reporting.inputs import Result, StudyResults


def test_of_each_corpus_the_lowest_upper_bound_counts_and_results_by_position_last(bounds):
    worse = bounds("worse", joint_perplexity={"lower": 1.0, "upper": 18.0})
    better = bounds("better")
    mixed = bounds("mixed", joint_perplexity={"lower": 1.0, "upper": 2.0}, positions=[{}])
    news = bounds("news", corpus="news", positions=[{}])
    assert [result.name for result in best_of_each_corpus([news, worse, mixed, better])] == ["news", "better"]


def test_the_sentence_and_the_first_fact_say_both_bounds(bounds):
    found = headline(StudyResults([bounds(warnings=["heavy tails"]), bounds("n", corpus="news")]))
    assert found.sentence == (
        "On books (test), the language model transf-tiny has a perplexity of 20.000; joined with the energy model "
        "bit-tiny, 16.000–17.000: lower: −20.0 to −15.0\u00a0% (−21.0 to −14.0\u00a0%), over 25 documents. "
        "Below: all 2 corpora."
    )
    first, second = found.facts
    assert (first.label, first.before, first.now) == ("Perplexity, books (test)", "20.000", "16.000–17.000")
    assert first.note == (
        "lower: −20.0 to −15.0\u00a0% (−21.0 to −14.0\u00a0%), over 25 documents; 2,000 completions, 100 samples each"
    )
    assert (first.careful, second.careful) == (True, False)
    assert [line.label for line in found.lines] == ["books (test)", "news (test)"]


def test_without_results_it_says_so():
    found = headline(StudyResults())
    assert (found.facts, found.lines) == ([], [])
    assert found.sentence == "No perplexities have been measured in these folders yet."


def test_no_more_corpora_are_drawn_than_fit(bounds):
    found = headline(StudyResults([bounds(f"r{number}", corpus=f"c{number}") for number in range(MOST + 2)]))
    assert len(found.facts) == len(found.lines) == MOST


def test_correct_completions_are_those_of_the_most_samples(bounds):
    points = [{"samples": n, "joint": share, "oracle": 0.99} for n, share in ((10, 0.7), (1000, 0.875))]
    *_, fact = headline(StudyResults([bounds(matches={"base": 0.25, "joint": points})])).facts
    assert (fact.before, fact.now) == ("25.0\u00a0%", "87.5\u00a0%")
    assert fact.note == "with 1,000 samples; a correct one is among them for 99.0\u00a0%"
    assert len(headline(StudyResults([bounds(matches={"base": 0.25, "joint": []})])).facts) == 1


CELL = {"row": "BiT", "column": "books", "setting": "in-domain", "low": 0.7, "high": 0.9}


def grid(*cells: dict) -> Result:
    return Result("grid", "g", "g", {"cells": [CELL | cell for cell in cells]})


DETECTION = Result(
    "detection",
    "d",
    "d",
    {"accuracy": [{"detector": "energy", "generated": "texts/small.jsonl", "balanced_accuracy": 0.75}]},
)
MODELS = [
    Result("energy_model", name, name, {"provenance": provenance})
    for name, provenance in (("models/a", {"accuracy": 0.6}), ("models/b", {"accuracy": 0.7}), ("models/c", None))
]


def test_the_best_accuracy_is_of_a_cell_that_nothing_speaks_against():
    suspect = {"accuracy": 0.99, "warnings": ["the training generator's own"]}
    (fact,) = accuracy_fact(StudyResults([grid(suspect, {"accuracy": 0.8}, {"problem": "lost"}), DETECTION, *MODELS]))
    assert (fact.now, fact.careful) == ("80.0\u00a0%", False)
    assert fact.note == "BiT on books, in-domain; 70.0 to 90.0\u00a0%"
    (fact,) = accuracy_fact(StudyResults([grid(suspect)]))
    assert (fact.now, fact.careful) == ("99.0\u00a0%", True)


def test_where_there_is_no_grid_whole_texts_and_then_training_stand_for_it():
    (fact,) = accuracy_fact(StudyResults([DETECTION, *MODELS]))
    assert (fact.label, fact.now, fact.note) == (
        *("Best accuracy on whole texts", "75.0\u00a0%"),
        "energy on small.jsonl",
    )
    (fact,) = accuracy_fact(StudyResults(MODELS))
    assert (fact.now, fact.note) == ("70.0\u00a0%", "models/b, on its own validation negatives: no test")
    assert accuracy_fact(StudyResults(MODELS[2:])) == []


def test_a_line_holds_all_models_in_proportion(bounds):
    line = line_of(bounds(language_models={"models/balm/": 18.0}).content)
    other, base, joint = line.spans
    assert (other.name, base.name, joint.name) == ("balm 18.000", "base 20.000", "joint 16.000–17.000")
    assert 0 < joint.start < joint.end < other.start == other.end < base.start == base.end < 1
    assert (base.start - joint.end) / (joint.end - joint.start) == pytest.approx(3, rel=1e-3)
    assert line.alt == "Perplexity on books (test): balm 18.000, base 20.000, joint 16.000–17.000."


def test_a_line_of_equal_models_has_a_length():
    content = {"base_perplexity": 4.0, "joint_perplexity": {"lower": 4.0, "upper": 4.0}}
    assert [(span.start, span.end) for span in line_of(content).spans] == [(0.5, 0.5)] * 2
