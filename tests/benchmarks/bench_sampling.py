"""How fast completions are sampled, against vLLM's own LLM.generate and transformers' generate.

Engines keep threads and memory that do not survive a fork, so contenders take turns in one process here; every one
has had a turn that is not counted. A bare LLM and our engine use the very same running vLLM, which forgets the
contexts after each turn: transformers has to read them anew, too.
"""

import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import numpy as np
import torch
from side_by_side import Duel, Seconds, print_duels, print_header, seconds_of, show
from transformers import GPT2Config, GPT2LMHeadModel

from pipeline.engines.generator import Generator, open_generator
from pipeline.engines.sampling import TOP_K, Sampling, request_seed
from pipeline.models.model_folder import quiet

VOCABULARY, CONTEXT, COMPLETION = 50_257, 120, 40
REQUESTS = 64
BATCH = 64  # of transformers' generate: its fastest here
ROUNDS = 5
SIZES = {"n_embd": 256, "n_head": 4, "n_layer": 4, "n_positions": 256}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        torch.manual_seed(0)
        with quiet():
            GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, **SIZES)).save_pretrained(folder)
        for sampling in (Sampling(), Sampling(TOP_K, top_k=10)):
            measure(folder, sampling)


def measure(folder: str, sampling: Sampling) -> None:
    vllm, plain = (
        open_generator(folder, sampling, engine, window_length=CONTEXT + COMPLETION) for engine in ("vllm", "torch")
    )
    generator = np.random.default_rng(0)
    contexts = list(generator.integers(0, VOCABULARY, (REQUESTS, CONTEXT), np.int32))
    seeds = [request_seed(0, str(number), CONTEXT) for number in range(REQUESTS)]
    contenders: dict[str, Callable[[], object]] = {
        "vllm engine": lambda: sample(vllm, contexts, seeds),
        "torch engine": lambda: sample(plain, contexts, seeds),
        "bare LLM.generate": lambda: bare(vllm, contexts, seeds),
        "transformers' generate": lambda: generate(plain, contexts),
    }
    duels = [
        Duel("vllm engine", "bare LLM.generate", ">= 0.95"),
        Duel("vllm engine", "transformers' generate", "> 1"),
        Duel("torch engine", "transformers' generate", ">= 1"),
        Duel("torch engine", "vllm engine"),
    ]
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("torch", "transformers"))
    print_header(
        f"Sampling by {sampling.rule}: {REQUESTS} times {CONTEXT}+{COMPLETION} tokens, 4 layers d 256, "
        f"{VOCABULARY:,} tokens, {torch.get_num_threads()} threads, {ROUNDS} rounds; {versions}, vllm {vllm_version()}"
    )
    seconds = in_turns(contenders, vllm.engine.started().reset_prefix_cache)
    print_duels(seconds, duels, REQUESTS * COMPLETION / 1e3, "thousand tokens/s")
    vllm.close()


def vllm_version() -> str:
    """Its package has one name for GPUs and one for CPUs, the module has not."""
    import vllm

    return str(vllm.__version__)


def in_turns(contenders: dict[str, Callable[[], object]], between: Callable[[], object]) -> Seconds:
    """Every contender once a round, in an order that changes, all in this process; `between` is not timed."""
    seconds: Seconds = {name: [] for name in contenders}
    names = list(contenders)
    for work in contenders.values():
        work()
        between()
    for number in range(ROUNDS):
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            seconds[name].append(seconds_of(contenders[name]))
            between()
            show(f"round {number + 1} of {ROUNDS}: {name}, {seconds[name][-1]:.2f} s")
    show("")
    return seconds


def sample(generator: Generator, contexts: Sequence[np.ndarray], seeds: Sequence[int]) -> None:
    generator.sample(contexts, [COMPLETION] * len(contexts), seeds)


def bare(generator: Generator, contexts: Sequence[np.ndarray], seeds: Sequence[int]) -> None:
    """vLLM as its documentation says: tokens and their log-probabilities, nothing made of them."""
    from vllm import SamplingParams

    sampling = generator.sampling
    rule = {"top_k": sampling.top_k, "logprobs": sampling.top_k} if sampling.rule == TOP_K else {"logprobs": 0}
    always = {"max_tokens": COMPLETION, "ignore_eos": True, "detokenize": False, "temperature": 1.0}
    start = generator.model.start_token_id
    outputs = generator.engine.started().generate(
        [{"prompt_token_ids": [start, *context.tolist()]} for context in contexts],
        [SamplingParams(**always, **rule, seed=seed) for seed in seeds],
        use_tqdm=False,
    )
    check(sum(len(output.outputs[0].token_ids) for output in outputs))


def generate(generator: Generator, contexts: Sequence[np.ndarray], length: int = COMPLETION) -> None:
    """transformers as its documentation says, batched; with a mask, without which samples can be wrong."""
    sampling = generator.sampling
    options = {"do_sample": True, "max_new_tokens": length, "eos_token_id": None, "pad_token_id": 0}
    options["top_k"] = sampling.top_k if sampling.rule == TOP_K else 0
    tokens = 0
    for start in range(0, len(contexts), BATCH):
        ids = torch.tensor(np.stack(contexts[start : start + BATCH])).long()
        ids = torch.nn.functional.pad(ids, (1, 0), value=generator.model.start_token_id)
        found = generator.engine.network.generate(ids, attention_mask=torch.ones_like(ids), **options)
        tokens += found[:, ids.shape[1] :].numel()
    check(tokens, len(contexts) * length)


def check(tokens: int, expected: int = REQUESTS * COMPLETION) -> None:
    """A contender that stopped early would look fast."""
    if tokens != expected:
        raise SystemExit(f"{tokens} tokens were sampled, {expected} were asked for")


if __name__ == "__main__":
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    main()
