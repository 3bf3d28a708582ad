"""How numbers and texts are written on a page."""

import pytest

from evaluation.reporting.blocks import (
    NOTHING,
    Table,
    anything,
    count,
    decimal,
    in_interval,
    in_percent,
    in_perplexity,
    listed,
    percent,
    times,
    visible,
    words,
)


@pytest.mark.parametrize(
    ("number", "text"), [(3.14159265, "3.1416"), (31.4159265, "31.416"), (1234.56, "1,234.6"), (-2.5, "−2.5000")]
)
def test_perplexities_have_about_five_figures(number, text):
    assert in_perplexity(number) == text


def test_shares_intervals_and_counts():
    assert in_percent(0.1234) == "12.3\u00a0%"
    assert in_interval(0.901, 0.924) == "90.1 to 92.4\u00a0%"
    assert in_interval(0.9011, 0.9014) == "90.1\u00a0%"
    assert (count(1234).text, count(1234).value) == ("1,234", 1234)
    assert decimal(-0.04).text == "0.0"
    assert [cell.text for cell in (percent(None), count(None), words(""))] == [NOTHING] * 3
    assert (times(1, "context"), times(2000, "context")) == ("1 context", "2,000 contexts")
    assert listed(["a", "b", "a", "c"], most=2) == "a, b and 1 more"


def test_values_of_any_kind_have_a_cell():
    assert anything(True).text == "yes"
    assert anything(-1234567).text == "−1,234,567"
    assert anything(0.000123456).text == "0.0001235"
    assert anything({"a": 1, "b": [2, 3]}).text == "a 1, b 2; 3"
    assert anything(None).text == NOTHING


def test_what_a_page_cannot_show_is_a_picture_of_itself():
    assert visible("a\nb\tc") == "a\nb\tc"
    assert visible("\x00\x7f\x85") == "␀␡\\x85"
    assert visible("\ud800") == "?"


def test_a_column_is_numeric_where_a_number_stands_in_it():
    table = Table("t", ["a", "b"], [[words("x"), count(None)], [words("y"), count(3)]])
    assert table.numeric == [False, True]
    assert not table.shaded
