"""A language model, and the energy that corrects it, as a harness runs them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from evaluation.harness.passages import Ids, text_of
from evaluation.joint.model import WINDOW, JointModel
from pipeline.engines.choice import TORCH
from pipeline.engines.generator import Engine, Generator, open_generator
from pipeline.engines.sampling import Completions, Sampling
from pipeline.models.language_model import open_language_model
from pipeline.runtime.errors import UserError
from schemas.division import LEFT_TO_RIGHT
from training.energy.folder import EnergyModelFolder, check_length, open_either

Tokens = NDArray[np.int32]
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Pair:
    """Both models, or the language model alone, whose energy is 0."""

    generator: Generator
    joint: JointModel | None
    energy_digest: str | None

    @property
    def window(self) -> int:
        return self.generator.window_length

    @cached_property
    def start(self) -> int:
        return self.generator.model.start_token_id

    @property
    def digests(self) -> list[str | None]:
        return [self.generator.model.weights_digest, self.energy_digest]

    def alone(self) -> Self:
        """The language model without the energy, with windows as long."""
        return replace(self, joint=None, energy_digest=None)

    # A harness decides itself what precedes a text: the engine is given prompts as they are.
    def sample(
        self, prompts: Sequence[Ids], lengths: Sequence[int], seeds: Sequence[int], sampling: Sampling, n: int
    ) -> list[Completions]:
        return self.generator.engine.sample(arrays(prompts), lengths, seeds, sampling, n)

    def log_prob(self, prompts: Sequence[Ids], completions: Sequence[Ids]) -> Numbers:
        engine: Engine = self.generator.scorer or self.generator.engine
        return engine.log_prob(arrays(prompts), arrays(completions))

    def energies(self, prompt: Ids, completions: Tokens) -> Numbers:
        """Of the texts that completions make of a prompt; each different one is read once."""
        if self.joint is None:
            return np.zeros(len(completions))
        different, places = np.unique(completions, axis=0, return_inverse=True)
        context = np.array(text_of(prompt, self.start, self.window - completions.shape[1]), np.int32)
        return self.joint.energies(context, different)[places.reshape(-1)]

    @property
    def cut_by_encoder(self) -> int:
        """Texts of which an encoder with a tokenizer of its own has not read the end."""
        reader = getattr(self.joint.energy, "reader", None) if self.joint is not None else None
        return int(getattr(reader, "cut", 0))


def arrays(rows: Sequence[Ids]) -> list[Tokens]:
    return [np.array(row, np.int32) for row in rows]


def open_pair(generator: str, energy: str | None, engine: str = TORCH, window: int | None = None) -> Pair:
    """Models that fit each other, for windows of so many tokens, or else as long as both can read."""
    model = open_language_model(generator)
    if model.direction != LEFT_TO_RIGHT:
        raise UserError(f"{generator}: it reads from right to left, and a harness asks for what comes after a text")
    limits = [] if model.positions is None else [model.positions - 1]
    digest = None
    if energy is not None:
        folder = open_either(energy)
        digest = folder.weights_digest
        if folder.tokenizer_digest != model.tokenizer_digest:
            raise UserError(f"{energy} and {generator} have different vocabularies: an energy corrects one generator")
        if isinstance(folder, EnergyModelFolder):
            if window is not None:
                check_length(folder.config, window, f"--window {window}", energy)
            limits += [limit for limit in (folder.config.longest,) if limit is not None]
        elif folder.positions is not None:
            limits.append(folder.positions - 1)
    length = window if window is not None else min(limits, default=WINDOW)
    opened = open_generator(generator, Sampling(), engine, window_length=length)
    return Pair(opened, None if energy is None else JointModel(opened, energy), digest)
