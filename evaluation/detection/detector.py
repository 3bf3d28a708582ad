"""Distinguishing real texts from generated ones, whatever their length: a text's score is the mean over its blocks.

detector = Detector("models/energy")
detector.score(["Call me Ishmael.", …])     # a Detection for each: score > 0 is real
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from evaluation.joint.scorers import energy_scorer
from pipeline.runtime.errors import UserError
from pipeline.text.blocks import BLOCK_TOKENS, Block, TextEnd, cut_texts
from training.energy.folder import EnergyModelFolder, check_length, open_energy_model
from training.energy.inputs import Sequences, pad

BATCHES = 8  # of blocks that are laid out in memory together, so that those of equal length find each other


@dataclass(frozen=True)
class Detection:
    """What is found of one text: the mean of s = -E over its blocks, or why there is none.

    `short` texts have fewer tokens than one block: their score is that of less than the model was made for.
    """

    score: float | None
    blocks: int = 0
    tokens: int = 0
    short: bool = False
    problem: str | None = None

    @property
    def probability(self) -> float | None:
        """Of being real, if as many texts are real as not: sigmoid(score)."""
        if self.score is None:
            return None
        return 1 / (1 + math.exp(-self.score)) if self.score >= 0 else 1 - 1 / (1 + math.exp(self.score))

    @property
    def is_real(self) -> bool | None:
        return None if self.score is None else self.score > 0


class Detector:
    """An energy model that reads whole texts, in blocks of as many tokens as it was trained on, or as it can read."""

    def __init__(self, energy: str, block: int | None = None, batch_size: int | None = None):
        self.folder: EnergyModelFolder = open_energy_model(energy)
        self.block = block_length(self.folder, block)
        self.encoder = self.folder.encoder
        self.scorer = energy_scorer(self.folder, batch_size)

    def score(self, texts: Iterable[str]) -> list[Detection]:
        """One result a text; an empty text, or one that UTF-8 cannot spell, has no score but a problem."""
        return list(self.stream([text] for text in texts))

    def stream(
        self, texts: Iterable[Iterable[str]], read: Callable[[int], object] = lambda characters: None
    ) -> Iterator[Detection]:
        """The same for texts in pieces, in memory that does not grow with them.

        `read` is called with the number of characters whenever some have been scored.
        """
        waiting: list[Block] = []
        ended: list[TextEnd] = []
        sums: dict[int, float] = defaultdict(float)
        counts: dict[int, int] = defaultdict(int)

        def settle() -> Iterator[Detection]:
            for block, score in zip(waiting, self._scores(waiting), strict=True):
                sums[block.text] += score
                counts[block.text] += 1
            read(sum(block.characters for block in waiting) + sum(text.characters for text in ended))
            for text in ended:
                yield self._result(text, sums.pop(text.text, 0.0), counts.pop(text.text, 0))
            waiting.clear()
            ended.clear()

        for found in cut_texts(texts, self.encoder, self.block):
            if isinstance(found, Block):
                waiting.append(found)
            else:
                ended.append(found)
            if len(waiting) >= BATCHES * self.scorer.batch_size:
                yield from settle()
        yield from settle()

    def _scores(self, blocks: list[Block]) -> list[float]:
        if not blocks:
            return []
        padded = pad([block.tokens for block in blocks])
        windows = Sequences(padded.ids[:, None], padded.lengths[:, None])
        energies = self.scorer.energies(windows, context_length=0)[:, 0]
        if not np.isfinite(energies).all():
            raise UserError(f"{self.folder.name}: it gives a text an energy that is no number: train it again")
        return list((-energies).tolist())

    def _result(self, text: TextEnd, total: float, blocks: int) -> Detection:
        if text.problem is not None:
            return Detection(None, problem=text.problem)
        return Detection(total / blocks, blocks, text.tokens, text.tokens < self.block)


def block_length(folder: EnergyModelFolder, wanted: int | None) -> int:
    """The paper's 160 tokens, or as many as the model can read; one that was asked for must fit."""
    longest = None if folder.config.own_tokenizer else folder.config.longest
    if wanted is None:
        return BLOCK_TOKENS if longest is None else min(BLOCK_TOKENS, longest)
    if wanted < 1:
        raise UserError(f"--block {wanted}: at least 1")
    check_length(folder.config, wanted, f"--block {wanted}", folder.name)
    return wanted
