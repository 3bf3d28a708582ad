"""What a reader has to know before believing the numbers, gathered from all results."""

from collections.abc import Iterator
from dataclasses import dataclass

from evaluation.detection.accuracy import is_near_chance
from evaluation.detection.labels import ENERGY
from evaluation.joint.bounds import LEAST_EFFECTIVE_SAMPLES, more_samples
from evaluation.reporting.accuracy import NEAR, doubt_about, likelihood_beside, role_of
from evaluation.reporting.blocks import in_percent, listed, times
from evaluation.reporting.inputs import StudyResults

PROBLEM, CAREFUL = "problem", "careful"
NO_INTERVAL = "Differences of perplexity have no interval: an older bounds.json: make it again."
WEIGHTS = "Bounds and joint samples"
FEW_TO_CHOOSE_FROM = "the choice leans on very few of them, so give evaluation/sample_joint.py more --samples"
MOST = 8  # warnings that are shown unfolded


@dataclass(frozen=True)
class Caution:
    """A sentence, what it is about, and whether something is broken or merely to be doubted."""

    kind: str
    where: str
    text: str


def warnings_of(found: StudyResults) -> list[Caution]:
    """Problems first, then doubts; the same sentence of several results once."""
    problems = [Caution(PROBLEM, "Cannot be read", text) for text in found.problems]
    gathered: dict[tuple[str, str, str], list[str]] = {}
    for topic, where, kind, text in doubts(found):
        gathered.setdefault((kind, topic, text), []).append(where)
    doubted = [Caution(kind, f"{topic}: {listed(where)}", text) for (kind, topic, text), where in gathered.items()]
    return problems + sorted(doubted, key=lambda one: one.kind != PROBLEM)


def doubts(found: StudyResults) -> Iterator[tuple[str, str, str, str]]:
    """Topic, place, kind and sentence of everything that results say against themselves."""
    for result in found.of("grid"):
        for cell in result.content["cells"]:
            where = f"{cell['row']} on {cell['column']}"
            if "problem" in cell:
                yield "Left out of a grid", where, PROBLEM, cell["problem"]
            for sentence in cell.get("warnings", []):
                yield "Accuracy", where, CAREFUL, sentence
            if sentence := doubt_about(cell, result.content["cells"]):
                likelihood = likelihood_beside(cell, result.content["cells"])
                beside = "" if likelihood is None else f", log-likelihood {in_percent(likelihood)}"
                yield "Energy model", f"{where} ({in_percent(cell['accuracy'])}{beside})", CAREFUL, sentence
    if not any(role_of(cell) == ENERGY for grid in found.of("grid") for cell in grid.content["cells"]):
        for result in found.of("energy_model"):
            accuracy = (result.content.get("provenance") or {}).get("accuracy")
            if accuracy is not None and is_near_chance(accuracy):
                yield "Energy model", f"{result.name} ({in_percent(accuracy)} in training)", CAREFUL, NEAR
    few_of: dict[str, str] = {}  # energy models whose samples are too few for bounds, and the sentence that says so
    for result in found.of("bounds"):
        own = list(result.content.get("warnings", []))
        least, drawn = result.content["effective_samples"]["least"], result.content["samples"]
        if least < min(LEAST_EFFECTIVE_SAMPLES, drawn / 2):
            own = own or [f"{few(drawn, least, 'the bounds mean little there')} {more_samples(drawn, least)}"]
            few_of[result.content.get("energy", {}).get("digest", "")] = own[0]
        for sentence in own:
            yield WEIGHTS, result.name, CAREFUL, sentence
        if "differences" not in result.content:
            yield "Bounds", result.name, CAREFUL, NO_INTERVAL
        elif reason := result.content["differences"].get("reason"):
            yield "Bounds", result.name, CAREFUL, f"Windows count as if they were independent: {reason}."
    for result in found.of("samples"):
        effective, drawn = result.content.get("effective_samples"), result.content["settings"].get("samples")
        if effective and drawn and effective["median"] < min(LEAST_EFFECTIVE_SAMPLES, drawn / 2):
            said = few_of.get(result.content["settings"].get("energy") or "none")
            yield WEIGHTS, result.name, CAREFUL, said or few(drawn, effective["median"], FEW_TO_CHOOSE_FROM)
    for result in found.of("analysis"):
        for sentence in result.content.get("warnings", []):
            yield "Analysis", result.content["title"], CAREFUL, sentence
    for result in [*found.of("windows"), *found.of("negatives")]:
        if rejected := result.content["counts"].get("rejected"):
            of = result.content["counts"].get("documents")
            text = f"{rejected:,} of {of:,} documents" if of else times(rejected, "text")
            yield "Corpus", result.name, CAREFUL, f"{text} rejected: {result.path}/rejects says which and why."
    for result in found.of("detection"):
        if left_out := sum(file["left_out"] for file in result.content["files"]):
            yield "Detection", result.name, CAREFUL, f"{times(int(left_out), 'text')} without a score."


def few(drawn: int, effective: float, so: str) -> str:
    return f"{drawn:,} samples of a context are worth as few as {effective:.1f}: {so}."
