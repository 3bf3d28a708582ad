"""The energy of random text beside that of real and of generated text.

  python evaluation/analyses/random_text.py --energy models/books-energy --store stores/books-test-negatives \\
      --output results/random-text

Random text is of two kinds: windows of tokens drawn uniformly from the vocabulary, and real windows whose tokens are
shuffled. An energy model sees neither while it is trained, and owes them nothing; the language model, which gives them
a low probability, is what keeps the joint model away from them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evaluation.analyses.analysis import Analysis, AnalysisSettings, mean_and_error, provenance_of, run, write
from evaluation.analyses.inputs import (
    Tokens,
    energies_of,
    energy_of,
    energy_setting,
    limit_setting,
    seed_setting,
    store_of,
    store_setting,
)
from evaluation.joint.scorers import energy_scorer
from evaluation.results.figures import BASE, COLOURS, INK, REAL, panels, styled
from pipeline.engines.sampling import request_seed
from pipeline.runtime.errors import UserError, exit_with
from pipeline.stores.reader import Store
from schemas.division import divide, join

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TEXTS = {"real": REAL, "generated": BASE, "shuffled": COLOURS[3], "uniform": COLOURS[4]}


@dataclass(frozen=True, kw_only=True)
class RandomTextSettings(AnalysisSettings):
    """An energy model, negatives, and how much random text is put beside them."""

    energy: str = energy_setting()
    store: str = store_setting()
    limit: int = limit_setting(1000)
    seed: int = seed_setting("the random text")


def main(arguments: Sequence[str] | None = None) -> int:
    return run(RandomTextSettings, analyse, arguments, __doc__)


def analyse(settings: RandomTextSettings) -> Analysis:
    """Energies of real, generated, shuffled and uniformly drawn windows."""
    store, energy = store_of(settings.store, "negatives"), energy_of(settings.energy)
    energy.check_fits(int(store.manifest.settings["window"]), store.manifest.tokenizer, store.path)
    texts = texts_of(store, settings.limit, settings.seed)
    scorer = energy_scorer(energy)
    energies = {name: energies_of(windows, scorer) for name, windows in texts.items()}
    analysis = Analysis(
        analysis="random_text",
        title="Energy of random text",
        description="Energies of real and generated windows, of shuffled real windows and of uniformly drawn tokens.",
        rows=[row_of(name, found) for name, found in energies.items()],
        **provenance_of(settings, {"energy": energy, "store": store}),
    )
    return write(analysis, figure_of(energies), settings.output)


def texts_of(store: Store, limit: int, seed: int) -> dict[str, list[Tokens]]:
    """Windows of each kind, as many of one as of another; randomness is a function of the window's id."""
    size = int(store.manifest.tokenizer["vocabulary_size"])
    found: dict[str, list[Tokens]] = {name: [] for name in TEXTS}
    for window_id, real, generated in islice(pairs(store), limit):
        random = np.random.default_rng(request_seed(seed, window_id, len(real)))
        texts = (real, generated, random.permutation(real), random.integers(size, size=len(real), dtype=np.int32))
        for name, tokens in zip(TEXTS, texts, strict=True):
            found[name].append(tokens)
    if not found["real"]:
        raise UserError(f"{store.path}: there are no windows in it")
    return found


def pairs(store: Store) -> Iterator[tuple[str, Tokens, Tokens]]:
    """Every window once: its id, the window, and its first sampled completion in place of the real one."""
    seen: set[str] = set()
    for row in store.rows(["window_id", "tokens", "direction", "context_length", "first_sample", "negatives"]):
        if row["first_sample"] or row["window_id"] in seen or not len(row["negatives"]):
            continue
        seen.add(row["window_id"])
        context, _ = divide(row["tokens"], row["context_length"], row["direction"])
        sampled = np.array(row["negatives"][0], np.int32)
        yield row["window_id"], row["tokens"], join(context, sampled, row["direction"])


def row_of(text: str, energies: NDArray[np.float64]) -> dict[str, Any]:
    mean, error = mean_and_error(energies)
    return {
        "text": text,
        "windows": len(energies),
        "energy": mean,
        "standard_error": error,
        "deviation": float(energies.std()),
        "called_real": float((energies < 0).mean()),
    }


@styled
def figure_of(energies: dict[str, NDArray[np.float64]]) -> "Figure":
    figure, axes = panels()
    edges = np.histogram_bin_edges(np.concatenate(list(energies.values())), bins=30)
    for name, found in energies.items():
        axes.hist(found, edges, histtype="stepfilled", color=TEXTS[name], alpha=0.08)
        axes.hist(found, edges, histtype="step", color=TEXTS[name], linewidth=1.5, label=name)
        axes.axvline(found.mean(), color=TEXTS[name], linestyle="--", linewidth=1)
    axes.axvline(0, color=INK, linestyle=":")
    axes.set_xlabel("energy (below 0: called real)")
    axes.set_ylabel("windows")
    axes.legend(ncols=len(energies), loc="lower center", bbox_to_anchor=(0.5, 1))
    return figure


if __name__ == "__main__":
    exit_with(main)
