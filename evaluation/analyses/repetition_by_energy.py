"""Repetition in the samples of the lowest and of the highest energy, side by side.

  python evaluation/analyses/repetition_by_energy.py --samples results/books-samples --output results/repetition

The samples are those of evaluation/sample_joint.py: of all completions drawn for a context, the one of the lowest
energy (best), the one of the highest (worst), a plain one (base) and the one chosen (joint). A completion's repetition
is the share of its n-grams that it has had before: 1 less the share of unique ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evaluation.analyses.analysis import Analysis, AnalysisSettings, mean_and_error, provenance_of, run, write
from evaluation.analyses.inputs import JointSamples, Tokens, samples_of, samples_setting
from evaluation.analyses.ngrams import SIZES, unique_share
from evaluation.results.figures import BASE, COLOURS, INK, JOINT, REAL, panels, styled
from pipeline.runtime.errors import UserError, exit_with
from pipeline.runtime.settings import setting

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TEXTS = {"real": REAL, "best": COLOURS[4], "joint": JOINT, "base": BASE, "worst": COLOURS[3]}
COLUMNS = {"joint": "chosen"}  # the others are called in the samples as they are here


@dataclass(frozen=True, kw_only=True)
class RepetitionByEnergySettings(AnalysisSettings):
    """Samples, and how many pairs of them are shown."""

    samples: str = samples_setting()
    examples: int = setting(10, help="pairs that are shown (default: 10)", metavar="N", least=1)


def main(arguments: Sequence[str] | None = None) -> int:
    return run(RepetitionByEnergySettings, analyse, arguments, __doc__)


def analyse(settings: RepetitionByEnergySettings) -> Analysis:
    """How much completions of the lowest and of the highest energy repeat, beside real, base and joint ones."""
    samples = samples_of(settings.samples)
    found = {
        text: {n: repetitions(samples.completions(COLUMNS.get(text, text)), n) for n in SIZES}
        for text in TEXTS
        if text != "real" or samples.has_real
    }
    analysis = Analysis(
        analysis="repetition_by_energy",
        title="Repetition in completions of low and of high energy",
        description="The share of n-grams that a completion repeats, for completions of different energies.",
        rows=rows_of(found, samples),
        examples=examples_of(samples, found, settings.examples),
        **provenance_of(settings, {"samples": samples}),
    )
    return write(analysis, figure_of(found), settings.output)


def repetitions(completions: Sequence[Tokens], n: int) -> NDArray[np.float64]:
    """The share of repeated n-grams of each completion."""
    found = np.array([1 - unique_share(tokens, n) for tokens in completions])
    if np.isnan(found).any():
        raise UserError(f"completions of fewer than {n} tokens have no {n}-grams: sample longer ones")
    return found


def rows_of(found: dict[str, dict[int, NDArray[np.float64]]], samples: JointSamples) -> list[dict[str, Any]]:
    """A row for each kind of text, and one for the worst less the best, context by context."""
    rows = []
    for text, shares in found.items():
        column = f"{COLUMNS.get(text, text)}_energy"
        known = samples.table[column].to_numpy() if column in samples.table.column_names else None
        row: dict[str, Any] = {"text": text, "contexts": len(samples.table)}
        row["energy"] = None if known is None else float(known.mean())
        rows.append(row | _means(shares))
    difference = {n: found["worst"][n] - found["best"][n] for n in SIZES}
    energy = float(np.mean(samples.table["worst_energy"].to_numpy() - samples.table["best_energy"].to_numpy()))
    rows.append({"text": "worst - best", "contexts": len(samples.table), "energy": energy} | _means(difference))
    return rows


def _means(shares: dict[int, NDArray[np.float64]]) -> dict[str, float | None]:
    named: dict[str, float | None] = {}
    for n, values in shares.items():
        named[f"repeated_{n}_grams"], named[f"repeated_{n}_grams_error"] = mean_and_error(values)
    return named


def examples_of(
    samples: JointSamples, found: dict[str, dict[int, NDArray[np.float64]]], count: int
) -> list[dict[str, Any]]:
    """Lowest and highest energy side by side, those contexts first whose highest is highest."""
    table, n = samples.table, SIZES[0]
    order = np.argsort(-table["worst_energy"].to_numpy(), kind="stable")[:count]
    examples = []
    for place in order.tolist():
        row: dict[str, Any] = {"window_id": table["window_id"][place].as_py()}
        row["context"] = table["context_text"][place].as_py()
        for text in ("best", "worst"):
            row[text] = table[f"{text}_text"][place].as_py()
            row[f"{text}_energy"] = table[f"{text}_energy"][place].as_py()
            row[f"{text}_repeated_{n}_grams"] = float(found[text][n][place])
        examples.append(row)
    return examples


@styled
def figure_of(found: dict[str, dict[int, NDArray[np.float64]]]) -> "Figure":
    figure, axes = panels()
    width = 0.8 / len(found)
    for number, (text, shares) in enumerate(found.items()):
        means, errors = zip(*(mean_and_error(values) for values in shares.values()), strict=True)
        places = [place + (number - (len(found) - 1) / 2) * width for place in range(len(means))]
        heights, bars = [100 * mean for mean in means], [200 * (error or 0) for error in errors]
        axes.bar(places, heights, width * 0.92, yerr=bars, color=TEXTS[text], ecolor=INK, label=text)
    axes.set_xticks(range(len(SIZES)), [f"n = {n}" for n in SIZES])
    axes.set_ylabel("repeated n-grams of a completion, %")
    axes.set_ylim(bottom=0)
    axes.legend(ncols=len(found), loc="lower center", bbox_to_anchor=(0.5, 1))
    return figure


if __name__ == "__main__":
    exit_with(main)
