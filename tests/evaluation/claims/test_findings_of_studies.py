"""Every finding in three made-up studies: one in which it is seen, one in which it is not, one that cannot tell."""

import pytest

from evaluation.claims.decision import CANNOT_TELL, NOT_SEEN, SEEN, Finding
from evaluation.claims.detection import detection_findings
from evaluation.claims.generation import generation_findings
from evaluation.claims.stability import stability_findings
from evaluation.reporting.inputs import StudyResults
from tests.evaluation.claims import made_up
from tests.evaluation.claims.made_up import all_alike, mirrored, same, study

NARROW, WIDE = 0.0005, 0.4
GRIDS = ("linear-below-bilstm", "bilstm-below-unit", "networks-over-likelihood", "networks-over-tfidf")
GRIDS += ("linear-over-likelihood", "books-news-wiki")
CORPORA = ("unit-below-bit", "in-domain-over-cross-corpus", "unions-on-par", "unions-on-the-third")
CASES = {
    **{name: (made_up.in_domain(mirrored, NARROW), made_up.in_domain(same, WIDE)) for name in GRIDS},
    **{name: (made_up.cross_corpus(mirrored, NARROW), made_up.cross_corpus(same, WIDE)) for name in CORPORA},
    "cross-architecture-loss": (
        made_up.cross_architecture(same, NARROW, to_conv=70.0),
        made_up.cross_architecture(same, 0.06),
    ),
    "cross-architecture-asymmetry": (
        made_up.cross_architecture(same, NARROW, to_conv=60.0),
        made_up.cross_architecture(same, WIDE),
    ),
    "conv-easier": (made_up.cross_architecture(mirrored, NARROW), made_up.cross_architecture(all_alike, 0.01)),
    "longer-prefixes-harder": (
        made_up.prefix_length(mirrored, NARROW, [0, 140]),
        made_up.prefix_length(same, NARROW, [120]),
    ),
    "models-apart-with-length": (
        made_up.prefix_length(mirrored, NARROW, [0, 140]),
        made_up.prefix_length(same, 0.2, [0, 140]),
    ),
    "joint-below-base": (made_up.bounds(3, 0, 0, 0, 0, 0.5), made_up.bounds(-0.1, 0, 0, 0, 0, 0.5)),
    "joint-below-ralm": (made_up.bounds(0, 3, 0, 0, 0, 0.5), made_up.bounds(0, -0.1, 0, 0, 0, 0.5)),
    "joint-below-balm": (made_up.bounds(0, 0, 3, 0, 0, 0.5), made_up.bounds(0, 0, 0.8, 0, 0, 0.5)),
    "bounds-close": (made_up.bounds(0, 0, 0, 0.9, 0, 0.5), made_up.bounds(0, 0, 0, -0.1, 0, 0.5)),
    "last-position-exact": (made_up.bounds(0, 0, 0, 0, -4, 0.5), made_up.bounds(0, 0, 0, 0, 0.9, 0.5)),
    "joint-fools-a-third-detector": (made_up.third_detector(0.9, 0.1, 0.02), made_up.third_detector(0.501, 0.4, 0.02)),
    "joint-more-unique-ngrams": (made_up.ngrams(-0.01, 0.001), made_up.ngrams(0.001, 0.001)),
    "joint-densities-closer": (made_up.densities(-6, 20, 0.5), made_up.densities(-6, 5.5, 0.5)),
    "readers-prefer-joint": (made_up.human(0.4, 0.05), made_up.human(0.9, 0.05, scripted=True)),
    "perturbations-lower-energy": (
        made_up.perturbations(0.5, 0.1, 3.0, 0.01),
        made_up.perturbations(0.0, 0.0, 3.0, 0.01),
    ),
    "perturbations-raise-nll": (made_up.perturbations(0.5, 0.1, -3.0, 0.01), made_up.perturbations(0.5, 0.1, 0.1, 1.0)),
    "energy-sensitive-at-the-ends": (
        made_up.perturbations(-0.1, -0.5, 3.0, 0.01),
        made_up.perturbations(-0.5, -0.5, 3.0, 0.01),
    ),
    "random-text-lower-energy": (made_up.random_text(-1.5, 8.1, 0.02), made_up.random_text(0.0, -0.01, 0.02)),
    "gradient-turns-verdicts": (made_up.gradient_replacement(38, 0.5), made_up.gradient_replacement(0, 1.0)),
}


def decided(found: StudyResults) -> dict[str, Finding]:
    all_findings = [*detection_findings(found), *generation_findings(found), *stability_findings(found)]
    names = [one.claim.name for one in all_findings]
    assert len(names) == len(set(names))
    return {one.claim.name: one for one in all_findings}


def test_the_papers_own_numbers_show_all_of_its_findings():
    found = decided(made_up.papers_own())
    assert {name: one.reason for name, one in found.items() if one.verdict != SEEN} == {}
    assert found.keys() == CASES.keys()


def test_an_empty_study_tells_nothing_and_says_that_it_was_not_measured():
    for one in decided(study()).values():
        assert one.verdict == CANNOT_TELL
        assert one.reason.startswith("not measured: ")


@pytest.mark.parametrize("name", CASES)
def test_what_is_the_other_way_round_is_not_seen(name):
    assert decided(study(CASES[name][0]))[name].verdict == NOT_SEEN


@pytest.mark.parametrize("name", CASES)
def test_what_cannot_be_told_is_not_and_has_a_reason(name):
    found = decided(study(CASES[name][1]))[name]
    assert found.verdict == CANNOT_TELL
    assert found.reason
    assert not found.reason.startswith("not measured")


def test_reasons_name_what_is_wrong():
    reasons = {
        "joint-fools-a-third-detector": "the detector is at chance: 50.1%",
        "readers-prefer-joint": "only scripted raters",
        "longer-prefixes-harder": "trained on fewer than two of the tested lengths",
        "joint-below-base": "the interval includes both: base less joint, news (test), unit",
    }
    for name, said in reasons.items():
        assert said in decided(study(CASES[name][1]))[name].reason


def test_a_detector_that_chose_the_samples_is_no_evidence():
    result = made_up.third_detector(0.9, 0.4, 0.01)
    result.content["warnings"] = ["The detector is the energy model that chose the samples: it is no third one."]
    found = decided(study(result))["joint-fools-a-third-detector"]
    assert (found.verdict, found.reason) == (CANNOT_TELL, "the detector is the energy model that chose the samples")


def test_cells_that_are_warned_about_and_other_sampling_rules_do_not_count():
    result = made_up.in_domain(mirrored, NARROW)
    for cell in result.content["cells"]:
        cell["warnings"] = ["the test negatives are the training generator's own"]
    assert decided(study(result))["linear-below-bilstm"].reason.startswith("not measured")
    result = made_up.in_domain(mirrored, NARROW)
    for cell in result.content["cells"]:
        cell["tested"]["rules"] = ["top_k"]
    assert decided(study(result))["linear-below-bilstm"].reason.startswith("not measured")


def test_bounds_without_an_interval_tell_nothing():
    found = decided(study(made_up.bounds(-20, -20, -20, -1, 0, None)))
    assert "there is no interval" in found["joint-below-base"].reason
    assert found["bounds-close"].verdict == CANNOT_TELL


def test_a_missing_corpus_leaves_their_order_open():
    result = made_up.in_domain(same, NARROW)
    cells = result.content["cells"]
    cells[:] = [cell for cell in cells if cell["column"] != "CCNews"]
    assert decided(study(result))["books-news-wiki"].verdict == CANNOT_TELL


def test_corpora_are_known_by_their_names_where_the_grid_has_no_paper():
    result = made_up.in_domain(same, NARROW)
    for cell in result.content["cells"]:
        name = {"Books": "books", "CCNews": "news", "Wiki": "wikitext"}[cell.pop("paper_column")]
        cell["tested"] = made_up.origin([name])
    assert decided(study(result))["books-news-wiki"].verdict == SEEN
