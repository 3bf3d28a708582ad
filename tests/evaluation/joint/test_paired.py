"""Paired intervals: how often they hold a known truth, and what two other ways of computing them say."""

from types import SimpleNamespace

import numpy as np
import pytest

from evaluation.joint.paired import (
    HIGHER,
    LOWER,
    UNCERTAIN,
    difference,
    direction,
    in_words,
    mean_per_token,
    units_of,
)
from pipeline import make_windows
from pipeline.stores.reader import Store
from pipeline.text.tokenizer import character_tokenizer

MEAN = -0.02  # per token


def corpus(rng: np.random.Generator, documents: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Windows of documents of very different lengths, each document with a tendency of its own."""
    lengths = np.minimum(rng.geometric(0.08, documents), 60)
    units = np.repeat(np.arange(documents), lengths)
    tokens = rng.choice([20, 40], len(units))
    own = rng.normal(0, 0.05, documents)[units]
    return tokens * (MEAN + own) + rng.normal(0, 1, len(units)), tokens, units


@pytest.mark.parametrize("documents", [8, 25, 200])
def test_the_interval_holds_the_truth_as_often_as_it_says(documents):
    rng = np.random.default_rng(documents)
    held = []
    for _ in range(1500):
        found = mean_per_token(*corpus(rng, documents))
        held.append(found.low <= MEAN <= found.high)
    assert np.mean(held) == pytest.approx(0.95, abs=0.02)


def test_windows_that_are_taken_for_independent_promise_too_much():
    """Which is what clusters are for: the same corpora, every window a document of its own."""
    rng = np.random.default_rng(1)
    held = []
    for _ in range(300):
        values, tokens, units = corpus(rng, 25)
        found = mean_per_token(values, tokens, np.arange(len(units)))
        held.append(found.low <= MEAN <= found.high)
    assert np.mean(held) < 0.85


def test_a_bootstrap_over_documents_and_a_linear_expansion_have_the_same_error():
    rng = np.random.default_rng(2)
    values, tokens, units = corpus(rng, 400)
    sums, lengths = (np.bincount(units, column) for column in (values, tokens))
    drawn = rng.integers(400, size=(4000, 400))
    bootstrap = (sums[drawn].sum(1) / lengths[drawn].sum(1)).std()
    mean = values.sum() / tokens.sum()
    linear = np.sqrt(np.square(sums - mean * lengths).sum()) / tokens.sum()
    found = mean_per_token(values, tokens, units)
    assert found.mean == pytest.approx(mean)
    assert (found.high - found.low) / 2 / 1.966 == pytest.approx(bootstrap, rel=0.05)
    assert (found.high - found.low) / 2 / 1.966 == pytest.approx(linear, rel=0.03)


def test_of_documents_of_one_length_it_is_students_interval():
    values = np.array([1.0, 2.0, 4.0, 3.0])
    found = mean_per_token(values, np.full(4, 10), np.arange(4))
    half = 3.182446 * values.std(ddof=1) / 2 / 10
    assert (found.mean, found.low, found.high) == pytest.approx((0.25, 0.25 - half, 0.25 + half))


def test_the_interval_covers_both_bounds():
    rng = np.random.default_rng(3)
    lower, tokens, units = corpus(rng, 30)
    upper = lower + rng.exponential(2, len(lower))
    found = difference(lower, upper, tokens, units)["log_ratio"]
    ends = [mean_per_token(values, tokens, units) for values in (lower, upper)]
    assert (found["lower"], found["upper"]) == (ends[0].mean, ends[1].mean)
    assert (found["low"], found["high"]) == (ends[0].low, ends[1].high)
    percent = difference(lower, upper, tokens, units)["percent"]
    assert percent["high"] == pytest.approx(100 * (np.exp(found["high"]) - 1))


def test_one_document_has_no_interval_and_tells_nothing():
    found = difference([-5.0, -5.0], [-5.0, -5.0], [10, 10], [0, 0])
    assert found["percent"]["low"] is found["percent"]["high"] is None
    assert direction(found) == UNCERTAIN
    words = in_words(found, {"over": "documents", "count": 1})
    assert words == "not distinguishable: -39.3 % (no interval), over 1 document"


@pytest.mark.parametrize(("ends", "said"), [((-4, -1), LOWER), ((-0.6, 0.4), UNCERTAIN), ((0.1, 2), HIGHER)])
def test_only_an_interval_on_one_side_is_a_difference(ends, said):
    percent = {"lower": sum(ends) / 2, "upper": sum(ends) / 2, "low": ends[0], "high": ends[1]}
    assert direction({"percent": percent}) == said
    words = in_words({"percent": percent}, {"over": "documents", "count": 25})
    assert words.startswith(f"{said}: {sum(ends) / 2:+.1f} % ({ends[0]:+.1f} to {ends[1]:+.1f} %), over 25")


@pytest.fixture
def samples(tmp_path) -> Store:
    """Samples of windows of three documents."""
    (tmp_path / "texts.jsonl").write_text("".join(f'{{"text": "{text * 5}"}}\n' for text in ("abcd", "ccda", "bbad")))
    character_tokenizer("abcd").save(str(tmp_path / "tokenizer"))
    make_windows.main(
        f"--input {tmp_path}/texts.jsonl --corpus letters --split test --tokenizer {tmp_path}/tokenizer --window 5 "
        f"--stride 5 --output {tmp_path}/windows".split()
    )
    windows = Store(f"{tmp_path}/windows")
    parent = {"path": windows.path, "digest": windows.manifest.digest}
    return SimpleNamespace(path="samples", manifest=SimpleNamespace(parent=parent, directory=str(tmp_path)))


def names_of(samples: Store) -> list[str]:
    return [row["window_id"] for row in Store(samples.manifest.parent["path"]).rows(["window_id"])]


def test_documents_come_from_the_windows_store_if_it_is_the_one(samples, tmp_path):
    names = names_of(samples)
    found = units_of(samples, names * 2)
    assert (found.over, found.count, found.reason) == ("documents", 3, None)
    assert len(found.numbers) == 2 * len(names)
    strange = units_of(samples, [*names, "another"])
    assert (strange.over, strange.count) == ("windows", len(names) + 1)
    assert "window 'another' is not in the windows store" in strange.reason
    samples.manifest.parent["digest"] = "0" * 64
    other = units_of(samples, names)
    assert (other.over, other.count) == ("windows", len(names))
    assert "is not the store that" in other.reason
    samples.manifest.parent["path"] = str(tmp_path / "nowhere")
    assert units_of(samples, names).over == "windows"
    samples.manifest.parent = None
    assert "names no windows store" in units_of(samples, names).reason


def test_a_relative_path_is_found_from_where_the_mining_ran(samples):
    names = names_of(samples)
    samples.manifest.parent["path"] = "windows"
    assert units_of(samples, names).over == "documents"


def test_windows_of_one_document_count_by_themselves_and_it_is_said(world):
    names = [row["window_id"] for row in Store(f"{world.folder}/windows").rows(["window_id"])]
    found = units_of(Store(world.samples), names * 2)
    assert (found.over, found.count) == ("windows", len(names))
    assert "all windows are of one document" in found.reason
