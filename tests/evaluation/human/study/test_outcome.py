"""Rates and agreement where they are known."""

import pytest

from evaluation.human.study.outcome import Preference, Tally, agreement, rate, tallies


def test_ties_and_items_without_votes():
    known = [Tally(1, 2), Tally(0, 1), Tally(1, 1), Tally(2, 0)]
    assert rate(known, "<").rate == 0.5
    assert rate(known, "≤").rate == 0.75
    assert rate([], "<") is None
    votes = [Preference("r", "one", True), Preference("r", "two", True, counts=False)]
    assert tallies(votes) == {"one": Tally(0, 1)}


def test_agreement_where_it_is_known():
    def votes(*rows: str) -> list[Preference]:
        return [
            Preference(f"r{rater}", f"i{item}", mark == "2")
            for rater, row in enumerate(rows)
            for item, mark in enumerate(row)
            if mark != "."
        ]

    assert agreement(votes("1212", "1212", "12.2")) == pytest.approx(1.0)
    # Two raters, four items, one disagreement: D_o = 2/8, D_e = 2·3·5/(8·7).
    assert agreement(votes("1122", "1222")) == pytest.approx(1 - (2 / 8) / (2 * 3 * 5 / (8 * 7)))
    assert agreement(votes("1...", "..2.")) is None
    assert agreement(votes("1111", "1111")) is None
    assert agreement([]) is None
