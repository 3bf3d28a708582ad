"""The paper's findings on text that an energy model was not trained on: perturbed, random, and made to fool it."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from evaluation.analyses.analysis import mean_and_error
from evaluation.claims.decision import SHARE, Claim, Finding, Part, from_error
from evaluation.detection.accuracy import interval
from evaluation.reporting.inputs import Result, StudyResults
from evaluation.results.paper import REPLACED

WHERE = "Section on stability to other negative distributions"


def stability_findings(found: StudyResults) -> Iterator[Finding]:
    analyses = {
        name: [one for one in found.of("analysis") if one.content["analysis"] == name]
        for name in ("perturbations", "random_text", "gradient_replacement")
    }
    yield from perturbations(analyses["perturbations"])
    yield random_text(analyses["random_text"])
    yield gradient_replacement(analyses["gradient_replacement"])


def perturbations(results: list[Result]) -> Iterator[Finding]:
    figure = f"{WHERE}, its figure"
    lower = Claim("perturbations-lower-energy", "a perturbed real text has a lower energy", figure, "in a figure")
    unlikely = Claim(
        "perturbations-raise-nll",
        "a perturbed real text has a higher negative log-likelihood",
        figure,
        "in a figure: all perturbations do",
    )
    ends = Claim(
        "energy-sensitive-at-the-ends",
        "the energy is most sensitive at the ends of the text (its outer quarters, against the middle half)",
        figure,
        "in a figure: it is only affected there",
    )
    parts: dict[str, list[Part]] = {claim.name: [] for claim in (lower, unlikely, ends)}
    for result in results:
        for kind in dict.fromkeys(str(row["perturbation"]) for row in result.content["rows"]):
            rows = [row for row in result.content["rows"] if row["perturbation"] == kind and row["energy"] is not None]
            if len(rows) < 4 or any(row["energy_error"] is None for row in rows):
                continue
            mean, error = block(rows, "energy")
            over = "errors of positions added up"
            parts[lower.name].append(from_error(f"fall of the energy, {kind}", -mean, error, over=over))
            mean, error = block(rows, "nll")
            parts[unlikely.name].append(from_error(f"rise of the NLL, {kind}", mean, error, over=over))
            parts[ends.name].append(ends_part(rows, kind, over))
    lacking = "not measured: no analysis of perturbations of more than one window"
    yield from (
        Finding(claim, parts[claim.name], None if parts[claim.name] else lacking) for claim in (lower, unlikely, ends)
    )


def block(rows: list[dict[str, Any]], model: str) -> tuple[float, float]:
    """The mean change over some positions, and its error as if all positions erred together, which is the most."""
    return float(np.mean([row[model] for row in rows])), float(np.mean([row[f"{model}_error"] for row in rows]))


def ends_part(rows: list[dict[str, Any]], kind: str, over: str) -> Part:
    """The size of the mean change in the outer quarters, on average, less that in the middle half."""
    quarter = len(rows) // 4
    left, right, middle = rows[:quarter], rows[-quarter:], rows[quarter:-quarter]
    blocks = [block(own, "energy") for own in (left, right, middle)]
    sizes = [abs(mean) for mean, _ in blocks]
    errors = [error for _, error in blocks]
    value, error = (sizes[0] + sizes[1]) / 2 - sizes[2], (errors[0] + errors[1]) / 2 + errors[2]
    return from_error(f"change at the ends less in the middle, {kind}", value, error, over=over)


def random_text(results: list[Result]) -> Finding:
    claim = Claim(
        "random-text-lower-energy",
        "random text has a lower energy than real text",
        WHERE,
        "in words alone",
    )
    parts = []
    for result in results:
        rows = {row["text"]: row for row in result.content["rows"]}
        if "uniform" in rows and all(rows[name]["standard_error"] is not None for name in ("real", "uniform")):
            error = float(np.hypot(rows["real"]["standard_error"], rows["uniform"]["standard_error"]))
            gap = float(rows["real"]["energy"] - rows["uniform"]["energy"])
            over = f"independent errors, {rows['real']['windows']:,} windows of each"
            parts.append(from_error("energy of real text less that of uniformly drawn tokens", gap, error, over=over))
    return Finding(claim, parts, None if parts else "not measured: no analysis of random_text")


def gradient_replacement(results: list[Result]) -> Finding:
    before, after = REPLACED["negative"]
    claim = Claim(
        "gradient-turns-verdicts",
        "a few tokens replaced along the gradient turn the energy's verdict, and the language model's perplexity rises",
        "Appendix on perturbing the energy function",
        f"one negative: score {before[0]} to {after[0]:.2f}, perplexity {before[1]} to {after[1]}0",
    )
    parts = []
    for result in results:
        for text, goal, sign in (("generated", "lower", 1), ("real", "higher", -1)):
            own = [one for one in result.content.get("examples", []) if (one["text"], one["goal"]) == (text, goal)]
            if len(own) < 2:
                continue
            over = f"paired, {len(own):,} windows"
            scores = np.array([[one["score_before"], one["score_after"]] for one in own])
            turned = sign * np.subtract(*(scores > 0).astype(float).T[::-1])
            low, high = (2 * end - 1 for end in interval((1 + turned) / 2))
            what = f"share of {text} windows whose verdict turned"
            parts.append(Part(what, float(turned.mean()), low, high, 0.0, SHARE, over))
            rise = np.log([one["perplexity_after"] / one["perplexity_before"] for one in own])
            mean, error = mean_and_error(rise)
            parts.append(from_error(f"log of the perplexity's rise, {text}", mean, error or 0.0, over=over))
    return Finding(claim, parts, None if parts else "not measured: no analysis of gradient_replacement")
