"""Sampling from the joint model P(x) ~ P_phi(x) exp(-E(x)): many completions of the generator, one of them chosen.

Algorithm 1 of the paper: draw n completions from P_phi (top-k or not), choose one with probability softmax(-E). As n
grows the choice is a sample of the joint model itself (restricted to what top-k leaves). The slow exact way goes token
by token, with the future of every candidate marginalised by sampling (the paper's appendix C).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evaluation.joint.exact import next_log_probs
from evaluation.joint.scorers import Scorer, open_scorer
from pipeline.engines.choice import TORCH
from pipeline.engines.generator import Generator, open_generator
from pipeline.engines.sampling import TEMPERATURE, TOP_K, Sampling, request_seed, uniform
from pipeline.models.language_model import open_language_model
from pipeline.runtime.errors import UserError
from pipeline.text.tokenizer import load_tokenizer
from schemas.division import completion_start, join, nearest, reading_order
from training.energy.inputs import Sequences

Tokens = NDArray[np.int32]
Numbers = NDArray[np.float64]
WINDOW = 160  # of models that have no limit of their own


@dataclass(frozen=True)
class Draw:
    """The generator's completions of one context, their energies, and which one the joint model takes."""

    completions: Tokens  # (n, length)
    energies: Numbers  # (n,)
    chosen: int

    @property
    def worst(self) -> int:
        """The completion of the highest energy."""
        return int(self.energies.argmax())

    @property
    def effective_samples(self) -> float:
        """1 / sum of p_i^2 with p = softmax(-E): near 1, a single completion outweighs all others."""
        weights = np.exp(self.energies.min() - self.energies)
        return float(weights.sum() ** 2 / np.square(weights).sum())


def resample(scores: Numbers, u: float) -> int:
    """One place with probability softmax(scores), from a uniform number."""
    sums = np.cumsum(np.exp(scores - scores.max()))
    return int(min(np.searchsorted(sums, u * sums[-1], side="right"), len(scores) - 1))


def open_proposal(name: str, sampling: Sampling, engine: str = TORCH, window_length: int | None = None) -> Generator:
    """A generator for windows of a given length, or else as long as its model can read."""
    positions = open_language_model(name).positions
    return open_generator(
        name, sampling, engine, window_length=window_length or (positions - 1 if positions else WINDOW)
    )


class JointModel:
    """A generator and an energy model as one language model; each by its name, or already open."""

    def __init__(
        self,
        generator: Generator | str,
        energy: Scorer | str,
        sampling: Sampling | None = None,
        engine: str = TORCH,
        window_length: int | None = None,
    ):
        if isinstance(generator, str):
            generator = open_proposal(generator, sampling or Sampling(TOP_K), engine, window_length)
        self.generator = generator
        self.energy = open_scorer(energy, generator.window_length) if isinstance(energy, str) else energy
        self.direction = generator.model.direction

    def complete(
        self, contexts: Sequence[Tokens], lengths: Sequence[int], seeds: Sequence[int], samples: int
    ) -> list[Draw]:
        """Algorithm 1 for every context."""
        found = []
        drawn = self.generator.sample(contexts, lengths, seeds, n=samples)
        numbers = uniform(np.array([seed + samples for seed in seeds], np.uint64), 1)[:, 0]
        for context, completions, u in zip(contexts, drawn, numbers, strict=True):
            energies = self.energies(context, completions.tokens)
            found.append(Draw(completions.tokens, energies, resample(-energies, float(u))))
        return found

    def energies(self, context: Tokens, completions: Tokens) -> Numbers:
        """Of the windows that a context and each of its completions, (n, length), make."""
        repeated = np.broadcast_to(np.asarray(context), (len(completions), len(context)))
        windows = join(repeated, completions, self.direction).astype(np.int64)
        sequences = Sequences(windows[None], np.full((1, len(windows)), windows.shape[1]))
        return self.energy.energies(sequences, completion_start(len(context), self.direction))[0]

    def generate(self, prompt: str, samples: int = 100, tokens: int = 40, seed: int = 0) -> str:
        """The joint model's completion of a text (of a right-to-left generator: what comes before it)."""
        encoder = load_tokenizer(self.generator.model.folder)
        most = self.generator.window_length - tokens
        if tokens < 1 or most < 0:
            raise UserError(f"{tokens} tokens: between 1 and the {self.generator.window_length} of a window")
        context = nearest(np.array(encoder.encode([prompt])[0], np.int32), most, self.direction)
        (drawn,) = self.complete([context], [tokens], [request_seed(seed, prompt, len(context))], samples)
        return encoder.decode(drawn.completions[drawn.chosen].tolist())

    def next_token(
        self, context: Tokens, length: int, seed: int, words: int = 128, completions: int = 1000
    ) -> tuple[NDArray[np.int64], Numbers]:
        """The generator's likeliest next tokens, and log P_phi(x_t) + log mean exp(-E) of each, not normalised.

        The mean is over completions at temperature 1 to the end of the window; at the last position there are none,
        and E is that of the window itself.
        """
        generator = self.generator.with_sampling(Sampling(TEMPERATURE))
        log_p = next_log_probs(generator, context)
        tokens = np.argsort(-log_p, kind="stable")[:words]
        extended = [self._extended(context, int(token)) for token in tokens]
        if length == 1:
            scores = -self.energies(context, tokens[:, None].astype(np.int32))
            return tokens, log_p[tokens] + scores
        drawn = generator.sample(
            extended,
            [length - 1] * len(extended),
            [seed + completions * n for n in range(len(extended))],
            n=completions,
        )
        means = []
        for own, samples in zip(extended, drawn, strict=True):
            scores = -self.energies(own, samples.tokens)
            means.append(np.logaddexp.reduce(scores) - np.log(completions))
        return tokens, log_p[tokens] + np.array(means)

    def complete_by_token(
        self, context: Tokens, length: int, seed: int, words: int = 128, completions: int = 1000, top: int = 10
    ) -> Tokens:
        """A completion drawn token by token, each from the `top` best of the joint model's candidates."""
        drawn: list[int] = []
        numbers = uniform(np.array([seed], np.uint64), length)[0]
        for step in range(length):
            tokens, weights = self.next_token(
                context, length - step, request_seed(seed, "token", step), words, completions
            )
            best = np.argsort(-weights, kind="stable")[:top]
            token = int(tokens[best[resample(weights[best], float(numbers[step]))]])
            drawn.append(token)
            context = self._extended(context, token)
        return reading_order(np.array(drawn, np.int32), self.direction)

    def _extended(self, context: Tokens, token: int) -> Tokens:
        return join(context, np.array([token], np.int32), self.direction)
