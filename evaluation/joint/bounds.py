"""Log Z from samples of the generator: a lower and an upper estimate, how far to trust them, and perplexity.

The partition function is Z = E[exp(-E(x))] over x ~ P_phi. With the scores s_i = -E(x_i) of n samples, by the paper's
theorem on bounds of log Z (which writes Z for log Z), after Nowozin 2018:

  lower     T_n = log mean of exp(s_i)
  upper     (2n-1) T_n - 2(n-1) T̄,  T̄ the mean of the n estimates T_{n-1,i} that leave one sample out
  midpoint  n T_n - (n-1) T̄, the order-1 jackknife estimate: the mean of the two

In expectation the lower estimate is below log Z for every n, the upper one is above it only asymptotically: with
heavy-tailed weights exp(s_i) it can lie below at the n at hand, which is what `warnings_about` is for.
"""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pipeline.runtime.errors import UserError
from pipeline.runtime.html import html_list, html_table

# The first-order bias of T_n is -(n / effective samples - 1) / (2n), so with fewer than these the bounds are about a
# tenth of a nat apart and more, and the expansion in 1/n that the upper one rests on is no longer a small correction.
# Of fewer than 20 samples half of them must do, or equal weights would be called uneven.
LEAST_EFFECTIVE_SAMPLES = 10
# Below this the weights' variance is beyond 99 times their mean's square, and known from those few samples alone.
LEAST_EFFECTIVE_SHARE = 0.01
# From 0.5 on the weights' variance, on which the theorem rests, is infinite, and from 0.7 on a mean converges too
# slowly to be had (Vehtari et al. 2024). The estimate is noisy and drawn towards 0.5: a line there would cry wolf.
HIGHEST_TAIL_INDEX = 0.7
# The tail is the largest fifth of up to 225 samples, and a fit to fewer than 5 of them would say nothing.
LEAST_SAMPLES_OF_TAIL = 25
NAMED = 5  # contexts that a warning lists
SHOWN = 10  # contexts that a notebook shows

Values = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LogPartitionBounds:
    """Estimates of log Z, one for all the scores of shape (n,), one a context for scores of shape (contexts, n)."""

    lower: Values
    upper: Values
    midpoint: Values
    standard_error: Values  # of the lower estimate, by the jackknife
    effective_samples: Values  # 1 / sum of p_i^2 with p = softmax(s): n where all weigh the same, 1 where one has all
    scores: Values = field(repr=False)

    @cached_property
    def tail_index(self) -> Values:
        """See the function of that name; when first asked for, because it sorts."""
        return tail_index(self.scores)

    def _repr_html_(self) -> str:
        """In a notebook: the first contexts' bounds, and what speaks against them."""
        scores = np.atleast_2d(self.scores)
        first = log_partition_bounds(scores[:SHOWN])
        names = ("lower", "midpoint", "upper", "standard_error", "effective_samples")
        columns = zip(*(getattr(first, name).tolist() for name in names), strict=True)
        rows = [(f"context {number}", *(f"{value:.4f}" for value in row)) for number, row in enumerate(columns)]
        title = f"log Z of {len(scores):,} contexts, from {scores.shape[1]:,} samples each"
        more = [f"{len(scores) - SHOWN:,} more contexts are not shown"] if len(scores) > SHOWN else []
        head = ("", *(name.replace("_", " ") for name in names))
        return html_table(title, rows, head) + html_list([*warnings_about(first), *more])


def log_partition_bounds(scores: ArrayLike) -> LogPartitionBounds:
    """The bounds of log Z from scores -E(x_i), x_i ~ P_phi, of shape (n,) or (contexts, n); O(n), in float64.

    T_{n-1,i} - T_n = log(1-p_i) - log(1-1/n) with p = softmax(s). Where one sample has nearly all the weight its 1-p is
    lost to rounding, so the largest sample's comes from the log-sum of the others.
    """
    scores = _checked(scores)
    n = scores.shape[-1]
    place = scores.argmax(-1, keepdims=True)
    largest = np.take_along_axis(scores, place, -1)
    shifted = scores - largest
    weights = np.exp(shifted)
    p = weights / weights.sum(-1, keepdims=True)
    log_others = _log_sum_without(shifted, place)  # in units of the largest weight
    with np.errstate(divide="ignore"):
        log_left = np.log1p(-p)  # log(1-p_i)
    np.put_along_axis(log_left, place, -np.logaddexp(0, -log_others), -1)
    mean_left = log_left.mean(-1, keepdims=True)
    lower = largest + np.logaddexp(0, log_others) - np.log(n)
    correction = (n - 1) * (np.log1p(-1 / n) - mean_left)  # (n-1) (T_n - T̄)
    return LogPartitionBounds(
        lower=lower[..., 0],
        upper=(lower + 2 * correction)[..., 0],
        midpoint=(lower + correction)[..., 0],
        standard_error=np.sqrt((n - 1) / n * np.square(log_left - mean_left).sum(-1)),
        effective_samples=1 / np.square(p).sum(-1),
        scores=scores,
    )


def tail_index(scores: ArrayLike) -> Values:
    """The index k of the generalised Pareto distribution that fits the tail of the weights exp(s), one a context.

    A distribution with that tail has no finite moments of order 1/k and above. It is nan with fewer than 25 samples,
    and where too many of the tail's weights are equal, or 0 beside the largest, for a fit. O(n log n).
    """
    scores = _checked(scores)
    rows = scores.reshape(-1, scores.shape[-1])
    return np.array([_tail_index(row) for row in rows], np.float64).reshape(scores.shape[:-1])


def warnings_about(bounds: LogPartitionBounds) -> list[str]:
    """A sentence for each reason to doubt that the bounds enclose log Z; none where there is nothing to see.

    No test can see a weight that was never drawn: silence is not proof.
    """
    n = bounds.scores.shape[-1]
    sentences = []
    if n < LEAST_SAMPLES_OF_TAIL:
        sentences.append(
            f"The upper bound on log Z is asymptotic, and {n} samples are too few to say whether the weights are "
            f"heavy-tailed: draw at least {LEAST_SAMPLES_OF_TAIL}."
        )
    least = max(min(LEAST_EFFECTIVE_SAMPLES, n / 2), LEAST_EFFECTIVE_SHARE * n)
    few = bounds.effective_samples < least
    if few.any():
        sentences.append(
            f"The estimate of log Z leans on a few samples{_where(few)}: their weights make {n} samples worth as few "
            f"as {bounds.effective_samples.min():.1f}, and below {least:g} the bounds mean little. "
            f"{more_samples(n, float(bounds.effective_samples.min()))}"
        )
    heavy = bounds.tail_index > HIGHEST_TAIL_INDEX
    if heavy.any():
        sentences.append(
            f"The weights are heavy-tailed{_where(heavy)}: a tail index of up to {np.nanmax(bounds.tail_index):.2f}, "
            f"above {HIGHEST_TAIL_INDEX}, so log Z may well lie above the upper bound, and more samples help slowly."
        )
    return sentences


def more_samples(drawn: int, effective: float) -> str:
    """How to have enough of them: what they are worth grows as their number, if their weights stay of this kind."""
    enough = drawn * LEAST_EFFECTIVE_SAMPLES / max(effective, 1.0)
    rounded = max(LEAST_SAMPLES_OF_TAIL, int(float(f"{1.05 * enough:.1e}")))  # two figures are enough to ask for
    return (
        f"About {rounded:,} of each would do: pipeline/mine_negatives.py --negatives {rounded}, "
        "then evaluation/score.py and evaluation/perplexity_bounds.py again."
    )


def joint_perplexity(log_p: ArrayLike, energy: ArrayLike, log_z: ArrayLike, tokens: ArrayLike) -> float:
    """The joint model's perplexity, exp(-sum(log_p - E - log Z) / sum(tokens)), each argument of shape (windows,).

    That is the log-probability of each real completion under the generator, its energy, log Z of its context, and its
    length. The upper estimate of log Z gives the upper perplexity.
    """
    columns = {"log_p": log_p, "energy": energy, "log_z": log_z, "tokens": tokens}
    arrays = {name: np.asarray(values, np.float64) for name, values in columns.items()}
    shapes = {array.shape for array in arrays.values()}
    if len(shapes) > 1 or any(len(shape) != 1 or shape[0] == 0 for shape in shapes):
        given = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise UserError(
            f"perplexity needs one number a window of each, and at least one window; the shapes are {given}"
        )
    for name, array in arrays.items():
        least = 1 if name == "tokens" else -np.inf
        wrong = ~np.isfinite(array) | (array < least)
        if wrong.any():
            window = int(wrong.argmax())
            needed = "at least 1" if name == "tokens" else "a finite number"
            raise UserError(f"{name} of window {window} is {array[window]}: {needed} is needed")
    # E + log Z first: where the energy is a constant, the two cancel and leave nothing behind.
    total = (arrays["log_p"] - (arrays["energy"] + arrays["log_z"])).sum()
    with np.errstate(over="ignore"):
        return float(np.exp(-total / arrays["tokens"].sum()))


def _checked(scores: ArrayLike) -> Values:
    """The scores in a float64 array of their own, which stays as it is if the caller's changes."""
    array = np.array(scores, np.float64)
    if array.ndim not in (1, 2):
        raise UserError(f"scores have the shape {array.shape}: (n,) or (contexts, n) is needed")
    if array.shape[-1] < 2:
        raise UserError(f"scores have the shape {array.shape}: at least 2 samples are needed to leave one out")
    finite = np.isfinite(array)
    if not finite.all():
        *context, sample = np.argwhere(~finite)[0].tolist()
        of = f" of context {context[0]}" if context else ""
        raise UserError(f"the score of sample {sample}{of} is {array[(*context, sample)]}: a finite number is needed")
    return array


def _log_sum_without(shifted: Values, place: NDArray[np.intp]) -> Values:
    """Log of the sum of exp over all but the one at `place`, scaled by their own largest: nothing underflows to 0."""
    others = shifted.copy()
    np.put_along_axis(others, place, -np.inf, -1)
    second = others.max(-1, keepdims=True)
    return second + np.log(np.exp(others - second).sum(-1, keepdims=True))


def _tail_index(scores: Values) -> float:
    if len(scores) < LEAST_SAMPLES_OF_TAIL:
        return np.nan
    from arviz_stats.base.array import array_stats  # seconds, which neither flags nor a page of results need

    weights = np.exp(scores - scores.max())
    # Without an error, arviz would return a number that its prior alone has chosen where the fit divides by zero.
    with np.errstate(divide="raise", invalid="raise", over="raise"):
        try:
            return float(array_stats.pareto_khat(weights, chain_axis=None, r_eff=1, tail="right"))  # type: ignore[no-untyped-call]
        except (FloatingPointError, ValueError):  # a ValueError where the whole tail is equal
            return np.nan


def _where(found: NDArray[np.bool_]) -> str:
    if found.ndim == 0:
        return ""
    places = np.flatnonzero(found)
    named = ", ".join(map(str, places[:NAMED])) + (", …" if len(places) > NAMED else "")
    return f" in {len(places)} of {len(found)} contexts ({named})"
