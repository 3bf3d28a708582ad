"""What can be had without estimating: other language models' perplexity, and the joint model's last token."""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from evaluation.scoring import open_scorer
from pipeline.errors import UserError
from pipeline.generator import TORCH, Generator, open_generator
from pipeline.language_model import RIGHT_TO_LEFT, open_language_model
from pipeline.mining import divide
from pipeline.sampling import Sampling
from pipeline.store import Store
from pipeline.torch_engine import TorchEngine
from training.energy_inputs import Sequences

Numbers = NDArray[np.float64]


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


def completion_log_probs(name: str, samples: Store) -> tuple[Numbers, NDArray[np.int64]]:
    """The log-probability of every real completion under a language model, and its length."""
    generator, direction = open_base(name, samples), samples.manifest.settings["direction"]
    pairs = [divide(tokens, length, direction) for _, tokens, length in windows_of(samples)]
    contexts, completions = zip(*pairs, strict=True)
    return generator.log_prob(contexts, completions), np.array([len(completion) for completion in completions])


def last_token_log_probs(energy: str, generator: str, samples: Store, count: int) -> dict[str, tuple[float, float]]:
    """For the first windows of a store, log P of the last token given all others: the base model's, the joint model's.

    log P(x_T | x_<T) = log P_phi(x_T | x_<T) - E(x) - log of the sum over v of P_phi(v | x_<T) exp(-E(x_<T, v)).
    """
    base = open_base(generator, samples)
    known = (samples.manifest.generator or {}).get("digest")
    if base.model.weights_digest != known:
        raise UserError(f"--generator {generator}: the samples of {samples.path} are another model's")
    scorer = open_scorer(energy, int(samples.manifest.settings["window"]))
    size = int(samples.manifest.tokenizer["vocabulary_size"])
    backwards = samples.manifest.settings["direction"] == RIGHT_TO_LEFT
    found: dict[str, tuple[float, float]] = {}
    for window_id, tokens, _ in windows_of(samples):
        if len(found) == count:
            break
        if window_id in found:
            continue
        place = 0 if backwards else len(tokens) - 1
        log_p = next_log_probs(base, np.delete(tokens, place))[:size]
        windows = np.repeat(tokens[None].astype(np.int64), size, axis=0)
        windows[:, place] = np.arange(size)
        sequences = Sequences(windows[None], np.full((1, size), len(tokens)))
        joint = log_p - scorer.energies(sequences, 0 if backwards else len(tokens) - 1)[0]
        joint -= np.logaddexp.reduce(joint)
        found[window_id] = (float(log_p[tokens[place]]), float(joint[tokens[place]]))
    return found


@torch.inference_mode()
def next_log_probs(generator: Generator, context: NDArray[np.int32]) -> Numbers:
    """log P of every token of the vocabulary after a context (before it, for a right-to-left model)."""
    engine = generator.engine
    assert isinstance(engine, TorchEngine)
    (prompt,) = generator._prompts([context], [1])
    output = engine.network(torch.from_numpy(prompt)[None].long().to(engine.device), logits_to_keep=1)
    return output.logits[0, -1].double().log_softmax(-1).cpu().numpy()
