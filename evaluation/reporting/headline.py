"""The finding in numbers: what the energy is worth to the language model, and how well it distinguishes texts."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from evaluation.detection.labels import ENERGY
from evaluation.reporting.accuracy import doubt_about, doubted_energies, likelihood_beside, role_of
from evaluation.reporting.blocks import in_interval, in_percent, in_perplexity
from evaluation.reporting.inputs import Result, StudyResults
from evaluation.reporting.perplexity import base_of, between, corpus_of, difference, energy_of

MOST = 6  # rows of the figure
LEAST_SPAN = 0.05  # of the base perplexity, from end to end of a line: a tenth of a percent must look like one


@dataclass(frozen=True)
class Fact:
    """One finding: a label, what was before and what is now, and what it rests on."""

    label: str
    before: str
    now: str
    note: str
    careful: bool = False


@dataclass(frozen=True)
class Span:
    """A point or a stretch on a line, as shares of its length."""

    style: str
    name: str
    start: float
    end: float


@dataclass(frozen=True)
class Line:
    """One corpus in the figure: perplexities of its models on one line."""

    label: str
    alt: str
    spans: list[Span]
    ends: tuple[str, str]


@dataclass(frozen=True)
class Headline:
    facts: list[Fact]
    lines: list[Line]
    sentence: str


def headline(found: StudyResults) -> Headline:
    best = best_of_each_corpus(found.of("bounds"))
    doubted = doubted_energies(found)
    facts = [perplexity_fact(result, doubted) for result in best[:MOST]]
    facts += [fact for result in best for fact in correct_fact(result)]
    facts += accuracy_fact(found)
    lines = [line_of(result.content) for result in best[:MOST]]
    return Headline(facts, lines, sentence_of(best))


def best_of_each_corpus(results: list[Result]) -> list[Result]:
    """For every corpus the energy model of the lowest upper bound.

    Results by position mix contexts of all lengths: they count only where there is nothing else.
    """
    best: dict[str, Result] = {}

    def order(result: Result) -> tuple[bool, float]:
        return bool(result.content.get("positions")), result.content["joint_perplexity"]["upper"]

    for result in sorted(results, key=order):
        best.setdefault(corpus_of(result.content), result)
    return [best[name] for name in dict.fromkeys(corpus_of(result.content) for result in results)]


def sentence_of(best: list[Result]) -> str:
    if not best:
        return "No perplexities have been measured in these folders yet."
    content = best[0].content
    more = f" Below: all {len(best)} corpora." if len(best) > 1 else ""
    return (
        f"On {corpus_of(content)}, the language model {base_of(content)} has a perplexity of "
        f"{in_perplexity(content['base_perplexity'])}; joined with the energy model {energy_of(content)}, "
        f"{between(content['joint_perplexity'])}: {difference(content)}.{more}"
    )


def perplexity_fact(result: Result, doubted: set[str]) -> Fact:
    content = result.content
    note = f"{difference(content)}; {content['contexts']:,} completions, {content['samples']:,} samples each"
    return Fact(
        f"Perplexity, {corpus_of(content)}",
        in_perplexity(content["base_perplexity"]),
        between(content["joint_perplexity"]),
        note,
        bool(content.get("warnings")) or content["energy"].get("digest") in doubted,
    )


def correct_fact(result: Result) -> Iterator[Fact]:
    shares = result.content.get("matches")
    if not shares or not shares["joint"]:
        return
    last = shares["joint"][-1]
    note = f"with {last['samples']:,} samples; a correct one is among them for {in_percent(last['oracle'])}"
    label = f"Correct completions, {corpus_of(result.content)}"
    yield Fact(label, in_percent(shares["base"]), in_percent(last["joint"]), note)


def accuracy_fact(found: StudyResults) -> list[Fact]:
    """The energy model's best cell of all grids, if there are others without those that are warned about; or else."""
    grids = [grid.content["cells"] for grid in found.of("grid")]
    cells = [(cell, own) for own in grids for cell in own if "accuracy" in cell and role_of(cell) in (ENERGY, None)]
    if cells:
        cell, own = max(cells, key=lambda one: (not one[0].get("warnings"), one[0]["accuracy"]))
        note = f"{cell['row']} on {cell['column']}, {cell['setting']}; {in_interval(cell['low'], cell['high'])}"
        likelihood = likelihood_beside(cell, own)
        note += "" if likelihood is None else f"; log-likelihood {in_percent(likelihood)}"
        careful = bool(cell.get("warnings") or doubt_about(cell, own))
        return [Fact("Best accuracy in a grid", "", in_percent(cell["accuracy"]), note, careful)]
    texts = [one for result in found.of("detection") for one in result.content["accuracy"]]
    if texts:
        one = max(texts, key=lambda known: float(known["balanced_accuracy"]))
        note = f"{one['detector']} on {one['generated'].rpartition('/')[2]}"
        return [Fact("Best accuracy on whole texts", "", in_percent(one["balanced_accuracy"]), note)]
    models = [model for model in found.of("energy_model") if (model.content.get("provenance") or {}).get("accuracy")]
    if models:
        model = max(models, key=lambda known: float(known.content["provenance"]["accuracy"]))
        share = model.content["provenance"]["accuracy"]
        note = f"{model.name}, on its own validation negatives: no test"
        return [Fact("Best accuracy in training", "", in_percent(share), note)]
    return []


def line_of(content: dict[str, Any]) -> Line:
    """All models of a corpus on one line, from the lowest perplexity to the highest."""
    base, joint = content["base_perplexity"], content["joint_perplexity"]
    others = {
        os.path.basename(path.rstrip("/")): value for path, value in (content.get("language_models") or {}).items()
    }
    values = [base, joint["lower"], joint["upper"], *others.values()]
    low, high = min(values), max(values)
    edge = max(0.12 * (high - low), (LEAST_SPAN * base - (high - low)) / 2)
    low, high = max(0.0, low - edge), high + edge

    def span(style: str, name: str, start: float, end: float) -> Span:
        return Span(style, name, *(round((value - low) / (high - low), 4) for value in (start, end)))

    spans = [span("other", f"{name} {in_perplexity(value)}", value, value) for name, value in others.items()]
    spans.append(span("base", f"base {in_perplexity(base)}", base, base))
    spans.append(span("joint", f"joint {between(joint)}", joint["lower"], joint["upper"]))
    alt = f"Perplexity on {corpus_of(content)}: {', '.join(one.name for one in spans)}."
    return Line(corpus_of(content), alt, spans, (in_perplexity(low), in_perplexity(high)))
