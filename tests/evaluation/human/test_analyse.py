"""The numbers: those of SciPy and of enumeration, on studies whose raters are made."""

import json
import random
from collections import defaultdict

import jsonschema
import pyarrow.parquet as pq
import pytest
from scipy.stats import binom, binomtest

from evaluation.human import analyse
from evaluation.human.site.assignment import page_for
from evaluation.human.site.ballots import receive, start
from pipeline.runtime.errors import UserError
from schemas.results import HUMAN
from tests.evaluation.human.conftest import Prepared


def simulate(study: Prepared, number: int, rng: random.Random, careless: float, prefers_2: float) -> None:
    """A rater who is careless in this share of pages, and prefers model 2 in that share of items."""
    start(study.study, study.rater(number))
    while (page := page_for(study.study, study.rater(number), 0.0)) is not None:
        attentive = rng.random() >= careless

        def better(_: int, sources: tuple[str, str], attentive: bool = attentive) -> str:
            if not attentive:
                return rng.choice(sources)
            return "gold" if "gold" in sources else "model2" if rng.random() < prefers_2 else "model1"

        receive(study.study, study.rater(number), page.id, study.choices(page.id, better), 1.0)


def test_rates_and_p_values_are_those_of_a_direct_computation(prepared, tmp_path):
    study = prepared("--items 90 --qualification_items 0 --raters 6 --checks 20", contexts=120)
    rng = random.Random(1)
    for number in range(6):
        simulate(study, number, rng, careless=0.4 if number % 2 else 0.0, prefers_2=0.65)
    assert analyse.main(["--study", str(study.path), "--output", str(tmp_path / "out")]) == 0
    content = json.loads((tmp_path / "out/human.json").read_text())

    # From the votes alone, with nothing of ours: drop, count, compare.
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    dropped = 0
    for vote in pq.read_table(tmp_path / "out/votes.parquet").to_pylist():
        if vote["check_passed"]:
            counts[vote["window_id"]][vote["preferred"] == "model2"] += 1
        else:
            dropped += 1
    less = sum(one < two for one, two in counts.values())
    not_more = sum(one <= two for one, two in counts.values())
    (found,) = content["studies"]
    assert dropped > 0
    assert not_more > less  # there are ties
    assert (found["votes"], found["dropped"]) == (270, dropped)
    for of, wins in zip(found["rates"], (less, not_more), strict=True):
        test = binomtest(wins, len(counts), 0.5, alternative="greater")
        assert of["wins"] == wins
        assert of["rate"] == pytest.approx(wins / len(counts))
        assert of["p_value"] == pytest.approx(test.pvalue, rel=1e-12)
        assert of["p_value"] == pytest.approx(binom.sf(wins - 1, len(counts), 0.5), rel=1e-9)
        assert of["low"] < of["rate"] < of["high"] < 1
    items = {row["window_id"]: row for row in pq.read_table(tmp_path / "out/items.parquet").to_pylist()}
    assert len(items) == 90
    for name, (one, two) in counts.items():
        assert (items[name]["votes_model1"], items[name]["votes_model2"]) == (one, two)
    assert content["columns"][:3] == ["Model 1", "Relation", "Model 2"]
    assert [row[:4] for row in content["rows"]] == [
        ["base LM", "<", "joint", f"{less / len(counts):.2%}"],
        ["base LM", "≤", "joint", f"{not_more / len(counts):.2%}"],
    ]


def test_the_report_can_show_it(prepared, tmp_path):
    study = prepared("--qualification_items 0")
    simulate(study, 0, random.Random(0), 0.0, 0.5)
    analyse.main(["--study", str(study.path), "--output", str(tmp_path / "out")])
    jsonschema.validate(json.loads((tmp_path / "out/human.json").read_text()), HUMAN)


def test_a_known_preference_is_recovered(prepared, tmp_path):
    study = prepared("--items 240 --votes 3 --qualification_items 0 --raters 3 --checks 80", contexts=330)
    rng = random.Random(7)
    for number in range(3):
        simulate(study, number, rng, careless=0.0, prefers_2=0.6)
    analyse.main(["--study", str(study.path), "--output", str(tmp_path / "out")])
    (found,) = json.loads((tmp_path / "out/human.json").read_text())["studies"]
    majority = binom.sf(1, 3, 0.6)  # two or three of three
    assert binomtest(found["rates"][0]["wins"], 240, majority).pvalue > 0.01
    assert found["rates"][0]["low"] < majority < found["rates"][0]["high"]
    assert found["rates"][0]["p_value"] < 0.001
    assert abs(found["alpha"] - (1 - 0.48 / 0.48)) < 0.1  # votes are independent, so agreement is chance's


def test_random_raters_are_dropped_as_often_as_theory_says(prepared):
    study = prepared("--items 90 --votes 12 --qualification_items 0 --raters 12", contexts=130)
    rng = random.Random(3)
    for number in range(12):
        simulate(study, number, rng, careless=1.0, prefers_2=0.5)
    pages, failed = study.study.reader.execute("SELECT count(*), sum(passed = 0) FROM page").fetchone()
    assert pages == 12 * 30
    assert binomtest(failed, pages, 0.5).pvalue > 0.01
    dropped = study.one("SELECT count(*) FROM slot JOIN page ON page.id = page WHERE slot.kind = 'item' AND passed = 0")
    assert dropped == 3 * failed


def test_random_raters_qualify_as_often_as_theory_says(prepared):
    study = prepared("--items 3 --votes 1 --qualification_items 12 --raters 100")
    rng = random.Random(5)
    with study.study.writing() as connection:
        connection.execute("UPDATE comparison SET free = 0")  # the qualification is all that there is
    for number in range(100):
        simulate(study, number, rng, careless=1.0, prefers_2=0.5)
    passed = study.one("SELECT count(*) FROM rater WHERE state = 'rating'")
    assert study.one("SELECT count(*) FROM rater WHERE state = 'declined'") == 100 - passed
    assert binomtest(passed, 100, binom.sf(8, 12, 0.5)).pvalue > 0.01  # nine or more of twelve


def test_a_study_without_votes_is_named(prepared, tmp_path):
    study = prepared()
    with pytest.raises(UserError, match="no votes that count yet"):
        analyse.main(["--study", str(study.path), "--output", str(tmp_path / "out")])
