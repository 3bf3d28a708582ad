"""Analyses, samples side by side, and readers' votes: what is shown of each, and what is named as lacking."""

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from evaluation.reporting.blocks import NOTHING, Fold, Gap, Paragraph, Picture, Sample
from evaluation.reporting.commands import analyses
from evaluation.reporting.inputs import Result, StudyResults, read_result
from evaluation.reporting.texts import (
    LINES,
    alt_of,
    analyses_section,
    examples_table,
    human_section,
    in_words,
    samples_section,
    table_of,
)

ROWS = [{"model": "base", "mean": -1.5, "contexts": 10}, {"model": "joint", "mean": 2.0, "extra": True}]


def analysis(name: str = "densities", **more: Any) -> Result:
    content = {"analysis": name, "title": "Densities", "rows": ROWS}
    return Result("analysis", "results/a", "a", content | more)


def test_columns_of_an_analysis_stand_in_the_order_in_which_they_first_appear():
    table = table_of("t", ROWS)
    assert table.columns == ["Model", "Mean", "Contexts", "Extra"]
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["base", "−1.5", "10", NOTHING],
        ["joint", "2", NOTHING, "yes"],
    ]


def test_heads_of_columns_are_words():
    assert [in_words(name) for name in ("standard_error", "auroc", "n")] == ["Standard error", "AUROC", "n"]


def test_examples_of_an_analysis_have_a_line_for_each_entry():
    replaced = [{"position": 13, "old": "\n", "new": "7"}] * (LINES + 2)
    examples = [{"window_id": "0123456789abcdef", "after": "8<3", "score": -1.5, "replaced": replaced}]
    table = examples_table("Examples", [*examples, {"replaced": []}])
    assert table.columns == ["Window id", "After", "Score", "Replaced: position · old · new"]
    name, after, score, lines = table.rows[0]
    assert [cell.text for cell in (name, after, score)] == ["0123456789ab", "8<3", "−1.5"]
    assert lines.text.split("\n") == ["13 · ↵ · 7"] * LINES
    assert lines.small == ("and 2 more",)
    assert table.rows[1][3].text == ""


def test_the_text_beside_a_figure_gives_the_range_of_every_number():
    assert alt_of({"title": "D", "rows": [ROWS[0], {"model": "joint", "mean": 2.0, "contexts": 10}]}) == (
        "D (base, joint): mean −1.5 to 2; contexts 10."
    )
    assert alt_of({"title": "D", "rows": [{"model": "base"}]}) == "D (base): no numbers."


def test_an_analysis_is_shown_with_its_figure_or_names_what_makes_one():
    svg = b'<svg width="600pt"></svg>'
    figure = Result("figure", "results/a", "a", {"svg": svg})
    heading, picture, table, fold, _ = analyses_section(StudyResults([analysis(examples=[{"a": 1}]), figure])).blocks
    assert heading.text == "Densities"
    assert isinstance(picture, Picture)
    assert picture.wide
    assert table.caption == "Densities (a)"
    assert isinstance(fold, Fold)
    assert fold.summary == "1 example"
    _, gap, *_ = analyses_section(StudyResults([analysis()])).blocks
    assert isinstance(gap, Gap)
    assert gap.commands == [analyses()["densities"]]


def test_analyses_that_are_not_there_are_named_each_with_its_command():
    known = analyses()
    *_, fold = analyses_section(StudyResults([analysis()])).blocks
    assert isinstance(fold, Fold)  # some are there: the others are no lack, but what more there is
    (gap,) = fold.blocks
    (bare,) = analyses_section(StudyResults([])).blocks
    assert list(bare.commands) == list(known.values())
    assert list(gap.commands) == [command for name, command in known.items() if name != "densities"]
    assert not any(
        isinstance(block, Gap) and block.what.startswith("No analyses")
        for block in analyses_section(StudyResults([analysis(name) for name in known])).blocks
    )


def samples(rows: list[dict[str, Any]], **settings: Any) -> Result:
    content = {"contexts": 1500, "rows": rows, "settings": settings}
    return Result("samples", "results/s", "results/s", content)


def test_completions_of_a_context_stand_side_by_side_with_their_energies():
    row = {"context_text": "Call me", "real_text": "Ishmael", "real_energy": -1.234, "chosen_text": "later"}
    found = samples([row | {"base_text": "", "base_energy": 0.5}], samples=1000, sampling="top_k", top_k=10)
    found.content["effective_samples"] = {"median": 12.0, "least": 1.5}
    _, words, sample, gap = samples_section(StudyResults([found])).blocks
    assert isinstance(words, Paragraph)
    assert words.text == (
        "1,500 contexts, 1,000 samples of each context (top_k 10), one of them chosen with probability softmax(−E). "
        "Effective samples: 12.0 (median), 1.5 (least)."
    )
    assert isinstance(sample, Sample)
    assert (sample.number, sample.context) == (1, "Call me")
    assert [(one.style, one.text, one.energy and one.energy.text) for one in sample.completions] == [
        ("real", "Ishmael", "−1.23"),
        ("base", "", "0.50"),  # an empty completion is one
        ("joint", "later", None),
    ]
    assert isinstance(gap, Gap)
    assert gap.what == "results/s has no texts of: base model, highest energy."


def test_how_samples_were_drawn_is_said_as_far_as_it_is_recorded():
    texts = {"context_text": "c", **{f"{name}_text": "x" for name in ("real", "base", "chosen", "worst")}}
    _, words, *rest = samples_section(StudyResults([samples([texts], autoregressive=True)])).blocks
    assert words.text == "1,500 contexts, samples (rule not recorded), token by token."
    assert [block.kind for block in rest] == ["sample"]
    (gap,) = samples_section(StudyResults()).blocks
    assert gap.commands[0].startswith("python evaluation/sample_joint.py")


def test_samples_of_a_language_model_alone_lack_nothing(tmp_path):
    row = {"context_text": "Call me", "real_text": "Ishmael", "base_text": "later"}
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "samples.parquet")
    found = read_result(f"{tmp_path}/samples.parquet", str(tmp_path))
    found.content["settings"] = {"samples": 1, "sampling": "top_k", "top_k": 10, "energy": None}
    _, words, sample = samples_section(StudyResults([found])).blocks
    assert words.text == "1 context, 1 sample of each context (top_k 10), the language model alone."
    assert [(one.style, one.text) for one in sample.completions] == [("real", "Ishmael"), ("base", "later")]


def test_rows_of_human_studies_are_lists_or_objects():
    rows = [["joint, base", 0.625], {"Pair": "real, joint"}, ["short"]]
    study = {"title": "Readers", "columns": ["Pair", "Share"], "rows": rows}
    for notes in ("3 failed the checks", ["3 failed the checks"]):
        (table,) = human_section(StudyResults([Result("human", "h", "h", study | {"notes": notes})])).blocks
        assert table.caption == "Readers (h)"
        assert [[cell.text for cell in row] for row in table.rows] == [
            ["joint, base", "0.625"],
            ["real, joint", NOTHING],
            ["short", NOTHING],
        ]
        assert table.notes == ["3 failed the checks"]
    (gap,) = human_section(StudyResults()).blocks
    assert isinstance(gap, Gap)
