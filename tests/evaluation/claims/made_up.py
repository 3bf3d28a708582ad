"""Made-up results of whole studies: the paper's own numbers, and what can be done to them."""

from collections.abc import Callable
from typing import Any

from evaluation.reporting.inputs import Result, StudyResults
from evaluation.results.paper import ACCURACY, DENSITIES, FALSE_POSITIVES

KINDS = {"Linear": "linear", "BiLSTMsmall": "bilstm", "BiLSTMbig": "bilstm", "UniT": "unit", "ALL (BiT)": "bit"}
CORPORA = ("Books", "CCNews", "Wiki")
Change = Callable[[float], float]


def cell(grid: str, row: str, column: str, accuracy: float, half: float, **more: Any) -> dict[str, Any]:
    numbers = {"accuracy": accuracy, "low": accuracy - half, "high": accuracy + half}
    made = {"row": row, "column": column, "paper_row": row, "paper_column": column, "warnings": []}
    return made | numbers | {"rule": {"sign": 1, "threshold": 0.0}} | more


def origin(corpora: list[str], generator: str = "transf-big") -> dict[str, Any]:
    return {"corpora": corpora, "architectures": [generator], "rules": ["temperature"]}


def grid(name: str, cells: list[dict[str, Any]]) -> Result:
    return Result("grid", name, name, {"title": name, "rows": [], "columns": [], "cells": cells})


def in_domain(change: Change, half: float) -> Result:
    rows = ACCURACY["in_domain"] | {"TF-IDF": dict.fromkeys(CORPORA, 55.0)}
    cells = []
    for row, known in rows.items():
        role = "likelihood" if "likelihood" in row else "tfidf" if row == "TF-IDF" else "energy"
        model = {"role": role} | ({"kind": KINDS[row]} if role == "energy" else {})
        for column, value in known.items():
            more = {"model": model, "setting": "in-domain", "trained": origin([column]), "tested": origin([column])}
            cells.append(cell("in_domain", row, column, change(value / 100), half, **more))
    return grid("in_domain", cells)


def cross_architecture(change: Change, half: float, to_conv: float | None = None) -> Result:
    presets, cells = {"Conv": "conv", "TransfSmall": "transf-small"}, []
    for row, known in ACCURACY["cross_architecture"].items():
        for column, value in known.items():
            if to_conv is not None and (row, column) == ("TransfSmall", "Conv"):
                value = to_conv
            more: dict[str, Any] = {"model": {"role": "energy", "kind": "unit"}}
            more |= {"setting": "in-domain" if row == column else "cross-architecture"}
            more |= {"trained": origin(["Wiki"], presets[row]), "tested": origin(["Wiki"], presets[column])}
            cells.append(cell("cross_architecture", row, column, change(value / 100), half, **more))
    return grid("cross_architecture", cells)


def cross_corpus(change: Change, half: float) -> Result:
    cells = []
    for row, known in ACCURACY["cross_corpus"].items():
        corpora = list(CORPORA) if row.startswith("ALL") else row.split(" + ")
        for column, value in known.items():
            more = {"model": {"role": "energy", "kind": KINDS.get(row, "unit")}}
            more |= {"setting": "in-domain" if column in corpora else "cross-corpus"}
            more |= {"trained": origin(corpora), "tested": origin([column])}
            cells.append(cell("cross_corpus", row, column, change(value / 100), half, **more))
    return grid("cross_corpus", cells)


def prefix_length(change: Change, half: float, trained: list[int] | None) -> Result:
    values = {"bilstm-small": {0: 0.95, 140: 0.70}, "unit": {0: 0.97, 140: 0.80}}
    rows = [
        {"energy": label, "context_length": length, "accuracy": change(own), "low": change(own) - half}
        | {"high": change(own) + half}
        for label, known in values.items()
        for length, own in known.items()
    ]
    settings = {"trained_lengths": dict.fromkeys(values, trained)}
    return analysis("prefix_length", rows, settings=settings)


def analysis(name: str, rows: list[dict[str, Any]], **more: Any) -> Result:
    return Result("analysis", f"nowhere/{name}", name, {"analysis": name, "title": name, "rows": rows} | more)


def percents(middle: float, half: float | None) -> dict[str, Any]:
    ends = {"low": None, "high": None} if half is None else {"low": middle - half, "high": middle + half}
    return {"percent": {"lower": middle, "upper": middle} | ends}


def bounds(base: float, ralm: float, balm: float, closing: float, last: float, half: float | None) -> Result:
    change = {"mean": closing, "low": None, "high": None}
    if half is not None:
        change |= {"low": closing - half, "high": closing + half}
    others = {"m/r": percents(ralm, half) | {"preset": "ralm"}, "m/b": percents(balm, half) | {"preset": "balm-24l"}}
    content = {
        "corpus": "news",
        "split": "test",
        "energy": {"preset": "unit"},
        "differences": {
            "over": "documents",
            "count": 25,
            "base": percents(base, half),
            "language_models": others,
        },
        "closing": {"from": 10, "to": 100, "apart": [1.0, 0.1], "change": change},
        "last_position": {"windows": 50, "difference": percents(last, half)},
    }
    return Result("bounds", "b", "b", content)


def third_detector(accuracy: float, joint: float, half: float) -> Result:
    base = FALSE_POSITIVES["Base LM"] / 100
    own = {"text": "base", "called_real": base, "accuracy": accuracy}
    own |= {"accuracy_low": accuracy - 0.01, "accuracy_high": accuracy + 0.01}
    apart = {"text": "joint - base", "called_real": joint - base, "windows": 300}
    return analysis("third_detector", [own, apart | {"low": joint - base - half, "high": joint - base + half}])


def ngrams(difference: float, error: float) -> Result:
    rows = [
        {"text": "joint - base", "n": n, "unique": difference, "standard_error": error, "completions": 300}
        for n in (2, 3, 4)
    ]
    return analysis("ngrams", rows)


def densities(base: float, joint: float, error: float) -> Result:
    rows = [
        {"model": model, "expected_difference": gap, "expected_difference_error": error}
        for model, gap in (("base", base), ("joint", joint))
    ]
    return analysis("densities", rows)


def human(rate: float, half: float, scripted: bool = False) -> Result:
    rates = [{"relation": "<", "rate": rate, "low": rate - half, "high": rate + half, "items": 333}]
    study = {"model1": "base", "model2": "chosen", "rates": rates}
    return Result(
        "human", "h", "h", {"title": "H", "columns": [], "rows": [], "scripted": scripted, "studies": [study]}
    )


def perturbations(ends: float, middle: float, nll: float, error: float) -> Result:
    rows = [
        {"perturbation": kind, "position": place, "energy": ends if place <= 4 or place > 12 else middle}
        | {"energy_error": error, "nll": nll, "nll_error": error}
        for kind in ("replacement", "swap")
        for place in range(1, 17)
    ]
    return analysis("perturbations", rows)


def random_text(real: float, uniform: float, error: float) -> Result:
    values = {"real": real, "uniform": uniform}
    rows = [{"text": text, "windows": 500, "energy": own, "standard_error": error} for text, own in values.items()]
    return analysis("random_text", rows)


def gradient_replacement(turned: int, rise: float, windows: int = 40) -> Result:
    """Of generated windows, and of real ones, this many change sides; perplexities rise alike, apart from noise."""
    examples = []
    for text, goal, before, after in (("generated", "lower", -1.0, 1.0), ("real", "higher", 1.0, -1.0)):
        for number in range(windows):
            own = {"text": text, "goal": goal, "score_before": before}
            own |= {"score_after": after if number < turned else before, "perplexity_before": 20.0}
            examples.append(own | {"perplexity_after": 20.0 * rise * (1.01 if number % 2 else 0.99)})
    return analysis("gradient_replacement", [], examples=examples)


def same(value: float) -> float:
    return value


def mirrored(value: float) -> float:
    """Every difference has the other sign."""
    return 1.4 - value


def all_alike(value: float) -> float:
    return 0.7


def study(*results: Result) -> StudyResults:
    return StudyResults(list(results))


def papers_own(half: float = 0.0005) -> StudyResults:
    """What the paper reports, and where it gives no numbers, what it says."""
    return study(
        in_domain(same, half),
        cross_architecture(same, half),
        cross_corpus(same, half),
        prefix_length(same, half, [0, 140]),
        bounds(-16.7, -10.0, -7.0, -0.5, 0.01, 0.2),
        third_detector(0.899, FALSE_POSITIVES["Joint BiT-Med"] / 100, 0.02),
        ngrams(0.01, 0.001),
        densities(-DENSITIES["Base LM"], DENSITIES["Joint BiT-Base"], 0.5),
        human(0.5893, 0.05),
        perturbations(-0.5, -0.01, 3.0, 0.02),
        random_text(0.0, -3.0, 0.1),
        gradient_replacement(38, 5.0),
    )
