"""A few tokens replaced, chosen by the energy's gradient, so that real text looks generated and generated text real.

  python evaluation/analyses/gradient_replacement.py --energy models/books-energy --generator models/books-tiny \\
      --store stores/books-test-negatives --tokens 5 --limit 20 --output results/gradient-replacement

To first order the token v in place of x_t changes the energy by (e_v - e_(x_t)) · dE/de_t, e being embeddings. The
--tokens places of the completion where the best v does most are changed at once, as in the paper; --greedy changes one,
takes the gradient anew, and so on. Perplexity is the language model's, of the completion given its context.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evaluation.analyses.analysis import Analysis, AnalysisSettings, provenance_of, run, write
from evaluation.analyses.first_order import (
    HIGHER,
    LOWER,
    Tokens,
    check_has_embeddings,
    find_replacements,
    replaced,
)
from evaluation.analyses.inputs import (
    energies_of,
    energy_of,
    energy_setting,
    generator_setting,
    language_model_of,
    limit_setting,
    store_of,
    store_setting,
)
from evaluation.joint.exact import open_base
from evaluation.joint.scorers import energy_scorer
from evaluation.results.figures import BASE, INK, JOINT, REAL, panels, styled
from pipeline.engines.generator import Generator
from pipeline.runtime.errors import UserError, exit_with
from pipeline.runtime.progress import Bar
from pipeline.runtime.settings import setting
from pipeline.stores.reader import Store
from pipeline.text.tokenizer import TextEncoder, load_tokenizer
from schemas.division import completion_start, divide, join

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from evaluation.joint.energy_scorer import EnergyScorer

GOALS = {("real", HIGHER): BASE, ("real", LOWER): REAL, ("generated", LOWER): JOINT}
WINDOWS_IN_FIGURE = 40  # windows of each goal in the figure


@dataclass(frozen=True)
class Models:
    """What the windows are judged with."""

    scorer: "EnergyScorer"
    generator: Generator
    encoder: TextEncoder

    def judge(self, windows: Sequence[Tokens], context_length: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Scores -E, and perplexities of the completions."""
        pairs = [divide(window, context_length, self.generator.model.direction) for window in windows]
        contexts, completions = zip(*pairs, strict=True)
        lengths = np.array([len(completion) for completion in completions])
        return -energies_of(windows, self.scorer), np.exp(-self.generator.log_prob(contexts, completions) / lengths)


@dataclass(frozen=True, kw_only=True)
class GradientReplacementSettings(AnalysisSettings):
    """Both models, negatives, and how many of their tokens are replaced."""

    energy: str = energy_setting()
    generator: str = generator_setting()
    store: str = store_setting()
    tokens: int = setting(5, help="that are replaced (default: 5)", metavar="K", least=1)
    limit: int = limit_setting(20)
    greedy: bool = setting(False, help="one after another, with a new gradient for each")


def main(arguments: Sequence[str] | None = None) -> int:
    return run(GradientReplacementSettings, analyse, arguments, __doc__)


def analyse(settings: GradientReplacementSettings) -> Analysis:
    """Score and perplexity of real and generated windows before and after tokens were replaced."""
    store, energy = store_of(settings.store, "negatives"), energy_of(settings.energy)
    check_has_embeddings(energy)
    energy.check_fits(int(store.manifest.settings["window"]), store.manifest.tokenizer, store.path)
    generator = language_model_of(settings.generator)
    models = Models(energy_scorer(energy), open_base(generator.name, store), load_tokenizer(generator.folder))
    total = min(settings.limit, len(store))
    windows = Bar(islice(texts(store), settings.limit), total=total, desc="replacing", unit=" windows")
    examples = [example(models, window, text, goal, settings) for window in windows for text, goal in GOALS]
    if not examples:
        raise UserError(f"{store.path}: there are no windows in it")
    analysis = Analysis(
        analysis="gradient_replacement",
        title="Tokens replaced along the gradient of the energy",
        description="Score and perplexity of windows before and after a few tokens were replaced to change the energy.",
        rows=[summary(examples, text, goal) for text, goal in GOALS],
        examples=examples,
        **provenance_of(settings, {"energy": energy, "generator": generator, "store": store}),
    )
    return write(analysis, figure_of(examples), settings.output)


def texts(store: Store) -> Iterator[dict[str, Any]]:
    """Every context once: the real window, and the one with its first sample."""
    for row in store.rows(["window_id", "tokens", "direction", "context_length", "first_sample", "negatives"]):
        if row["first_sample"] or not len(row["negatives"]):
            continue
        context, _ = divide(row["tokens"], row["context_length"], row["direction"])
        sampled = np.array(row["negatives"][0], np.int32)
        generated = join(context, sampled, row["direction"])
        start = completion_start(len(context), row["direction"])
        places = range(start, start + len(sampled))
        yield row | {"real": row["tokens"], "generated": generated, "places": places}


def example(
    models: Models, window: dict[str, Any], text: str, goal: str, settings: GradientReplacementSettings
) -> dict[str, Any]:
    """One window before and after, and with each of the new tokens alone."""
    tokens, length, direction = window[text], int(window["context_length"]), window["direction"]
    size = models.encoder.vocabulary_size
    found = find_replacements(
        models.scorer.model, tokens, window["places"], settings.tokens, goal, size, settings.greedy
    )
    after = replaced(tokens, found)
    scores, perplexities = models.judge([tokens, after, *(replaced(tokens, [one]) for one in found)], length)
    shown = [models.encoder.decode(part) for ids in (tokens, after) for part in divide(ids, length, direction)]
    return {
        "window_id": window["window_id"],
        "text": text,
        "goal": goal,
        "context": shown[0],
        "before": shown[1],
        "after": shown[3],
        "score_before": float(scores[0]),
        "score_after": float(scores[1]),
        "perplexity_before": float(perplexities[0]),
        "perplexity_after": float(perplexities[1]),
        "estimated_change": -sum(one.estimate for one in found),
        "replaced": [
            {
                "position": one.place + 1,
                "old": models.encoder.decode([one.old]),
                "new": models.encoder.decode([one.new]),
                "new_id": one.new,
                "score": float(score),
                "perplexity": float(perplexity),
            }
            for one, score, perplexity in zip(found, scores[2:], perplexities[2:], strict=True)
        ],
    }


def summary(examples: Sequence[dict[str, Any]], text: str, goal: str) -> dict[str, Any]:
    """Means over the windows, of perplexities the geometric one."""
    own = [one for one in examples if (one["text"], one["goal"]) == (text, goal)]
    row: dict[str, Any] = {"text": text, "goal": f"{goal} energy", "windows": len(own)}
    for name in ("before", "after"):
        scores = np.array([one[f"score_{name}"] for one in own])
        row[f"score_{name}"], row[f"called_real_{name}"] = float(scores.mean()), float((scores > 0).mean())
        row[f"perplexity_{name}"] = float(np.exp(np.mean(np.log([one[f"perplexity_{name}"] for one in own]))))
    row["estimated_change"] = float(np.mean([one["estimated_change"] for one in own]))
    return row


@styled
def figure_of(examples: Sequence[dict[str, Any]]) -> "Figure":
    figure, axes = panels()
    for (text, goal), colour in GOALS.items():
        own = [one for one in examples if (one["text"], one["goal"]) == (text, goal)][:WINDOWS_IN_FIGURE]
        starts, ends = (
            np.array([[one[f"perplexity_{name}"], one[f"score_{name}"]] for one in own]) for name in ("before", "after")
        )
        axes.plot([starts[:, 0], ends[:, 0]], [starts[:, 1], ends[:, 1]], color=colour, alpha=0.3, linewidth=0.8)
        axes.scatter(*starts.T, s=18, facecolors="none", edgecolors=colour, linewidths=1)
        axes.scatter(*ends.T, s=18, color=colour, linewidths=0, label=f"{text}, towards {goal} energy")
    axes.axhline(0, color=INK, linestyle=":", linewidth=1)
    axes.set_xscale("log")
    axes.set_xlabel("perplexity of the completion: ○ before, ● after")
    axes.set_ylabel("score -E (above 0: called real)")
    axes.legend(ncols=1, loc="lower left", bbox_to_anchor=(0, 1))
    return figure


if __name__ == "__main__":
    exit_with(main)
