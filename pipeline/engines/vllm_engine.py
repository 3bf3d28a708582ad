"""Sampling and scoring with vLLM, in this process: whole lists of prompts in one call, a seed a request.

vLLM is imported only when an engine starts. A process can hold one engine at a time: starting or using another one
closes the one before it. On CPU vLLM's generators look at a seed's low 32 bits alone.
"""

import contextlib
import gc
import logging
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pipeline.engines.choice import USUAL, EngineOptions
from pipeline.engines.environment import prepare_environment
from pipeline.engines.sampling import NUCLEUS, TOP_K, Completions, Sampling
from pipeline.engines.vllm_models import check_heads_on_cpu, head_size
from pipeline.models.language_model import LanguageModelFolder
from pipeline.models.precision import FP32, dtype_of
from pipeline.runtime.errors import UserError, first_line

Tokens = NDArray[np.int32]

SEQUENCES = 256  # at once, vLLM's own default
CPU_BLOCK = 32  # tokens of the cache that are shared as one: vLLM's default of 128 would share no context of 120
TIES = 16  # further log-probabilities, to see which tokens are level with the k-th best: vLLM keeps them all

_lock = threading.RLock()
_running: "VllmEngine | None" = None


class VllmEngine:
    """A language model in vLLM; prompts and completions are in the model's own order.

    Which log-probabilities vLLM reports is fixed when it starts: those before truncation, or, with `nucleus`, those
    after it, and then log_p takes a second pass.
    """

    def __init__(
        self,
        model: LanguageModelFolder,
        window_length: int,
        nucleus: bool = False,
        options: EngineOptions = USUAL,
    ):
        self.model, self.window_length, self.nucleus, self.options = model, window_length, nucleus, options
        self._llm: Any = None
        model.check_runs_elsewhere()
        model.check_weights()
        with _lock:
            self._started()

    def close(self) -> None:
        """Gives memory and vLLM's place in the process back; the engine starts again if it is used again."""
        global _running
        with _lock:
            if self._llm is not None:
                self._llm.llm_engine.engine_core.shutdown()
                self._llm = None
                _running = None
                gc.collect()

    def sample(
        self, prompts: Sequence[Tokens], lengths: Sequence[int], seeds: Sequence[int], sampling: Sampling, n: int
    ) -> list[Completions]:
        """n completions of each prompt, of the given length, drawn with the request's seed."""
        if self.nucleus != (sampling.rule == NUCLEUS):
            raise ValueError(f"an engine started with nucleus={self.nucleus} cannot follow the rule {sampling.rule}")
        rule: dict[str, Any] = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "logprobs": 0}
        if sampling.rule == TOP_K:
            kept = min(sampling.top_k, self.model.vocabulary_size)
            rule |= {"top_k": kept, "logprobs": min(kept + TIES, self.model.vocabulary_size)}
        elif sampling.rule == NUCLEUS:
            rule["top_p"] = sampling.top_p
        requests = [
            rule | {"n": n, "seed": seed, "max_tokens": length} for seed, length in zip(seeds, lengths, strict=True)
        ]
        results = []
        for outputs, length in zip(self._generate(prompts, requests), lengths, strict=True):
            self._check_lengths(outputs, n, length)
            tokens = np.array([output.token_ids for output in outputs], np.int32)
            log_p = np.array([output.cumulative_logprob for output in outputs], np.float64)
            log_q = log_p
            if sampling.rule == TOP_K:
                # The sampled token's own log-probability comes first, then those of the best.
                best = np.array([output.logprobs.logprobs for output in outputs]).reshape(n, length, -1)[..., 1:]
                log_q = log_p - self._log_kept(best, kept)
            results.append(Completions(tokens, log_p, log_q))
        return self._with_log_p(prompts, results) if self.nucleus else results

    def sample_and_score(
        self,
        prompts: Sequence[Tokens],
        completions: Sequence[Tokens],
        seeds: Sequence[int],
        sampling: Sampling,
        n: int,
    ) -> tuple[list[Completions], NDArray[np.float64]]:
        """n completions of each prompt, as long as the given one, and the given one's log-probability.

        The given ones are scored first: what they leave in the cache of prefixes is what the samples begin with.
        """
        log_p = self.log_prob(prompts, completions)
        return self.sample(prompts, [len(completion) for completion in completions], seeds, sampling, n), log_p

    def log_prob(self, prompts: Sequence[Tokens], completions: Sequence[Tokens]) -> NDArray[np.float64]:
        """log P(completion | prompt) of each pair, under the whole softmax.

        The completion's last token is not read but asked for: a window as long as the model can read leaves no
        room for the further token that vLLM insists on making.
        """
        pairs = list(zip(prompts, completions, strict=True))
        read = [np.concatenate([prompt, completion[:-1]]) for prompt, completion in pairs]
        with _lock:
            beginning = not self._scores_from_the_context_on()
        results = np.empty(len(read))
        outputs = self._outputs(read, [scoring_request(*pair, beginning) for pair in pairs])
        for number, (output, prompt) in enumerate(zip(outputs, prompts, strict=True)):
            before = np.asarray(scores_of_what_was_read(output, len(prompt)), np.float64)
            last = output.outputs[0].logprobs  # the last token's stands second, after the greedy choice's own
            if len(before) != len(completions[number]) - 1 or last.token_ids[1] != completions[number][-1]:
                raise RuntimeError(f"{self.model.name}: vLLM scored other tokens than those it was given")
            results[number] = before.sum() + last.logprobs[1]
        self._check_finite(results)
        return results

    def _scores_from_the_context_on(self) -> bool:
        """Whether vLLM can leave out the logits of a context: its newer runner can, which is for GPUs alone."""
        config = self._started().llm_engine.vllm_config
        return torch.cuda.is_available() and bool(getattr(config, "use_v2_model_runner", False))

    def _with_log_p(self, prompts: Sequence[Tokens], drawn: list[Completions]) -> list[Completions]:
        """The same samples with their log-probabilities under the whole softmax, from a second pass."""
        pairs = [(prompt, row) for prompt, result in zip(prompts, drawn, strict=True) for row in result.tokens]
        log_p = iter(self.log_prob([prompt for prompt, _ in pairs], [row for _, row in pairs]))
        return [
            Completions(result.tokens, np.array([next(log_p) for _ in result.tokens]), result.log_q) for result in drawn
        ]

    def _log_kept(self, best: NDArray[np.float64], kept: int) -> NDArray[np.float64]:
        from vllm.triton_utils import HAS_TRITON

        mass = kept_mass(best, kept, self.model.vocabulary_size, exactly=HAS_TRITON)
        if np.isnan(mass).any():
            raise UserError(
                f"{self.model.name}: more than {TIES} tokens tie with the one of rank {kept}, and vLLM would draw from "
                f"them all: use --engine torch"
            )
        return np.log(mass).sum(-1)

    def _check_lengths(self, outputs: Sequence[Any], n: int, length: int) -> None:
        """vLLM cuts what does not fit its model length, and says nothing."""
        lengths = [len(output.token_ids) for output in outputs]
        if lengths != [length] * n:
            raise RuntimeError(f"{self.model.name}: vLLM gave completions of {lengths} tokens, not {n} of {length}")
        self._check_finite(np.array([output.cumulative_logprob for output in outputs]))

    def _check_finite(self, log_p: NDArray[np.float64]) -> None:
        if not np.isfinite(log_p).all():
            raise UserError(f"{self.model.name}: its logits are not finite numbers: train it again")

    def _generate(self, prompts: Sequence[Tokens], requests: Sequence[dict[str, Any]]) -> Iterator[Sequence[Any]]:
        for output in self._outputs(prompts, requests):
            yield output.outputs

    def _outputs(self, prompts: Sequence[Tokens], requests: Sequence[dict[str, Any]]) -> list[Any]:
        with _lock:
            llm = self._started()
            from vllm import SamplingParams

            # `min_tokens` would ban EOS and bend the distribution: `ignore_eos` alone gives whole completions.
            always: dict[str, Any] = {"ignore_eos": True, "detokenize": False, "flat_logprobs": True}
            params = [SamplingParams(**always, skip_clone=True, **request) for request in requests]
            inputs = [{"prompt_token_ids": prompt.tolist()} for prompt in prompts]
            try:
                return list(llm.generate(inputs, params, use_tqdm=False)) if inputs else []
            except BaseException:
                self.close()  # requests that are half done must not come back with the next call's
                raise

    def _started(self) -> Any:
        """vLLM's own engine; started if another one has taken its place in the meantime."""
        global _running
        if self._llm is None:
            if _running is not None:
                _running.close()
            self._llm = self._start()
            _running = self
        return self._llm

    def _start(self) -> Any:
        prepare_environment()
        try:
            from vllm import LLM
            from vllm.distributed.parallel_state import cleanup_dist_env_and_memory
        except ImportError as error:
            raise UserError(
                f"--engine vllm: vLLM cannot be imported ({first_line(error)}): install the extra mining-cpu or "
                f"mining-gpu, or use --engine torch"
            ) from None
        place = self._gpu_settings() if torch.cuda.is_available() else self._cpu_settings()
        logging.getLogger(__name__).info("%s: an engine of vLLM with %s", self.model.name, place)
        try:
            with _threads_left_alone():
                return LLM(
                    model=self.model.folder,
                    skip_tokenizer_init=True,
                    trust_remote_code=False,
                    generation_config="vllm",
                    max_model_len=self.window_length + 1,
                    max_logprobs=-1,
                    logprobs_mode="processed_logprobs" if self.nucleus else "raw_logprobs",
                    enable_prefix_caching=True,
                    use_tqdm_on_load=False,
                    seed=0,
                    **place,
                )
        except Exception as error:  # whatever vLLM has against a model, it says with an exception of any kind
            cleanup_dist_env_and_memory()  # or no other engine could start in this process
            raise UserError(f"{self.model.name}: vLLM cannot load it ({error}): use --engine torch") from error

    def _dtype(self, usual: str) -> torch.dtype:
        return dtype_of(self.options.precision or usual)

    def _gpu_settings(self) -> dict[str, Any]:
        """In the weights' own precision: vLLM's would be 16 bits, and log-probabilities those of another model."""
        return {
            "dtype": self._dtype(self.model.precision),
            "gpu_memory_utilization": self.options.gpu_memory,
            "max_num_seqs": self.options.sequences or SEQUENCES,
            "tensor_parallel_size": self.options.tensor_parallel,
        }

    def _cpu_settings(self) -> dict[str, Any]:
        import psutil

        check_heads_on_cpu(self.model)
        config = self.model.config
        # Without a limit vLLM takes nearly all of the memory. A quarter of what is free is enough for any batch that
        # is worth having, and no more is taken than so many sequences fill.
        blocks = -(-(self.window_length + 1) // CPU_BLOCK)
        heads = int(getattr(config, "num_key_value_heads", None) or config.num_attention_heads)
        token = 2 * 4 * int(config.num_hidden_layers) * head_size(self.model) * heads
        sequence = blocks * CPU_BLOCK * token
        sequences = self.options.sequences or max(1, min(SEQUENCES, psutil.virtual_memory().available // 4 // sequence))
        return {
            "dtype": self._dtype(FP32),
            "enforce_eager": True,
            "enable_chunked_prefill": False,  # with it, seeded requests crash on CPU
            "block_size": CPU_BLOCK,
            "max_num_seqs": sequences,
            "kv_cache_memory_bytes": (sequences + 1) * sequence,
        }


def scoring_request(prompt: Tokens, completion: Tokens, from_the_beginning: bool) -> dict[str, Any]:
    """What asks vLLM for the log-probabilities of a completion of which all but the last token is read.

    Logits cost more than anything else of a small model, and those of the context are not needed.
    """
    request: dict[str, Any] = {"temperature": 0.0, "max_tokens": 1, "logprob_token_ids": [int(completion[-1])]}
    if from_the_beginning:
        return request | {"prompt_logprobs": 0}
    if len(completion) == 1:
        return request
    return request | {"prompt_logprob_token_ids": completion[:-1, None], "prompt_logprob_start": len(prompt) - 1}


def scores_of_what_was_read(output: Any, prompt: int) -> Any:
    """Log-probabilities of a completion's tokens but the last, after a prompt of so many."""
    if output.prompt_logprobs is not None:
        return output.prompt_logprobs.logprobs[prompt - 1 :]  # a number for each token but the first
    rows = output.prompt_token_id_logprobs
    return () if rows is None else rows[:, 0]


def kept_mass(best: NDArray[np.float64], kept: int, vocabulary_size: int, exactly: bool = False) -> NDArray[np.float64]:
    """The mass that top-k leaves: of the k best tokens, whose log-probabilities stand last, best first.

    On GPUs vLLM's kernel keeps `exactly` k, whichever of those that tie with the k-th. Without Triton it keeps all of
    them; NaN where they go on beyond what was reported.
    """
    if exactly:
        return np.asarray(np.exp(best[..., :kept]).sum(-1))
    level = best >= best[..., kept - 1 : kept]
    mass = np.where(level, np.exp(best), 0.0).sum(-1)
    endless = level[..., -1] & (best.shape[-1] < vocabulary_size)
    return np.where(endless, np.nan, mass)


@contextlib.contextmanager
def _threads_left_alone() -> Iterator[None]:
    """vLLM takes `torch.set_num_threads` away from the whole process, for good; what comes after must have it back."""
    set_num_threads = torch.set_num_threads
    try:
        yield
    finally:
        torch.set_num_threads = set_num_threads
