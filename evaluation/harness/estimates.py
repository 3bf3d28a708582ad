"""Log-likelihoods of passages under the joint model, between bounds.

  log P(y | x) = log P_phi(y | x) - E(x, y) - log Z(x),  Z(x) = E[exp(-E(x, y'))] over y' ~ P_phi(. | x), as long as y

Z is estimated from n samples of every different prompt and length, drawn at temperature 1 with seeds that are a hash
of (run seed, prompt, length): whatever else is asked, and in whatever order, a passage has the same bounds.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evaluation.harness.pair import Pair
from evaluation.harness.passages import Ids, Passage
from evaluation.joint.bounds import log_partition_bounds
from pipeline.engines.sampling import TEMPERATURE, TOP_K, Completions, Sampling, request_seed

AT_ONCE = 16  # prompts whose samples are in memory together
GREEDY = Sampling(TOP_K, top_k=1)


@dataclass(frozen=True)
class Estimate:
    """Log P of a passage is above `lower` and below `upper`, as far as samples can say; without an energy, exactly."""

    lower: float
    upper: float
    effective_samples: float | None  # None without an energy
    is_greedy: bool


def estimates(
    pair: Pair, passages: Sequence[Passage], samples: int, seed: int, greedy: bool = False
) -> Iterator[tuple[Passage, Estimate]]:
    """Of every different passage, in an order of their own; with `greedy`, whether it is what greed would write."""
    families: dict[tuple[Ids, int], list[Passage]] = defaultdict(list)
    for passage in dict.fromkeys(passages):
        families[passage.shape].append(passage)
    # Those of equal shape run together.
    order = sorted(families, key=lambda shape: (len(shape[0]), shape[1]))
    for first in range(0, len(order), AT_ONCE):
        yield from _together(pair, [families[shape] for shape in order[first : first + AT_ONCE]], samples, seed, greedy)


def address(seed: int, purpose: str, prompt: Ids, length: int, number: int = 0) -> int:
    """The seed of a prompt's first sample."""
    digest = hashlib.blake2b(np.array(prompt, np.int64).tobytes(), digest_size=16).hexdigest()
    return request_seed(seed, f"{purpose} {digest} {length} {number}", len(prompt))


def _together(
    pair: Pair, families: list[list[Passage]], samples: int, seed: int, greedy: bool
) -> Iterator[tuple[Passage, Estimate]]:
    shapes = [family[0].shape for family in families]
    prompts, lengths = [prompt for prompt, _ in shapes], [length for _, length in shapes]
    everyone = [passage for family in families for passage in family]
    log_p = iter(pair.log_prob([one.prompt for one in everyone], [one.completion for one in everyone]).tolist())
    seeds = [address(seed, "likelihood", *shape) for shape in shapes]
    written = pair.sample(prompts, lengths, seeds, GREEDY, 1) if greedy else None
    drawn = None
    if pair.joint is not None:
        drawn = pair.sample(prompts, lengths, seeds, Sampling(TEMPERATURE), samples)
    for number, family in enumerate(families):
        own = np.array([next(log_p) for _ in family])
        choice = None if written is None else written[number]
        yield from zip(
            family,
            _exact(family, own, choice) if drawn is None else _bounded(pair, family, own, choice, drawn[number]),
            strict=True,
        )


def _exact(family: list[Passage], log_p: NDArray[np.float64], written: Completions | None) -> Iterator[Estimate]:
    """The language model's own log-likelihoods; greed writes the likeliest token, one after the other."""
    for passage, own in zip(family, log_p.tolist(), strict=True):
        is_greedy = written is not None and passage.completion == tuple(written.tokens[0].tolist())
        yield Estimate(own, own, None, is_greedy)


def _bounded(
    pair: Pair,
    family: list[Passage],
    log_p: NDArray[np.float64],
    written: Completions | None,
    drawn: Completions,
) -> Iterator[Estimate]:
    """Those of the joint model, and whether anything that was drawn, or greed wrote, is likelier."""
    own = np.array([passage.completion for passage in family], np.int32)
    others, others_log_p = drawn.tokens, drawn.log_p
    if written is not None:
        others, others_log_p = np.vstack([others, written.tokens]), np.append(others_log_p, written.log_p)
    energies = pair.energies(family[0].prompt, np.vstack([own, others]))
    scores, others_scores = log_p - energies[: len(own)], others_log_p - energies[len(own) :]
    bounds = log_partition_bounds(-energies[len(own) : len(own) + len(drawn.tokens)])
    for tokens, score in zip(own, scores.tolist(), strict=True):
        rivals = others_scores[(others != tokens).any(1)]
        yield Estimate(
            lower=score - float(bounds.upper),
            upper=score - float(bounds.lower),
            effective_samples=float(bounds.effective_samples),
            is_greedy=written is not None and bool(score >= rivals.max(initial=-np.inf)),
        )
