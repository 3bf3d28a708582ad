"""How often negatives are likelier than real completions, counted by hand."""

import pytest

from evaluation.reporting import health
from evaluation.reporting.blocks import NOTHING
from evaluation.reporting.health import health_table, likelier_than_real
from evaluation.reporting.inputs import Result
from pipeline.stores.reader import Store


def by_hand(path: str, rows: int) -> tuple[float, int]:
    pairs = [
        (own > row["positive_log_p"])
        for place, row in enumerate(Store(path).rows(["positive_log_p", "log_p"]))
        if place < rows
        for own in row["log_p"]
    ]
    return sum(pairs) / len(pairs), len(pairs)


@pytest.mark.parametrize("rows", [20_000, 40, 1])
def test_every_negative_of_the_first_rows_counts_once(world, monkeypatch, rows):
    monkeypatch.setattr(health, "ROWS", rows)
    share, negatives = likelier_than_real(world.samples)
    assert (share, negatives) == (pytest.approx(by_hand(world.samples, rows)[0]), by_hand(world.samples, rows)[1])
    assert negatives > 0


def test_the_table_says_whether_the_generator_knew_the_text(world, tmp_path):
    stores = [
        Result("negatives", path, name, {"generator": generator})
        for path, name, generator in (
            (world.samples, "a", {"trained_on_this_text": True}),
            (world.samples, "b", {"trained_on_this_text": False}),
            (world.samples, "c", {"trained_on_this_text": None}),
            (str(tmp_path / "gone"), "d", None),
        )
    ]
    rows = health_table(stores).rows
    assert [row[3].text for row in rows] == ["yes", "no", "not known", "not known"]
    assert 0 < rows[0][1].value < 1
    assert [row[1].text == NOTHING for row in rows] == [False, False, False, True]
