"""Sampling and scoring with plain torch: for any causal model, on any device, and reproducible to the token.

Requests of equal prompt and completion length run together, so nothing is padded and nothing is masked. What a sample
is depends on its request and its number alone, never on what runs beside it.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from pipeline.engines.drawing import draw, log_probabilities
from pipeline.engines.sampling import Completions, Sampling, uniform
from pipeline.models.language_model import LanguageModelFolder
from pipeline.runtime.errors import UserError

Tokens = NDArray[np.int32]
Key = TypeVar("Key", bound=Hashable)

MEMORY = 1 << 30  # bytes for caches and logits, beside the weights
MOST_ROWS = {"cpu": 64, "cuda": 1024}  # sequences at once; on CPU larger arrays cost more than larger batches save


class TorchEngine:
    """A language model's weights in this process; prompts and completions are in the model's own order."""

    def __init__(self, model: LanguageModelFolder, memory: int = MEMORY, precision: str | None = None):
        self.model = model
        self.memory = memory
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.network = model.load(self.device, precision)

    def close(self) -> None:
        """Nothing to give back: the weights go with the object."""

    @torch.inference_mode()
    def sample(
        self, prompts: Sequence[Tokens], lengths: Sequence[int], seeds: Sequence[int], sampling: Sampling, n: int
    ) -> list[Completions]:
        """n completions of each prompt, of the given length, drawn with the request's seed."""
        return self._draw(prompts, lengths, seeds, sampling, n, None)[0]

    @torch.inference_mode()
    def sample_and_score(
        self,
        prompts: Sequence[Tokens],
        completions: Sequence[Tokens],
        seeds: Sequence[int],
        sampling: Sampling,
        n: int,
    ) -> tuple[list[Completions], NDArray[np.float64]]:
        """n completions of each prompt, as long as the given one, and the given one's log-probability.

        A prompt is read once for both: its cache serves the given completion, then the samples.
        """
        lengths = [len(completion) for completion in completions]
        drawn, log_p = self._draw(prompts, lengths, seeds, sampling, n, completions)
        self._check_finite(log_p)
        return drawn, log_p

    def _draw(
        self,
        prompts: Sequence[Tokens],
        lengths: Sequence[int],
        seeds: Sequence[int],
        sampling: Sampling,
        n: int,
        given: Sequence[Tokens] | None,
    ) -> tuple[list[Completions], NDArray[np.float64]]:
        drawn = [Completions(np.empty((n, length), np.int32), np.empty(n), np.empty(n)) for length in lengths]
        given_log_p = np.empty(len(prompts))
        shapes = ((len(prompt), length) for prompt, length in zip(prompts, lengths, strict=True))
        for (width, length), numbers in groups(shapes):
            rows = self._rows_that_fit(width, length)
            # Several requests with all their samples at once, or one request's samples in several goes.
            for some in _slices(numbers, max(1, rows // n)):
                for first in range(0, n, rows):
                    count = min(n - first, rows)
                    own = [seeds[number] + sample for number in some for sample in range(first, first + count)]
                    u = uniform(np.array(own, np.uint64), length)
                    logits, cache = self._read(np.stack([prompts[number] for number in some]))
                    if given is not None and not first:
                        own_prompts, completions = ([all_[number] for number in some] for all_ in (prompts, given))
                        if _can_be_cut(cache):
                            given_log_p[some] = self._score_after(logits, cache, np.stack(completions))
                        else:
                            given_log_p[some] = self.log_prob(own_prompts, completions)
                    results = self._sample(logits, cache, u, sampling)
                    for place, number in enumerate(some):
                        mine = slice(place * count, (place + 1) * count)
                        for all_of_them, result in zip(_arrays(drawn[number]), results, strict=True):
                            all_of_them[first : first + count] = result[mine]
        return drawn, given_log_p

    def _read(self, prompts: Tokens) -> tuple[Tensor, Any]:
        """What comes after prompts of one length: logits of the next token, and the cache."""
        output = self.network(torch.from_numpy(prompts).long().to(self.device), use_cache=True, logits_to_keep=1)
        return output.logits[:, -1].float(), output.past_key_values

    def _score_after(self, logits: Tensor, cache: Any, completions: Tokens) -> NDArray[np.float64]:
        """log P of completions whose prompts have just been read; the cache is afterwards as it was."""
        ids = torch.from_numpy(completions).long().to(self.device)
        after = logits[:, None]
        if ids.shape[1] > 1:
            output = self.network(ids[:, :-1], past_key_values=cache, use_cache=True)
            after = torch.cat([after, output.logits.float()], dim=1)
            cache.crop(1 - ids.shape[1])  # what was read of the completion
        # The logits of the next token are needed again, to sample from.
        return np.asarray(log_probabilities(after.clone(), ids).sum(-1).cpu().numpy())

    @torch.inference_mode()
    def log_prob(self, prompts: Sequence[Tokens], completions: Sequence[Tokens]) -> NDArray[np.float64]:
        """log P(completion | prompt) of each pair, under the whole softmax."""
        log_p = np.empty(len(prompts))
        shapes = ((len(prompt), len(completion)) for prompt, completion in zip(prompts, completions, strict=True))
        for (width, length), numbers in groups(shapes):
            for some in _slices(numbers, self._rows_that_fit(width, length, scored=length)):
                ids = np.stack([np.concatenate([prompts[number], completions[number]]) for number in some])
                ids_on_device = torch.from_numpy(ids).long().to(self.device)
                output = self.network(ids_on_device[:, :-1], use_cache=False, logits_to_keep=length)
                scores = log_probabilities(output.logits.float(), ids_on_device[:, width:])
                log_p[some] = scores.sum(-1).cpu().numpy()
        self._check_finite(log_p)
        return log_p

    def _sample(
        self, logits: Tensor, cache: Any, u: NDArray[np.float64], sampling: Sampling
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """As many samples of each prompt that was read as there are rows of u for it: tokens, log_p, log_q."""
        rows, length = u.shape
        repeats = rows // len(logits)
        numbers = torch.from_numpy(u).to(self.device)
        cache = prepared(cache, repeats, length - 1)
        logits = logits.repeat_interleave(repeats, dim=0)
        tokens = torch.empty(rows, length, dtype=torch.long, device=self.device)
        log_p = torch.zeros(rows, dtype=torch.float64, device=self.device)
        log_q = torch.zeros_like(log_p)
        for position in range(length):
            if position:
                output = self.network(
                    tokens[:, position - 1 : position], past_key_values=cache, use_cache=True, logits_to_keep=1
                )
                cache, logits = output.past_key_values, output.logits[:, -1].float()
            tokens[:, position], step_log_p, step_log_q = draw(logits, numbers[:, position], sampling)
            log_p += step_log_p
            log_q += step_log_q
        result = tokens.cpu().numpy(), log_p.cpu().numpy(), log_q.cpu().numpy()
        self._check_finite(result[1])
        return result

    def _rows_that_fit(self, width: int, length: int, scored: int = 1) -> int:
        """How many sequences run at once: each has a cache, activations, and logits at the positions scored."""
        config = self.model.config
        wide = int(getattr(config, "hidden_size", None) or 1024)
        layers = int(getattr(config, "num_hidden_layers", None) or 24)
        cache = 0 if scored > 1 else 2 * layers * wide * (width + length)
        activations = 16 * wide * (width + (length if scored > 1 else 0))
        logits = 4 * scored * self.model.vocabulary_size
        return max(1, min(MOST_ROWS[self.device], self.memory // (4 * (cache + activations + logits))))

    def _check_finite(self, log_p: NDArray[np.float64]) -> None:
        if not np.isfinite(log_p).all():
            raise UserError(f"{self.model.name}: its logits are not finite numbers: train it again")


class _RoomyLayer(DynamicLayer):
    """A layer's cache with room for what is to come: a step writes its keys and values, and copies nothing."""

    def __init__(self, layer: DynamicLayer, repeats: int, steps: int):
        super().__init__()
        self.is_initialized = True
        self.dtype, self.device = layer.dtype, layer.device
        self.length = layer.keys.shape[-2]
        self.roomy_keys, self.roomy_values = (
            _with_room(states, repeats, steps) for states in (layer.keys, layer.values)
        )
        self._show()

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        end = self.length + key_states.shape[-2]
        self.roomy_keys[:, :, self.length : end] = key_states
        self.roomy_values[:, :, self.length : end] = value_states
        self.length = end
        self._show()
        return self.keys, self.values

    def _show(self) -> None:
        self.keys, self.values = self.roomy_keys[:, :, : self.length], self.roomy_values[:, :, : self.length]


def prepared(cache: Any, repeats: int, steps: int) -> Any:
    """A prompt's cache, each row `repeats` times, with room for so many steps where its kind is known."""
    if _can_be_cut(cache):
        cache.layers = [_RoomyLayer(layer, repeats, steps) for layer in cache.layers]
    elif repeats > 1:
        cache.batch_repeat_interleave(repeats)
    return cache


def _can_be_cut(cache: Any) -> bool:
    """Whether a cache is a plain one, which can be cut back to what it was, and given room."""
    return type(cache) is DynamicCache and all(type(layer) is DynamicLayer for layer in cache.layers)


def groups(keys: Iterable[Key]) -> Iterable[tuple[Key, list[int]]]:
    """The places at which each key stands."""
    places: dict[Key, list[int]] = defaultdict(list)
    for place, key in enumerate(keys):
        places[key].append(place)
    return places.items()


def _with_room(states: Tensor, repeats: int, steps: int) -> Tensor:
    rows, heads, width, size = states.shape
    roomy = states.new_empty(rows * repeats, heads, width + steps, size)
    roomy.view(rows, repeats, heads, width + steps, size)[:, :, :, :width] = states[:, None]
    return roomy


def _slices(numbers: list[int], size: int) -> Iterator[list[int]]:
    for start in range(0, len(numbers), size):
        yield numbers[start : start + size]


def _arrays(completions: Completions) -> tuple[NDArray[Any], ...]:
    return completions.tokens, completions.log_p, completions.log_q
