"""The next token where the base model repeats itself: its probabilities, and the joint model's.

  python evaluation/analyses/repetition_next_token.py --energy models/books-energy --generator models/books-tiny \\
      --samples results/books-samples --output results/next-token

The points are taken from the base model's own samples (evaluation/sample_joint.py): the first token of a completion
that is one of the --near tokens before it. There log P(x_t | x_<t) of the joint model is estimated for the generator's
--words likeliest tokens, with --completions completions of each, as in the paper; the --top best of either model are
shown, renormalised. A killed run continues when the same command is given again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evaluation.analyses.analysis import Analysis, AnalysisSettings, mean_and_error, provenance_of, run, write
from evaluation.analyses.inputs import (
    JointSamples,
    Tokens,
    energy_of,
    energy_setting,
    generator_setting,
    language_model_of,
    samples_of,
    samples_setting,
    seed_setting,
)
from evaluation.joint.exact import next_log_probs
from evaluation.joint.model import JointModel
from evaluation.results.cache import ResultCache
from evaluation.results.figures import INK, JOINT, panels, styled
from pipeline.engines.sampling import Sampling, request_seed
from pipeline.runtime import files
from pipeline.runtime.errors import UserError, exit_with
from pipeline.runtime.progress import Bar
from pipeline.runtime.settings import setting
from pipeline.text.tokenizer import TextEncoder, load_tokenizer
from schemas.division import reading_order

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Numbers = NDArray[np.float64]
CACHE = "points.json"


@dataclass(frozen=True)
class Point:
    """Where a sample repeats itself: what comes before it, in the generator's order, and the tokens near it."""

    window_id: str
    before: Tokens
    left: int  # tokens to the end of the window, the one at this point included
    near: frozenset[int]
    token: int


@dataclass(frozen=True, kw_only=True)
class RepetitionNextTokenSettings(AnalysisSettings):
    """Samples, their two models, and where and how closely next tokens are looked at."""

    energy: str = energy_setting("the energy model of the samples")
    generator: str = generator_setting("their language model")
    samples: str = samples_setting()
    points: int = setting(20, help="of repetition (default: 20)", metavar="N", least=1)
    near: int = setting(4, help="tokens one of which is repeated (default: 4)", metavar="N", least=1)
    # The flag is older than the method of that name, which nothing calls here: an analysis leaves no record.
    words: int = setting(128, help="candidates (default: 128)", metavar="N", least=1)
    completions: int = setting(1000, help="of a candidate (default: 1000)", metavar="N", least=1)
    top: int = setting(10, help="candidates that are shown (default: 10)", metavar="N", least=1)
    seed: int = seed_setting("the completions")


def main(arguments: Sequence[str] | None = None) -> int:
    return run(RepetitionNextTokenSettings, analyse, arguments, __doc__)


def analyse(settings: RepetitionNextTokenSettings) -> Analysis:
    """The probability of a nearby token again, under both models, where the base model repeats itself."""
    samples = samples_of(settings.samples)
    energy, generator = energy_of(settings.energy), language_model_of(settings.generator)
    for role, model in (("energy", energy), ("generator", generator)):
        samples.check_model(model, role)
    joint = JointModel(settings.generator, settings.energy, Sampling(), window_length=longest(samples))
    points = list(islice(points_of(samples, settings.near), settings.points))
    if not points:
        raise UserError(f"{samples.path}: no base sample repeats one of the {settings.near} tokens before: see --near")
    digests = f"{energy.weights_digest} {generator.weights_digest}"
    pairs = zip(points, probabilities(points, joint, settings, digests), strict=True)
    encoder = load_tokenizer(generator.folder)
    examples = [example(point, *own, settings.top, encoder, joint.direction) for point, own in pairs]
    analysis = Analysis(
        analysis="repetition_next_token",
        title="Next token where the base model repeats itself",
        description="The probability of repeating a nearby token, under the base and under the joint model.",
        rows=rows_of(examples),
        examples=examples,
        **provenance_of(settings, {"energy": energy, "generator": generator, "samples": samples}),
    )
    return write(analysis, figure_of(examples), settings.output)


def longest(samples: JointSamples) -> int:
    return max(len(window) for window in samples.windows("base"))


def points_of(samples: JointSamples, near: int) -> Iterator[Point]:
    """The first repetition of every base sample that has one."""
    pairs = zip(samples.contexts(), samples.completions("base"), strict=True)
    for name, (context, completion) in zip(samples.table["window_id"].to_pylist(), pairs, strict=True):
        # In the generator's order the context is what comes first.
        first, then = (reading_order(part, samples.direction) for part in (context, completion))
        place = first_repetition(first, then, near)
        if place is not None:
            window = np.concatenate([first, then])
            before = window[:place]
            yield Point(name, before, len(window) - place, frozenset(before[-near:].tolist()), int(window[place]))


def first_repetition(context: Tokens, completion: Tokens, near: int) -> int | None:
    """The place in the window of the completion's first token that is one of the `near` before it."""
    window = np.concatenate([context, completion]).tolist()
    for place in range(len(context), len(window)):
        if window[place] in window[max(0, place - near) : place]:
            return place
    return None


def probabilities(
    points: Sequence[Point], joint: JointModel, settings: RepetitionNextTokenSettings, digests: str
) -> list[tuple[NDArray[np.int64], Numbers, Numbers]]:
    """For each point the candidates, and log P of each under the base and the joint model, over all candidates."""
    cache = ResultCache(files.join(settings.output, CACHE))
    found = []
    for point in Bar(points, desc="reading on", unit=" points"):
        seed = request_seed(settings.seed, point.window_id, len(point.before))
        key = f"{seed} {digests} {settings.words} {settings.completions}"
        columns = cache.get(key, partial(candidates, point, joint, settings, seed))
        found.append((np.array(columns[0], np.int64), np.array(columns[1]), np.array(columns[2])))
    cache.save()
    return found


def candidates(point: Point, joint: JointModel, settings: RepetitionNextTokenSettings, seed: int) -> list[list[float]]:
    context = reading_order(point.before, joint.direction)
    tokens, weights = joint.next_token(context, point.left, seed, settings.words, settings.completions)
    base = next_log_probs(joint.generator, context)[tokens]
    return [tokens.tolist(), normalised(base).tolist(), normalised(weights).tolist()]


def normalised(log_weights: Numbers) -> Numbers:
    """Log-weights as log-probabilities."""
    return np.asarray(log_weights - np.logaddexp.reduce(log_weights), np.float64)


def example(
    point: Point,
    tokens: NDArray[np.int64],
    base: Numbers,
    joint: Numbers,
    top: int,
    encoder: TextEncoder,
    direction: str,
) -> dict[str, Any]:
    """The best candidates of either model, renormalised among themselves, and how much goes to repetitions."""
    repeats = np.isin(tokens, list(point.near))
    shown: dict[str, Any] = {
        "window_id": point.window_id,
        "position": len(point.before) + 1,
        "context": encoder.decode(reading_order(point.before, direction)),
        "token": encoder.decode([point.token]),
    }
    for name, log_p in (("base", base), ("joint", joint)):
        best = np.argsort(-log_p, kind="stable")[:top]
        p = np.exp(normalised(log_p[best]))
        shown[f"{name}_repeats"] = float(np.exp(log_p)[repeats].sum())
        shown[name] = [
            {"token": encoder.decode([tokens[place]]), "probability": float(value), "repeats": bool(repeats[place])}
            for place, value in zip(best, p, strict=True)
        ]
    return shown


def rows_of(examples: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The mean probability of repeating one of the tokens nearby, and the difference, point by point."""
    base, joint = (np.array([one[f"{name}_repeats"] for one in examples]) for name in ("base", "joint"))
    rows = []
    for name, values in (("base", base), ("joint", joint), ("joint - base", joint - base)):
        mean, error = mean_and_error(values)
        rows.append({"model": name, "points": len(values), "repeats": mean, "standard_error": error})
    return rows


@styled
def figure_of(examples: Sequence[dict[str, Any]]) -> "Figure":
    figure, axes = panels()
    base, joint = ([one[f"{name}_repeats"] for one in examples] for name in ("base", "joint"))
    most = min(1.0, 1.1 * max(*base, *joint))
    axes.plot([0, most], [0, most], color=INK, linestyle=":", linewidth=1)
    axes.scatter(base, joint, s=22, color=JOINT, alpha=0.8, linewidths=0)
    axes.set_xlim(0, most)
    axes.set_ylim(0, most)
    axes.set_aspect("equal")
    axes.set_xlabel("base model: probability of a nearby token again")
    axes.set_ylabel("joint model: the same")
    return figure


if __name__ == "__main__":
    exit_with(main)
