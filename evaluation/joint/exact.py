"""What can be had without estimating: other language models' perplexity, and the joint model's last token."""

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from evaluation.joint.scorers import Scorer, open_scorer
from evaluation.results.cache import ResultCache
from pipeline.engines.choice import TORCH
from pipeline.engines.generator import Generator, open_generator
from pipeline.engines.sampling import Sampling
from pipeline.models.language_model import open_language_model
from pipeline.runtime.errors import UserError
from pipeline.runtime.progress import Bar
from pipeline.stores.reader import Store
from schemas.division import completion_start, divide
from training.energy.folder import open_either
from training.energy.inputs import Sequences

Numbers = NDArray[np.float64]
Item = TypeVar("Item")
AT_ONCE = 256  # windows


def open_base(name: str, samples: Store) -> Generator:
    """A language model that reads the store's windows in the direction of its samples."""
    window, direction = int(samples.manifest.settings["window"]), samples.manifest.settings["direction"]
    model = open_language_model(name)
    model.check_fits(window, samples.manifest.tokenizer, samples.path)
    if model.direction != direction:
        raise UserError(f"{name}: it reads {model.direction}, the contexts of {samples.path} are read {direction}")
    return open_generator(name, Sampling(), TORCH, window_length=window)


def windows_of(samples: Store) -> Iterator[tuple[str, NDArray[np.int32], int]]:
    """Every context once: the window's id, its tokens, the context's length."""
    for table in samples.batches(["window_id", "tokens", "context_length", "first_sample"]):
        for row in table.to_pylist():
            if row["first_sample"] == 0:
                yield row["window_id"], np.array(row["tokens"], np.int32), row["context_length"]


def completion_log_probs(name: str, samples: Store) -> list[tuple[str, int, float]]:
    """A language model's log-probability of the store's real completions: window, length of context, log P."""
    generator, direction = open_base(name, samples), samples.manifest.settings["direction"]
    found: list[tuple[str, int, float]] = []
    for some in progress(batched(windows_of(samples), AT_ONCE), f"{name}: completions"):
        contexts, completions = zip(*(divide(window, length, direction) for _, window, length in some), strict=True)
        log_p = generator.log_prob(contexts, completions).tolist()
        found += [(window, length, own) for (window, _, length), own in zip(some, log_p, strict=True)]
    return found


def last_token_log_probs(
    energy: str, generator: str, samples: Store, count: int, cache: ResultCache
) -> dict[str, tuple[float, float]]:
    """For the first windows of a store, log P of the last token given all others: the base model's, the joint model's.

    log P(x_T | x_<T) = log P_phi(x_T | x_<T) - E(x) - log of the sum over v of P_phi(v | x_<T) exp(-E(x_<T, v)).
    """
    base = open_base(generator, samples)
    known = (samples.manifest.generator or {}).get("digest")
    if base.model.weights_digest != known:
        raise UserError(f"--generator {generator}: the samples of {samples.path} are another model's")
    scorer = open_scorer(energy, int(samples.manifest.settings["window"]))
    size = int(samples.manifest.tokenizer["vocabulary_size"])
    digests = f"{samples.manifest.digest} {known} {open_either(energy).weights_digest}"
    windows: dict[str, NDArray[np.int32]] = {}
    for name, tokens, _ in windows_of(samples):
        windows[name] = tokens
        if len(windows) == count:
            break
    found = {}
    for name, tokens in progress(windows.items(), "exact last tokens"):
        base_log_p, joint = cache.get(f"{digests} {name}", partial(_last_token, base, scorer, tokens, size))
        found[name] = (base_log_p, joint)
    return found


def _last_token(base: Generator, scorer: Scorer, tokens: NDArray[np.int32], size: int) -> tuple[float, float]:
    place = completion_start(len(tokens) - 1, base.model.direction)
    log_p = next_log_probs(base, np.delete(tokens, place))[:size]
    windows = np.repeat(tokens[None].astype(np.int64), size, axis=0)
    windows[:, place] = np.arange(size)
    sequences = Sequences(windows[None], np.full((1, size), len(tokens)))
    joint = log_p - scorer.energies(sequences, place)[0]
    joint -= np.logaddexp.reduce(joint)
    return float(log_p[tokens[place]]), float(joint[tokens[place]])


def progress(items: Iterable[Item], what: str) -> Iterator[Item]:
    yield from Bar(items, desc=what)


def batched(items: Iterator[Item], size: int) -> Iterator[list[Item]]:
    while some := list(islice(items, size)):
        yield some


def next_log_probs(generator: Generator, context: NDArray[np.int32]) -> Numbers:
    """log P of every token of the vocabulary after a context (before it, for a right-to-left model)."""
    import torch

    from pipeline.engines.torch_engine import TorchEngine

    engine = generator.engine
    assert isinstance(engine, TorchEngine)
    (prompt,) = generator.prompts([context], [1])
    with torch.inference_mode():
        output = engine.network(torch.from_numpy(prompt)[None].long().to(engine.device), logits_to_keep=1)
    return output.logits[0, -1].double().log_softmax(-1).cpu().numpy()
