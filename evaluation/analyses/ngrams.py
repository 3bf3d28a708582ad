"""The share of unique n-grams in real completions, in the base model's and in the joint model's.

  python evaluation/analyses/ngrams.py --samples results/books-samples --output results/ngrams

The samples are those of evaluation/sample_joint.py. An n-gram is counted within its completion alone: the share is the
number of different n-grams in it over the number of all, and the mean is over completions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from evaluation.analyses.analysis import Analysis, AnalysisSettings, mean_and_error, provenance_of, run, write
from evaluation.analyses.inputs import JointSamples, Tokens, samples_of, samples_setting
from evaluation.results.figures import BASE, JOINT, REAL, panels, styled
from pipeline.runtime.errors import UserError, exit_with

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZES = (2, 3, 4)
TEXTS = {"real": "real", "base": "base", "chosen": "joint"}  # the samples' columns, and what they are called
DIFFERENCE = "joint - base"
MARKERS = "osD"
COLOURS = {"real": REAL, "base": BASE, "joint": JOINT}


@dataclass(frozen=True, kw_only=True)
class NgramsSettings(AnalysisSettings):
    """Samples whose n-grams are counted."""

    samples: str = samples_setting()


def main(arguments: Sequence[str] | None = None) -> int:
    return run(NgramsSettings, analyse, arguments, __doc__)


def analyse(settings: NgramsSettings) -> Analysis:
    """The share of unique n-grams, by n and by who wrote the completions."""
    samples = samples_of(settings.samples)
    texts = texts_of(samples)
    rows = [row for name, completions in texts.items() for row in shares(name, completions)]
    rows += differences(texts["joint"], texts["base"])
    analysis = Analysis(
        analysis="ngrams",
        title="Unique n-grams",
        description="The share of different n-grams among all n-grams of a completion, averaged over completions.",
        rows=rows,
        warnings=[] if samples.has_real else ["The prompts have no real completions to compare with."],
        **provenance_of(settings, {"samples": samples}),
    )
    return write(analysis, figure_of(rows), settings.output)


def texts_of(samples: JointSamples) -> dict[str, list[Tokens]]:
    """Completions by who wrote them; real ones only where there are some."""
    return {word: samples.completions(column) for column, word in TEXTS.items() if column != "real" or samples.has_real}


def unique_share(tokens: ArrayLike, n: int) -> float:
    """Different n-grams over all n-grams of one text; nan where it is too short to have any."""
    ids = np.asarray(tokens).tolist()
    grams = [tuple(ids[place : place + n]) for place in range(len(ids) - n + 1)]
    return len(set(grams)) / len(grams) if grams else float("nan")


def shares(text: str, completions: Sequence[ArrayLike]) -> list[dict[str, Any]]:
    """A row for every n, the mean over the completions that have n-grams."""
    rows = []
    for n in SIZES:
        found = np.array([unique_share(tokens, n) for tokens in completions])
        found = found[~np.isnan(found)]
        if not len(found):
            raise UserError(f"completions of fewer than {n} tokens have no {n}-grams: sample longer ones")
        mean, error = mean_and_error(found)
        rows.append({"text": text, "n": n, "unique": mean, "standard_error": error, "completions": len(found)})
    return rows


def differences(joint: Sequence[ArrayLike], base: Sequence[ArrayLike]) -> list[dict[str, Any]]:
    """A row for every n: the joint model's share less the base model's, context by context."""
    rows = []
    for n in SIZES:
        pairs = zip(joint, base, strict=True)
        found = np.array([unique_share(one, n) - unique_share(other, n) for one, other in pairs])
        mean, error = mean_and_error(found[~np.isnan(found)])
        rows.append({"text": DIFFERENCE, "n": n, "unique": mean, "standard_error": error, "completions": len(found)})
    return rows


@styled
def figure_of(rows: list[dict[str, Any]]) -> "Figure":
    figure, axes = panels()
    texts = list(dict.fromkeys(row["text"] for row in rows if row["text"] in COLOURS))
    for number, text in enumerate(texts):
        own = [row for row in rows if row["text"] == text]
        places = [place + (number - (len(texts) - 1) / 2) * 0.15 for place in range(len(own))]
        heights = [100 * row["unique"] for row in own]
        errors = [200 * (row["standard_error"] or 0) for row in own]
        axes.errorbar(places, heights, errors, fmt=MARKERS[number], color=COLOURS[text], capsize=4, label=text)
    axes.set_xticks(range(len(SIZES)), [f"n = {n}" for n in SIZES])
    axes.set_ylabel("unique n-grams of a completion, %")
    axes.legend(ncols=len(texts), loc="lower center", bbox_to_anchor=(0.5, 1))
    return figure


if __name__ == "__main__":
    exit_with(main)
