"""Generators: language models that completions are sampled from, exactly, whatever their direction and engine.

The rest of the project sees two methods, `sample` and `log_prob`, and windows in text order.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pipeline.engines.choice import ENGINES, USUAL, VLLM, EngineOptions, default_engine
from pipeline.engines.sampling import NUCLEUS, Completions, Sampling
from pipeline.models.language_model import LanguageModelFolder, open_language_model
from pipeline.runtime.errors import UserError
from schemas.division import reading_order

Tokens = NDArray[np.int32]


class Engine(Protocol):
    """What runs a model. Prompts begin with the start token; prompts and completions are in the model's order."""

    def sample(
        self, prompts: Sequence[Tokens], lengths: Sequence[int], seeds: Sequence[int], sampling: Sampling, n: int
    ) -> list[Completions]: ...

    def log_prob(self, prompts: Sequence[Tokens], completions: Sequence[Tokens]) -> NDArray[np.float64]: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Generator:
    """A language model, an engine that runs it, and a sampling rule; given text can have an engine of its own.

    A left-to-right generator is given what comes before the completion, a right-to-left one what comes after it.
    """

    model: LanguageModelFolder
    engine: Engine
    sampling: Sampling
    window_length: int
    scorer: Engine | None = None

    def sample(
        self, contexts: Sequence[Tokens], lengths: Sequence[int], seeds: Sequence[int], n: int = 1
    ) -> list[Completions]:
        """n completions of each context, of the given length; equal requests give equal samples, in any company."""
        if n < 1:
            raise ValueError(f"{n} samples of each context: at least 1 is needed")
        prompts = self.prompts(contexts, lengths)
        drawn = self.engine.sample(
            prompts, [int(length) for length in lengths], list(map(int, seeds)), self.sampling, n
        )
        return [Completions(self._turned(result.tokens), result.log_p, result.log_q) for result in drawn]

    def sample_and_score(
        self, contexts: Sequence[Tokens], completions: Sequence[Tokens], seeds: Sequence[int], n: int = 1
    ) -> tuple[list[Completions], NDArray[np.float64]]:
        """n further completions of each context, each as long as the given one, and log P of the given one.

        An engine that can does both with one reading of the context.
        """
        together = getattr(self.engine, "sample_and_score", None)
        if together is None or self.scorer is not None:
            lengths = [len(completion) for completion in completions]
            return self.sample(contexts, lengths, seeds, n), self.log_prob(contexts, completions)
        arrays = [self._ids(completion, "a completion") for completion in completions]
        prompts = self.prompts(contexts, [len(completion) for completion in arrays])
        given = [self._turned(completion) for completion in arrays]
        drawn, log_p = together(prompts, given, list(map(int, seeds)), self.sampling, n)
        return [Completions(self._turned(result.tokens), result.log_p, result.log_q) for result in drawn], log_p

    def log_prob(self, contexts: Sequence[Tokens], completions: Sequence[Tokens]) -> NDArray[np.float64]:
        """log P(completion | context) of each pair, under the whole softmax, whatever the sampling rule."""
        arrays = [self._ids(completion, "a completion") for completion in completions]
        prompts = self.prompts(contexts, [len(completion) for completion in arrays])
        engine = self.scorer or self.engine
        return engine.log_prob(prompts, [self._turned(completion) for completion in arrays])

    def with_sampling(self, sampling: Sampling) -> "Generator":
        """The same model with another rule; not between nucleus and the others, which engines run differently."""
        return replace(self, sampling=sampling)

    def scored_by_torch(self) -> "Generator":
        """The same generator, with given text scored by plain torch, which computes logits only where they count.

        vLLM computes them at every position of a prompt, several times the work. Worth a second copy of the weights
        where memory is plenty and arithmetic is not: on CPUs.
        """
        from pipeline.engines.torch_engine import TorchEngine

        return replace(self, scorer=TorchEngine(self.model))

    def close(self) -> None:
        self.engine.close()

    def prompts(self, contexts: Sequence[Tokens], lengths: Sequence[int]) -> list[Tokens]:
        """What the model reads before the completion: the start token, then the context in the model's order."""
        start = np.array([self.model.start_token_id], np.int32)
        prompts = []
        for context, length in zip(contexts, lengths, strict=True):
            ids = self._ids(context, "a context")
            if length < 1:
                raise UserError(f"{self.model.name}: a completion of {length} tokens: at least one is needed")
            if len(ids) + length > self.window_length:
                raise UserError(
                    f"{self.model.name}: a context of {len(ids)} and a completion of {length} tokens are more than "
                    f"the {self.window_length} of a window"
                )
            prompts.append(np.concatenate([start, self._turned(ids)]))
        return prompts

    def _ids(self, tokens: Tokens, what: str) -> Tokens:
        ids = np.asarray(tokens)
        size = self.model.vocabulary_size
        if len(ids) and not 0 <= ids.min() <= ids.max() < size:
            raise UserError(
                f"{self.model.name}: {what} has the ids {ids.min()} to {ids.max()}, the model knows 0 to {size - 1}: "
                f"the windows were made with another tokenizer"
            )
        return ids.astype(np.int32)

    def _turned(self, tokens: Tokens) -> Tokens:
        """From text order to the model's, or back."""
        return reading_order(tokens, self.model.direction)


def open_generator(
    name: str,
    sampling: Sampling,
    engine: str | None = None,
    *,
    window_length: int,
    options: EngineOptions = USUAL,
) -> Generator:
    """A generator for windows of so many tokens, from a model's folder or a hub name; on vLLM where there is one.

    It computes in the precision that is asked for, else in the model's own on GPUs and fp32 on CPUs.
    """
    engine = engine or default_engine()
    if engine not in ENGINES:
        raise UserError(f"--engine {engine}: not an engine, there are {', '.join(ENGINES)}")
    model = open_language_model(name)
    if model.positions is not None and window_length + 1 > model.positions:
        raise UserError(
            f"{name}: windows of {window_length} tokens and the one that precedes them do not fit the model's "
            f"{model.positions} positions: make windows of at most {model.positions - 1}"
        )
    return Generator(model, _engine(model, sampling, engine, window_length, options), sampling, window_length)


def _engine(
    model: LanguageModelFolder, sampling: Sampling, engine: str, window_length: int, options: EngineOptions
) -> Engine:
    # Each engine brings a library that takes seconds to import: only the chosen one's is.
    if engine == VLLM:
        from pipeline.engines.vllm_engine import VllmEngine

        return VllmEngine(model, window_length, nucleus=sampling.rule == NUCLEUS, options=options)
    from pipeline.engines.torch_engine import TorchEngine

    return TorchEngine(model, precision=options.precision)
