"""How often a detector that had no part in the sampling takes samples for real text.

  python evaluation/analyses/third_detector.py --detector models/all-corpora-energy \\
      --samples results/books-samples --output results/third-detector

The samples are those of evaluation/sample_joint.py, the detector another energy model, best one trained on other
generators. A window is called real where its score -E is above 0: for base and joint samples that is the false
positive rate of the paper's automatic assessment of generations. A detector that cannot distinguish real text from the
base model's samples is no evidence: that is said, with its own accuracy.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evaluation.analyses.analysis import Analysis, AnalysisSettings, provenance_of, run, write
from evaluation.analyses.inputs import JointSamples, energies_of, energy_of, energy_setting, samples_of, samples_setting
from evaluation.analyses.ngrams import COLOURS, TEXTS
from evaluation.detection.accuracy import interval, is_near_chance
from evaluation.joint.scorers import energy_scorer
from evaluation.results.figures import INK, panels, styled
from pipeline.runtime.errors import UserError, exit_with
from training.energy.folder import EnergyModelFolder

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Flags = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class ThirdDetectorSettings(AnalysisSettings):
    """Samples, and the energy model that judges them."""

    detector: str = energy_setting()
    samples: str = samples_setting()


def main(arguments: Sequence[str] | None = None) -> int:
    return run(ThirdDetectorSettings, analyse, arguments, __doc__)


def analyse(settings: ThirdDetectorSettings) -> Analysis:
    """The share of real, base and joint windows that the detector takes for real."""
    samples, detector = samples_of(settings.samples), energy_of(settings.detector)
    rows = rows_of(called_real(samples, detector))
    analysis = Analysis(
        analysis="third_detector",
        title="Samples that a third detector takes for real text",
        description="The share of windows to which a detector that did not choose them gives a score above 0.",
        rows=rows,
        warnings=doubts(samples, detector, rows),
        **provenance_of(settings, {"detector": detector, "samples": samples}),
    )
    return write(analysis, figure_of(rows), settings.output)


def called_real(samples: JointSamples, detector: EnergyModelFolder) -> dict[str, Flags]:
    """For each kind of text, which of its windows the detector takes for real."""
    if detector.tokenizer_digest != samples.settings["tokenizer"]:
        raise UserError(
            f"{detector.name} and the samples of {samples.path} have different vocabularies: take a detector that was "
            f"trained on windows of the generator's tokenizer"
        )
    windows = {word: samples.windows(column) for column, word in TEXTS.items() if column != "real" or samples.has_real}
    longest = max(len(window) for some in windows.values() for window in some)
    detector.check_fits(longest, {"digest": samples.settings["tokenizer"]}, samples.path)
    scorer = energy_scorer(detector)
    return {word: energies_of(some, scorer) < 0 for word, some in windows.items()}


def rows_of(called: dict[str, Flags]) -> list[dict[str, Any]]:
    """The shares, with the balanced accuracy against real windows, and joint less base, context by context."""
    rows = []
    for word, flags in called.items():
        low, high = interval(flags.astype(np.float64))
        row: dict[str, Any] = {"text": word, "windows": len(flags), "called_real": float(flags.mean())}
        row |= {"low": low, "high": high}
        if word != "real" and "real" in called:
            right = (called["real"].astype(np.float64) + ~flags) / 2  # of each context's two windows
            row["accuracy"] = float(right.mean())
            row["accuracy_low"], row["accuracy_high"] = interval(right)
        rows.append(row)
    difference = called["joint"].astype(np.float64) - called["base"]
    low, high = interval((1 + difference) / 2)  # which lies between 0 and 1
    row = {"text": "joint - base", "windows": len(difference), "called_real": float(difference.mean())}
    return [*rows, row | {"low": 2 * low - 1, "high": 2 * high - 1}]


def doubts(samples: JointSamples, detector: EnergyModelFolder, rows: list[dict[str, Any]]) -> list[str]:
    found = []
    if detector.weights_digest == samples.settings["energy"]:
        found.append("The detector is the energy model that chose the samples: it is no third one.")
    if not samples.has_real:
        found.append("The prompts have no real completions: the detector's accuracy is not known.")
    return found + chance_doubt(rows)


def chance_doubt(rows: list[dict[str, Any]]) -> list[str]:
    """That the detector itself is at chance: what it takes for real then says nothing of the samples."""
    (base,) = (row for row in rows if row["text"] == "base")
    if "accuracy" not in base or not is_near_chance(base["accuracy_low"]):
        return []
    interval = f"{base['accuracy_low']:.1%} to {base['accuracy_high']:.1%}"
    return [
        f"The detector is at chance, or near it: of real text and the base model's samples it calls "
        f"{base['accuracy']:.1%} by their name ({interval}). What it takes for real is no evidence."
    ]


@styled
def figure_of(rows: list[dict[str, Any]]) -> "Figure":
    figure, axes = panels()
    shown = [row for row in rows if row["text"] in COLOURS]
    shares = [100 * row["called_real"] for row in shown]
    bars = axes.bar(
        [row["text"] for row in shown],
        shares,
        yerr=[
            [100 * (row["called_real"] - row["low"]) for row in shown],
            [100 * (row["high"] - row["called_real"]) for row in shown],
        ],
        color=[COLOURS[row["text"]] for row in shown],
        ecolor=INK,
        width=0.6,
    )
    axes.bar_label(bars, fmt="%.1f %%", padding=3)
    axes.set_ylabel("windows called real, %")
    axes.set_xlabel("who wrote the completion")
    axes.margins(y=0.15)
    return figure


if __name__ == "__main__":
    exit_with(main)
