"""What a changed token does to the energy and to the language model's likelihood, position by position.

  python evaluation/analyses/perturbations.py --energy models/books-energy --generator models/books-tiny \\
      --windows stores/books-test --limit 100 --output results/perturbations

Every position of a real window in turn is perturbed: its token is replaced by a random one, or changes places with the
next. Reported are the mean changes of the energy and of the negative log-likelihood of the whole window. A window of
160 tokens is scored 320 times by each model. A killed run continues when the same command is given again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
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
    generator_setting,
    language_model_of,
    limit_setting,
    scorers_for,
    seed_setting,
    store_of,
    store_setting,
)
from evaluation.joint.scorers import Scorer
from evaluation.results.cache import ResultCache
from evaluation.results.figures import BASE, INK, JOINT, panels, styled
from pipeline.engines.sampling import request_seed
from pipeline.runtime import files
from pipeline.runtime.errors import UserError, exit_with
from pipeline.runtime.progress import Bar
from pipeline.stores.reader import Store

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REPLACEMENT, SWAP = KINDS = ("replacement", "swap")
MODELS = {"energy": JOINT, "nll": BASE}
WORDS = {"energy": "change of the energy", "nll": "change of the negative\nlog-likelihood"}
CACHE = "windows.json"
# By kind, then by model, the change at every position; None where the two tokens that change places are the same.
Changes = dict[str, dict[str, list[float | None]]]


@dataclass(frozen=True, kw_only=True)
class PerturbationsSettings(AnalysisSettings):
    """Both models, and the real windows that are perturbed."""

    energy: str = energy_setting()
    generator: str = generator_setting()
    windows: str = store_setting("real windows")
    limit: int = limit_setting(100)
    seed: int = seed_setting("the random tokens")


def main(arguments: Sequence[str] | None = None) -> int:
    return run(PerturbationsSettings, analyse, arguments, __doc__)


def analyse(settings: PerturbationsSettings) -> Analysis:
    """What a replaced token, and two that change places, add to the energy and to the negative log-likelihood."""
    store = store_of(settings.windows, "windows")
    energy, generator = energy_of(settings.energy), language_model_of(settings.generator)
    scorers: dict[str, Scorer] = dict(zip(MODELS, scorers_for(store, energy, generator), strict=True))
    changes = all_changes(store, scorers, settings, f"{energy.weights_digest} {generator.weights_digest}")
    rows = rows_of(changes)
    analysis = Analysis(
        analysis="perturbations",
        title="Perturbations of real windows, by position",
        description="Mean change of the energy and of the language model's negative log-likelihood of real windows.",
        rows=rows,
        **provenance_of(settings, {"energy": energy, "generator": generator, "windows": store}, windows=len(changes)),
    )
    return write(analysis, figure_of(rows), settings.output)


def all_changes(
    store: Store, scorers: dict[str, Scorer], settings: PerturbationsSettings, digests: str
) -> list[Changes]:
    """Window by window; those that a killed run computed, with models of these digests, are not computed again."""
    cache = ResultCache(files.join(settings.output, CACHE))
    size = int(store.manifest.tokenizer["vocabulary_size"])
    if size < 2:
        raise UserError(f"{store.path}: a vocabulary of one token has no other to take its place")
    rows = islice(store.rows(["window_id", "tokens"]), settings.limit)
    found = []
    for row in Bar(rows, total=min(settings.limit, len(store)), desc="perturbing", unit=" windows"):
        seed = request_seed(settings.seed, row["window_id"], 0)
        found.append(cache.get(f"{seed} {digests}", partial(changes_of, row["tokens"], scorers, size, seed)))
    if not found:
        raise UserError(f"{store.path}: there are no windows in it")
    cache.save()
    return found


def changes_of(tokens: Tokens, scorers: dict[str, Scorer], size: int, seed: int) -> Changes:
    """What each perturbation of one window adds to its energy and to its negative log-likelihood."""
    perturbed = {REPLACEMENT: replacements(tokens, size, seed), SWAP: swaps(tokens)}
    found: Changes = {kind: {} for kind in KINDS}
    for model, scorer in scorers.items():
        values = energies_of([tokens, *perturbed[REPLACEMENT], *perturbed[SWAP]], scorer)
        added = (values[1:] - values[0]).tolist()
        found[REPLACEMENT][model] = added[: len(tokens)]
        same = tokens[:-1] == tokens[1:]
        found[SWAP][model] = [None if equal else one for equal, one in zip(same, added[len(tokens) :], strict=True)]
    return found


def replacements(tokens: Tokens, size: int, seed: int) -> NDArray[np.int32]:
    """(length, length): in row t a random token, any of the vocabulary's others, is at place t."""
    steps = np.random.default_rng(seed).integers(1, size, size=len(tokens))
    windows = np.repeat(tokens[None], len(tokens), axis=0)
    np.fill_diagonal(windows, (tokens + steps) % size)
    return windows


def swaps(tokens: Tokens) -> NDArray[np.int32]:
    """(length - 1, length): in row t the tokens at t and t + 1 have changed places."""
    places = np.arange(len(tokens) - 1)
    windows = np.repeat(tokens[None], len(places), axis=0)
    windows[places, places], windows[places, places + 1] = tokens[1:], tokens[:-1]
    return windows


def rows_of(changes: Sequence[Changes]) -> list[dict[str, Any]]:
    """A row for every kind and position, counted from 1 as in the paper."""
    rows = []
    for kind in KINDS:
        for place in range(len(changes[0][kind]["energy"])):
            row: dict[str, Any] = {"perturbation": kind, "position": place + 1}
            for model in MODELS:
                values = [value for own in changes if (value := own[kind][model][place]) is not None]
                row["windows"] = len(values)
                row[model], row[f"{model}_error"] = mean_and_error(values) if values else (None, None)
            rows.append(row)
    return rows


@styled
def figure_of(rows: list[dict[str, Any]]) -> "Figure":
    figure, axes = panels(1, 2, sharex=True)
    for place, model in zip(axes, MODELS, strict=True):
        for kind, line in zip(KINDS, ("-", "--"), strict=True):
            own = [row for row in rows if row["perturbation"] == kind and row[model] is not None]
            xs, ys = [row["position"] for row in own], np.array([row[model] for row in own])
            errors = np.array([row[f"{model}_error"] or 0 for row in own])
            place.plot(xs, ys, line, color=MODELS[model], linewidth=1.5, label=kind)
            place.fill_between(xs, ys - 2 * errors, ys + 2 * errors, color=MODELS[model], alpha=0.2, linewidth=0)
        place.axhline(0, color=INK, linewidth=0.8)
        place.set_ylabel(WORDS[model])
        place.legend(ncols=len(KINDS), loc="lower right", bbox_to_anchor=(1, 1))
    axes[-1].set_xlabel("position of the change in the window")
    return figure


if __name__ == "__main__":
    exit_with(main)
