"""The paper's findings on the joint model: its perplexity and bounds, its samples, and what readers prefer."""

import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from evaluation.analyses.analysis import mean_and_error
from evaluation.claims.decision import NATS, PERCENT, SHARE, Claim, Finding, Part, flipped, from_error
from evaluation.detection.accuracy import is_near_chance
from evaluation.reporting.inputs import Result, StudyResults
from evaluation.reporting.perplexity import corpus_of, energy_of
from evaluation.results.paper import DENSITIES, FALSE_POSITIVES, HUMAN, PERPLEXITY, THIRD_DETECTOR
from pipeline.runtime import files

AT = 1.0  # percent: perplexities closer than this are at each other, and an estimate at the exact value
CHOSEN, BASE = "chosen", "base"  # what studies with readers call the texts of the two models, unless told otherwise


def generation_findings(found: StudyResults) -> Iterator[Finding]:
    bounds = found.of("bounds")
    yield below_base(bounds)
    yield below_another(bounds, "ralm", "RALM", 0.0)
    yield below_another(bounds, "balm", "BALM", AT)
    yield bounds_close(bounds)
    yield last_position(bounds)
    analyses = {
        name: [one for one in found.of("analysis") if one.content["analysis"] == name]
        for name in ("third_detector", "ngrams", "densities")
    }
    yield third_detector(analyses["third_detector"])
    yield ngrams(analyses["ngrams"])
    yield densities(analyses["densities"])
    yield human(found.of("human"))


def numbers(*models: str, corpus: str = "CCNews") -> str:
    """Test perplexities of the paper: `Base LM 17.57, Joint UniT 15.57 to 15.58`."""
    found = {model: PERPLEXITY[model][corpus] for model in models}
    return ", ".join(f"{model} {low}" + ("" if low == high else f" to {high}") for model, (low, high) in found.items())


def title_of(result: Result) -> str:
    doubt = " (careful: see its warnings)" if result.content.get("warnings") else ""
    return f"{corpus_of(result.content)}, {energy_of(result.content)}{doubt}"


def lower_part(what: str, difference: dict[str, Any], over: str, line: float = 0.0) -> Part | None:
    """That a perplexity is below another, or at most `line` percent above; None where there is no interval."""
    percent = difference["percent"]
    if percent["low"] is None:
        return None
    middle = (percent["lower"] + percent["upper"]) / 2
    return flipped(Part(what, middle, percent["low"], percent["high"], line, PERCENT, over))


def over_of(result: Result) -> str:
    against = result.content["differences"]
    return f"paired, {against['count']:,} {against['over']}"


def from_parts(claim: Claim, parts: list[Part | None], lacking: str) -> Finding:
    there = [part for part in parts if part is not None]
    if parts and not there:
        return Finding(claim, [], "there is no interval: all windows are of one document")
    return Finding(claim, there, None if there else f"not measured: {lacking}")


def measured(bounds: list[Result]) -> list[Result]:
    """Results with intervals; those by position mix contexts of all lengths, and count where there is nothing else."""
    known = [result for result in bounds if "differences" in result.content]
    return [result for result in known if not result.content.get("positions")] or known


def below_base(bounds: list[Result]) -> Finding:
    claim = Claim(
        "joint-below-base",
        "the joint model's perplexity is below the base model's",
        "Table of perplexities (CC-News, test)",
        numbers("Base LM", "Joint UniT", "Joint BiT-Base"),
    )
    parts = [
        lower_part(f"base less joint, {title_of(result)}", result.content["differences"]["base"], over_of(result))
        for result in measured(bounds)
    ]
    return from_parts(claim, parts, "no bounds.json with intervals")


def below_another(bounds: list[Result], preset: str, name: str, line: float) -> Finding:
    words = {
        "ralm": "the joint model's perplexity is below that of RALM, a residual language model of the same size",
        "balm": "the joint model's perplexity is at or below that of BALM, a language model of the joint size "
        f"(at most {AT:g} % above)",
    }
    claim = Claim(
        f"joint-below-{preset}",
        words[preset],
        "Table of perplexities (CC-News, test)",
        numbers(name, "Joint UniT", "Joint BiT-Base"),
    )
    parts = []
    for result in measured(bounds):
        for path, own in (result.content["differences"].get("language_models") or {}).items():
            if str(own.get("preset") or path.rstrip("/").rpartition("/")[2]).startswith(preset):
                parts.append(lower_part(f"{name} less joint, {title_of(result)}", own, over_of(result), line))
    return from_parts(claim, parts, f"no {name} beside the joint model (--language_model)")


def bounds_close(bounds: list[Result]) -> Finding:
    claim = Claim(
        "bounds-close",
        "the bounds of the perplexity close as samples are added",
        "Section on the number of samples, its figure",
        "in a figure: very stable from 20,000 samples on",
    )
    parts: list[Part | None] = []
    for result in bounds:
        closing = result.content.get("closing")
        if closing and "differences" in result.content:
            change, what = closing["change"], f"{closing['from']:,} less {closing['to']:,} samples, {title_of(result)}"
            ends = None if change["low"] is None else (change["mean"], change["low"], change["high"])
            parts.append(None if ends is None else flipped(Part(what, *ends, 0.0, NATS, over_of(result))))
    return from_parts(claim, parts, "no bounds for fewer samples (--samples_curve)")


def last_position(bounds: list[Result]) -> Finding:
    claim = Claim(
        "last-position-exact",
        f"at the last position the estimates agree with the exact sum (within {AT:g} %)",
        "Section on language modeling, figure of perplexity gains by position",
        "in a figure: they agree remarkably well",
    )
    parts: list[Part | None] = []
    for result in bounds:
        if own := (result.content.get("last_position") or {}).get("difference"):
            over = f"paired, {result.content['last_position']['windows']:,} windows"
            parts.append(lower_part(f"exact less estimate, {title_of(result)}", own, over, AT))
            part = lower_part(f"estimate less exact, {title_of(result)}", own, over, -AT)
            parts.append(None if part is None else flipped(part))
    return from_parts(claim, parts, "no exact sum (--positions --exact_windows)")


def third_detector(results: list[Result]) -> Finding:
    claim = Claim(
        "joint-fools-a-third-detector",
        "a detector that did not choose them takes joint samples for real more often than base samples",
        "Section on the automatic assessment of generations",
        f"{FALSE_POSITIVES['Joint BiT-Med']} % against {FALSE_POSITIVES['Base LM']} %, the detector's accuracy being "
        f"{THIRD_DETECTOR['Joint BiT-Med']} % and {THIRD_DETECTOR['Base LM']} %",
    )
    parts, unfit = [], []
    for result in results:
        rows = {row["text"]: row for row in result.content["rows"]}
        own, apart = rows["base"], rows["joint - base"]
        if any("no third one" in sentence for sentence in result.content.get("warnings", [])):
            unfit.append("the detector is the energy model that chose the samples")
        elif "accuracy_low" not in own:
            unfit.append("the detector's own accuracy is not known")
        elif is_near_chance(own["accuracy_low"]):
            unfit.append(f"the detector is at chance: {own['accuracy']:.1%} on real text and base samples")
        else:
            over = f"paired, {apart['windows']:,} contexts"
            ends = apart["called_real"], apart["low"], apart["high"]
            parts.append(Part("share called real, joint less base", *ends, 0.0, SHARE, over))
    return Finding(claim, parts, None if parts else "; ".join(unfit) or "not measured: no analysis of third_detector")


def ngrams(results: list[Result]) -> Finding:
    claim = Claim(
        "joint-more-unique-ngrams",
        "joint samples have more unique n-grams than base samples (n = 2, 3, 4)",
        "Section on repetitions, its figure",
        "in a figure: slightly more",
    )
    parts = [
        from_error(
            f"share of unique {row['n']}-grams, joint less base",
            row["unique"],
            row["standard_error"],
            unit=SHARE,
            over=f"paired, {row['completions']:,} contexts",
        )
        for result in results
        for row in result.content["rows"]
        if row["text"] == "joint - base" and row["standard_error"] is not None
    ]
    return Finding(claim, parts, None if parts else "not measured: no analysis of ngrams over several contexts")


def densities(results: list[Result]) -> Finding:
    claim = Claim(
        "joint-densities-closer",
        "log-probabilities of the joint model's own samples are closer to those of real text than the base model's are",
        "Section on a necessary condition for matching the data, its figure",
        f"apart by {DENSITIES['Base LM']} (base), {DENSITIES['Joint BiT-Base']:.2f} (joint)",
    )
    parts = [part for result in results if (part := gap_part(result))]
    return Finding(claim, parts, None if parts else "not measured: no analysis of densities over several contexts")


def gap_part(result: Result) -> Part | None:
    """|mean of samples - mean of real text|, base less joint: context by context where the values are at hand.

    The signs are those of the means; near 0 the joint model's gap then counts as larger than it is, against the claim.
    """
    rows = {row["model"]: row for row in result.content["rows"]}
    gaps = {model: float(rows[model]["expected_difference"]) for model in ("base", "joint")}
    errors = [rows[model]["expected_difference_error"] for model in gaps]
    if None in errors:
        return None  # of one context
    what = f"gap of base ({abs(gaps['base']):.2f}) less gap of joint ({abs(gaps['joint']):.2f})"
    url = files.join(result.path, "values.parquet")
    if not files.is_file(url):
        error = float(np.hypot(errors[0], errors[1]))
        return from_error(what, abs(gaps["base"]) - abs(gaps["joint"]), error, over="independent errors")
    values = pq.read_table(io.BytesIO(files.read(url)))
    own = {
        model: np.sign(gap) * (values[f"{model}_expected"].to_numpy() - values[f"{model}_real"].to_numpy())
        for model, gap in gaps.items()
    }
    mean, paired = mean_and_error(own["base"] - own["joint"])
    return from_error(what, mean, paired or 0.0, over=f"paired, {len(values):,} contexts")


def human(results: list[Result]) -> Finding:
    rates = [one for one in HUMAN if one.model_1 == "Base LM" and one.model_2.startswith("Joint")]
    claim = Claim(
        "readers-prefer-joint",
        "readers prefer the joint model's completions to the base model's",
        "Table of human comparisons",
        ", ".join(f"{one.model_2} {one.rate} % (p {one.p_value:g})" for one in rates),
    )
    parts, scripted = [], 0
    for result in results:
        for study in result.content.get("studies") or []:
            if not is_base(study["model1"]) or not is_joint(study["model2"]):
                continue
            if result.content.get("scripted"):
                scripted += 1
                continue
            (own,) = (rate for rate in study["rates"] if rate["relation"] == "<")
            what = f"share of items in which {study['model2']} is preferred to {study['model1']}"
            ends = own["rate"], own["low"], own["high"]
            parts.append(Part(what, *ends, 0.5, SHARE, f"{own['items']:,} items, Wilson's interval"))
    lacking = (
        "only scripted raters: a program's votes say nothing of readers" if scripted else "not measured: no readers"
    )
    return Finding(claim, parts, None if parts else lacking)


def is_joint(name: str) -> bool:
    return any(word in name.lower() for word in ("joint", CHOSEN))


def is_base(name: str) -> bool:
    return BASE in name.lower() and not is_joint(name)
