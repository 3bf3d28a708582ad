"""Perplexities as they are read: pairs of bounds, never one number, and no more said than the bounds allow."""

import pytest

from evaluation.reporting.blocks import NOTHING, Fold, Gap, Picture, Table
from evaluation.reporting.inputs import StudyResults
from evaluation.reporting.perplexity import (
    LONG,
    between,
    bounds_section,
    corpus_of,
    difference,
    energy_of,
    folded_if_long,
    main_table,
    matches_section,
    paper_table,
    perplexity_section,
)
from evaluation.results.paper import PERPLEXITY
from tests.evaluation.reporting.conftest import apart


def texts_of(table: Table) -> list[list[str]]:
    return [[cell.text for cell in row] for row in table.rows]


def test_bounds_are_written_with_as_many_figures_as_they_need_to_differ():
    assert between({"lower": 14.6, "upper": 14.7}) == "14.600–14.700"
    assert between({"lower": 14.60001, "upper": 14.60009}) == "14.6000–14.6001"
    assert between({"lower": 5.0, "upper": 5.0}) == "5.0000000–5.0000000"  # and are both shown if they never do


@pytest.mark.parametrize(
    ("percent", "said"),
    [
        ((-20.0, -15.0, -21.0, -14.0), "lower: −20.0 to −15.0\u00a0% (−21.0 to −14.0\u00a0%), over 25 documents"),
        ((10.0, 20.0, 8.0, 22.0), "higher: +10.0 to +20.0\u00a0% (+8.0 to +22.0\u00a0%), over 25 documents"),
        ((-0.12, -0.12, -0.6, 0.4), "not distinguishable: −0.1\u00a0% (−0.6 to +0.4\u00a0%), over 25 documents"),
        ((-0.12, -0.12, None, None), "not distinguishable: −0.1\u00a0% (no interval), over 25 documents"),
        (
            (-0.03, 0.0, -0.6, 0.0),
            "not distinguishable: −0.03 to +0.00\u00a0% (−0.6 to +0.00\u00a0%), over 25 documents",
        ),
    ],
)
def test_a_difference_is_claimed_only_where_its_interval_is_on_one_side(bounds, percent, said):
    found = {"over": "documents", "count": 25, "base": apart(*percent)}
    assert difference(bounds(differences=found).content) == said


def test_models_and_corpora_without_names_are_called_what_they_are():
    assert corpus_of({"corpus": "books", "split": "test"}) == "books (test)"
    assert corpus_of({"corpus": None}) == "unnamed corpus"
    assert [energy_of({"energy": energy}) for energy in ({"preset": "p", "kind": "k"}, {"kind": "k"}, {})] == [
        *["p", "k", "energy model"]
    ]


def test_a_base_model_has_one_row_and_every_joint_model_its_own(bounds):
    others = {"models/balm/": 18.5}
    table = main_table([bounds(language_models=others), bounds("b", energy={"preset": "unit"}), bounds("c", samples=9)])
    assert [row[0] for row in texts_of(table)] == [
        "Base: transf-tiny",
        "Other: balm",
        "Joint: transf-tiny + bit-tiny",
        "Joint: transf-tiny + unit",
        "Joint: transf-tiny + bit-tiny",
    ]
    base, other, joint, *_ = table.rows
    assert [cell.value for cell in base[3:5]] == [20.0, 20.0]
    assert base[3].small == other[3].small == ("exact",)
    assert [cell.value for cell in joint[3:]] == [16.0, 17.0, 100, 40.25, 3.5, None]
    assert joint[4].small == ("asymptotic",)
    assert all(cell.text == NOTHING for cell in base[5:-1])
    assert base[-1].text == "−20.0 to −15.0\u00a0%"
    assert base[-1].small == ("−21.0 to −14.0\u00a0%", "lower")
    assert table.notes[-1].endswith("over 25 documents.")


def test_the_papers_numbers_stand_apart_as_points_or_ranges():
    rows = {row[0].text: [cell.text for cell in row[1:]] for row in paper_table().rows}
    assert rows.keys() == PERPLEXITY.keys()
    assert rows["Base LM"] == ["17.57", "18.29"]
    assert rows["Joint UniT"] == ["15.57–15.58", "16.98–17.00"]
    assert rows["Joint BiT-Base"] == ["14.61–14.64", NOTHING]


def test_without_results_the_command_is_named_and_the_paper_is_still_there(bounds):
    gap, table = perplexity_section(StudyResults()).blocks
    assert isinstance(gap, Gap)
    assert gap.commands[0].startswith("python evaluation/perplexity_bounds.py --negatives")
    assert isinstance(table, Table)
    kinds = [block.kind for block in perplexity_section(StudyResults([bounds()])).blocks]
    assert kinds == ["words", "table", "missing", "table"]  # no other language models
    kinds = [block.kind for block in perplexity_section(StudyResults([bounds(language_models={"m": 1.0})])).blocks]
    assert kinds == ["words", "table", "table"]


def test_the_curve_says_in_words_what_its_figure_shows(bounds):
    curve = [{"samples": 2, "lower": 12.0, "upper": 19.0}, {"samples": 1000, "lower": 16.0, "upper": 17.0}]
    heading, picture, table, gap = bounds_section(StudyResults([bounds(samples_curve=curve)])).blocks
    assert heading.text == "Samples: books (test), transf-tiny + bit-tiny (results/books)"
    assert isinstance(picture, Picture)
    assert "12.000–19.000 with 2 samples" in picture.alt
    assert "16.000–17.000 with 1,000; the base model's is 20.000." in picture.alt
    assert [[cell.value for cell in row] for row in table.rows] == [[2, 12.0, 19.0, 7.0], [1000, 16.0, 17.0, 1.0]]
    assert "--positions" in gap.commands[0]


def test_a_lower_bound_below_one_is_explained_where_it_stands(bounds):
    curve = [{"samples": 2, "lower": 0.9, "upper": 19.0}, {"samples": 1000, "lower": 16.0, "upper": 17.0}]
    _, _, table, _ = bounds_section(StudyResults([bounds(samples_curve=curve)])).blocks
    assert "No perplexity is below 1, but a lower bound on one can be" in table.notes[0]


def test_the_last_position_has_the_exact_sum_beside_the_estimates_or_names_its_command(bounds):
    positions = [{"position": place, "base": 4.0, "lower": 2.0, "upper": 3.0} for place in range(120, 140)]
    last = {"windows": 5, "base": 4.5, "exact": 2.5, "lower": 2.25, "upper": 2.75}
    _, _, picture, folded, exact = bounds_section(
        StudyResults([bounds(positions=positions, last_position=last)])
    ).blocks
    assert picture.alt.endswith("exactly 2.5000 at the last one.")
    assert isinstance(folded, Fold)  # twenty rows
    assert [cell.value for cell in exact.rows[0]] == [5, 4.5, 2.25, 2.5, 2.75]
    *_, gap = bounds_section(StudyResults([bounds(positions=positions)])).blocks
    assert gap.what == "No exact sum at the last position."


def test_long_tables_are_folded():
    short, long = (Table("t", ["a"], [[]] * rows) for rows in (LONG, LONG + 1))
    assert folded_if_long(short) == [short]
    (fold,) = folded_if_long(long)
    assert isinstance(fold, Fold)
    assert (fold.summary, list(fold.blocks)) == (f"t: {LONG + 1} rows", [long])


def test_correct_completions_have_the_oracle_beside_them(bounds):
    matches = {"base": 0.25, "joint": [{"samples": 10, "joint": 0.5, "oracle": 0.75}]}
    (table,) = matches_section(StudyResults([bounds(), bounds("m", matches=matches)])).blocks
    assert texts_of(table) == [
        ["Base model", NOTHING, "25.00\u00a0%", NOTHING],
        ["Joint model", "10", "50.00\u00a0%", "75.00\u00a0%"],
    ]
    (gap,) = matches_section(StudyResults([bounds()])).blocks
    assert gap.commands[0].endswith(" --matches")
