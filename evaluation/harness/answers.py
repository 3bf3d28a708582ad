"""Texts that a model writes until it is stopped: Algorithm 1 of the paper, and then the cut.

The samples are drawn and weighed whole, all of one length, and the chosen one is cut where it should have stopped. So
an answer is distributed as the beginning of what the joint model would have written. Energies of samples that were cut
before, to many lengths, would not be comparable: they would choose by length.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from evaluation.harness.estimates import AT_ONCE, address
from evaluation.harness.pair import Pair
from evaluation.harness.passages import Ids
from evaluation.joint.model import Draw, resample
from pipeline.engines.sampling import Sampling, uniform


@dataclass(frozen=True)
class Question:
    """A prompt, how many tokens may follow it, and how often the same has been asked before."""

    prompt: Ids
    length: int
    number: int = 0


@dataclass(frozen=True)
class Answer:
    """The tokens that were chosen, and of how many samples' worth they were."""

    tokens: Ids
    effective_samples: float | None


def answers(
    pair: Pair, questions: Sequence[Question], sampling: Sampling, samples: int, seed: int
) -> Iterator[tuple[Question, Answer]]:
    """Without an energy, the first of the samples that there would be with one."""
    order = sorted(dict.fromkeys(questions), key=lambda one: (len(one.prompt), one.length))
    n = samples if pair.joint is not None else 1
    for first in range(0, len(order), AT_ONCE):
        some = order[first : first + AT_ONCE]
        seeds = [address(seed, "answer", one.prompt, one.length, one.number) for one in some]
        prompts, lengths = [one.prompt for one in some], [one.length for one in some]
        drawn = pair.sample(prompts, lengths, seeds, sampling, n)
        # The samples have the seeds before this one.
        numbers = uniform(np.array([own + samples for own in seeds], np.uint64), 1)[:, 0]
        for question, completions, u in zip(some, drawn, numbers.tolist(), strict=True):
            energies = pair.energies(question.prompt, completions.tokens)
            draw = Draw(completions.tokens, energies, resample(-energies, u))
            tokens = tuple(draw.completions[draw.chosen].tolist())
            yield question, Answer(tokens, None if pair.joint is None else draw.effective_samples)


def room_for(asked: int, prompt: int, window: int) -> int:
    """How long an answer may be: as asked, as far as the prompt leaves room, or else half of the window."""
    return max(1, min(asked, max(window + 1 - prompt, (window + 1) // 2)))


def before_end(tokens: Ids, end: int) -> Ids:
    return tokens[: tokens.index(end)] if end in tokens else tokens


def before_stops(text: str, stops: Sequence[str]) -> str:
    """A text up to the first of the strings that stop it; an empty one stops nothing."""
    return text[: min((place for stop in stops if stop and (place := text.find(stop)) >= 0), default=len(text))]
