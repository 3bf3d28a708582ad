"""The table of the paper's findings on the page."""

from evaluation.reporting.findings import findings_section, in_numbers
from evaluation.reporting.inputs import Result, StudyResults


def part(value: float, low: float, high: float, unit: str = "points", line: float = 0.0) -> dict:
    numbers = {"value": value, "low": low, "high": high, "unit": unit, "line": line}
    return {"what": "a less b", "over": "paired windows", "verdict": "seen"} | numbers


def test_numbers_have_signs_units_and_their_line():
    assert in_numbers(part(0.032, 0.011, 0.053)) == "+3.2 points (+1.1 to +5.3)"
    assert in_numbers(part(-0.013, -0.02, 0.0, line=-0.02)) == "−1.3 points (−2.0 to +0.0), must be above −2.0"
    assert in_numbers(part(0.59, 0.54, 0.64, "share", 0.5)) == "+59.0 % (+54.0 to +64.0), must be above +50.0"
    assert in_numbers(part(20.3, 19.0, 21.6, "percent")) == "+20.3 % (+19.0 to +21.6)"
    assert in_numbers(part(2.387, 2.29, 2.48, "nats")) == "+2.39 (+2.29 to +2.48)"
    assert in_numbers(part(0.0012, 0.0010, 0.0014, "nats")) == "+0.0012 (+0.001 to +0.0014)"


def test_what_was_measured_has_a_row_and_the_rest_its_reason():
    common = {"where": "a table", "paper": "1 and 2"}
    seen = {"name": "s", "claim": "it is seen", "verdict": "seen", "reason": None, "parts": [part(0.1, 0.05, 0.15)] * 5}
    open_ = {"name": "o", "claim": "it is open", "verdict": "cannot tell", "reason": "not measured: it", "parts": []}
    result = Result("findings", "f", "f", {"findings": [seen | common, open_ | common]})
    _, table, fold, others = findings_section(StudyResults([result])).blocks
    assert [row[-1].text for row in table.rows] == ["seen"]
    assert table.rows[0][2].text.endswith("and 2 more")
    assert table.notes == ["1 seen, 1 not measured in this study."]
    assert fold.summary == "All 5 differences"
    assert others.summary == "Not measured here: 1 of the findings"
    assert [cell.text for cell in others.blocks[0].rows[0]] == ["it is open", "not measured: it"]


def test_without_a_table_its_command_is_named():
    (gap,) = findings_section(StudyResults()).blocks
    assert gap.commands == ["python evaluation/findings.py --input mini --output results/findings"]
