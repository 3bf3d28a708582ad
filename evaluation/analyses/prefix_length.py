"""How accuracy depends on the length of the context: the shorter the completion, the harder it is.

  python evaluation/analyses/prefix_length.py --energies stores/wiki-test-bilstm stores/wiki-test-unit \\
      --output results/prefix-length

The energies are those of evaluation/score.py, of negatives mined with several lengths of context
(mine_negatives.py --context_lengths 0,20,…,140); each store is a line, labelled with its energy model's preset.
Accuracy is balanced over real and generated windows, and a window is called real where its score -E is above 0.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from evaluation.analyses.analysis import Analysis, AnalysisSettings, provenance_of, run, write
from evaluation.analyses.inputs import store_of, store_setting
from evaluation.detection.accuracy import balanced_accuracy
from evaluation.results.figures import INK, panels, styled
from pipeline.runtime.errors import UserError, exit_with
from pipeline.stores.reader import Store

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARKERS = "osD^vPX*"


@dataclass(frozen=True, kw_only=True)
class PrefixLengthSettings(AnalysisSettings):
    """Energies of several models, or of one."""

    energies: tuple[str, ...] = store_setting(
        "made by evaluation/score.py, one for each energy model. May be given several times", several=True
    )


def main(arguments: Sequence[str] | None = None) -> int:
    return run(PrefixLengthSettings, analyse, arguments, __doc__)


def analyse(settings: PrefixLengthSettings) -> Analysis:
    """The accuracy of each energy model at each length of context."""
    stores = [store_of(path, "energies") for path in settings.energies]
    labels = labels_of(stores)
    rows = [row for label, store in zip(labels, stores, strict=True) for row in accuracies(label, store)]
    trained = {label: trained_lengths(store) for label, store in zip(labels, stores, strict=True)}
    analysis = Analysis(
        analysis="prefix_length",
        title="Accuracy by length of context",
        description="Balanced accuracy of each energy model at threshold 0, for every length of context by itself.",
        rows=rows,
        warnings=doubts(stores, rows),
        **provenance_of(settings, {"energies": [*stores]}, trained_lengths=trained),
    )
    return write(analysis, figure_of(rows), settings.output)


def labels_of(stores: Sequence[Store]) -> list[str]:
    """The presets of the energy models; where two have the same, their paths."""
    energies = [store.manifest.settings["energy"] for store in stores]
    names = [str(energy.get("preset") or energy["kind"]) for energy in energies]
    often = Counter(names)
    found = [
        name if often[name] == 1 else f"{name}, {energy['path']}" for name, energy in zip(names, energies, strict=True)
    ]
    if len(set(found)) < len(found):
        raise UserError("--energies: two stores have energies of the same model: give each model once")
    return found


def trained_lengths(store: Store) -> list[int] | None:
    """The lengths of context that the energy model was trained on, if that is recorded."""
    stores = store.manifest.settings["energy"].get("stores") or []
    return sorted({int(length) for known in stores for length in known.get("context_lengths") or []}) or None


def accuracies(label: str, store: Store) -> list[dict[str, Any]]:
    """A row for every length of context."""
    names = ["window_id", "context_length", "sample", "energy"]
    table = pa.concat_tables([store.schema.empty_table().select(names), *store.batches(names)])
    if not len(table):
        raise UserError(f"{store.path}: there are no energies in it")
    windows = table["window_id"].combine_chunks().dictionary_encode().indices.to_numpy()
    lengths, samples, energies = (table[name].to_numpy() for name in names[1:])
    window, rows = int(store.manifest.settings["window"]), []
    for length in np.unique(lengths).tolist():
        real, generated = (lengths == length) & (samples < 0), (lengths == length) & (samples >= 0)
        if not real.any() or not generated.any():
            raise UserError(f"{store.path}: at {length} tokens of context there are not both real windows and samples")
        found = balanced_accuracy(-energies[real], -energies[generated], windows[real], windows[generated])
        ratio = length / window
        rows.append({"energy": label, "context_length": length, "ratio": ratio} | found.described())
    return rows


def doubts(stores: Sequence[Store], rows: Sequence[dict[str, Any]]) -> list[str]:
    found = []
    if len({row["context_length"] for row in rows}) == 1:
        found.append("There is only one length of context: mine negatives with several --context_lengths.")
    for store in stores:
        if store.manifest.settings["energy"]["kind"] == "likelihood":
            found.append(f"{store.path}: log-likelihoods, which have no threshold at 0: look at auroc alone.")
    if len({(store.manifest.parent or {}).get("digest") for store in stores}) > 1:
        found.append("The energies are not all of the same negatives: their lines are not of the same windows.")
    return found


@styled
def figure_of(rows: Sequence[dict[str, Any]]) -> "Figure":
    figure, axes = panels()
    for number, label in enumerate(dict.fromkeys(row["energy"] for row in rows)):
        own = [row for row in rows if row["energy"] == label]
        xs, ys = [row["context_length"] for row in own], [100 * row["accuracy"] for row in own]
        (line,) = axes.plot(xs, ys, marker=MARKERS[number % len(MARKERS)], markersize=5, label=label)
        low, high = ([100 * row[name] for row in own] for name in ("low", "high"))
        axes.fill_between(xs, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
    axes.axhline(50, color=INK, linestyle=":", linewidth=1)
    axes.set_xlabel("tokens of context")
    axes.set_ylabel("balanced accuracy, %")
    axes.legend()
    return figure


if __name__ == "__main__":
    exit_with(main)
