"""The finding in numbers: what the energy is worth to the language model, and how well it distinguishes texts."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from evaluation.reporting.blocks import in_interval, in_percent, in_perplexity
from evaluation.reporting.inputs import Findings, Result
from evaluation.reporting.perplexity import base_of, between, corpus_of, difference, energy_of

MOST = 6  # rows of the figure


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


def headline(found: Findings) -> Headline:
    best = best_of_each_corpus(found.of("bounds"))
    facts = [perplexity_fact(result) for result in best[:MOST]]
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


def perplexity_fact(result: Result) -> Fact:
    content = result.content
    note = f"{difference(content)}; {content['contexts']:,} completions, {content['samples']:,} samples each"
    return Fact(
        f"Perplexity, {corpus_of(content)}",
        in_perplexity(content["base_perplexity"]),
        between(content["joint_perplexity"]),
        note,
        bool(content.get("warnings")),
    )


def correct_fact(result: Result) -> Iterator[Fact]:
    shares = result.content.get("matches")
    if not shares or not shares["joint"]:
        return
    last = shares["joint"][-1]
    note = f"with {last['samples']:,} samples; a correct one is among them for {in_percent(last['oracle'])}"
    label = f"Correct completions, {corpus_of(result.content)}"
    yield Fact(label, in_percent(shares["base"]), in_percent(last["joint"]), note)


def accuracy_fact(found: Findings) -> list[Fact]:
    """The best cell of all grids, without those that are warned about if there are others; or what there is instead."""
    cells = [cell for grid in found.of("grid") for cell in grid.content["cells"] if "accuracy" in cell]
    if cells:
        cell = max(cells, key=lambda one: (not one.get("warnings"), one["accuracy"]))
        note = f"{cell['row']} on {cell['column']}, {cell['setting']}; {in_interval(cell['low'], cell['high'])}"
        return [Fact("Best accuracy in a grid", "", in_percent(cell["accuracy"]), note, bool(cell.get("warnings")))]
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
    edge = 0.12 * (high - low) or 0.1 * high
    low, high = max(0.0, low - edge), high + edge

    def span(style: str, name: str, start: float, end: float) -> Span:
        return Span(style, name, *(round((value - low) / (high - low), 4) for value in (start, end)))

    spans = [span("other", f"{name} {in_perplexity(value)}", value, value) for name, value in others.items()]
    spans.append(span("base", f"base {in_perplexity(base)}", base, base))
    spans.append(span("joint", f"joint {between(joint)}", joint["lower"], joint["upper"]))
    alt = f"Perplexity on {corpus_of(content)}: {', '.join(one.name for one in spans)}."
    return Line(corpus_of(content), alt, spans, (in_perplexity(low), in_perplexity(high)))
