"""Sampling and scoring with vLLM, in this process: whole lists of prompts in one call, a seed a request.

On CPU vLLM's generators look at a seed's low 32 bits alone.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pipeline.engines.choice import USUAL, EngineOptions
from pipeline.engines.sampling import NUCLEUS, TOP_K, Completions, Sampling
from pipeline.engines.vllm_process import LOCK, VllmProcess
from pipeline.models.language_model import LanguageModelFolder
from pipeline.runtime.errors import UserError

Tokens = NDArray[np.int32]

TIES = 16  # further log-probabilities, to see which tokens are level with the k-th best: vLLM keeps them all


class VllmEngine(VllmProcess):
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
        self.vocabulary_size, self.window_length, self.nucleus = model.vocabulary_size, window_length, nucleus
        model.check_runs_elsewhere()
        super().__init__(model, options)

    def sample(
        self, prompts: Sequence[Tokens], lengths: Sequence[int], seeds: Sequence[int], sampling: Sampling, n: int
    ) -> list[Completions]:
        """n completions of each prompt, of the given length, drawn with the request's seed."""
        if self.nucleus != (sampling.rule == NUCLEUS):
            raise ValueError(f"an engine started with nucleus={self.nucleus} cannot follow the rule {sampling.rule}")
        rule: dict[str, Any] = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "logprobs": 0}
        if sampling.rule == TOP_K:
            kept = min(sampling.top_k, self.vocabulary_size)
            rule |= {"top_k": kept, "logprobs": min(kept + TIES, self.vocabulary_size)}
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
        with LOCK:
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
        config = self.started().llm_engine.vllm_config
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

        mass = kept_mass(best, kept, self.vocabulary_size, exactly=HAS_TRITON)
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
        with LOCK:
            llm = self.started()
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

    def settings(self) -> dict[str, Any]:
        shared = {
            "skip_tokenizer_init": True,
            "generation_config": "vllm",
            "max_model_len": self.window_length + 1,
            "max_logprobs": -1,
            "logprobs_mode": "processed_logprobs" if self.nucleus else "raw_logprobs",
            "enable_prefix_caching": True,
        }
        # With chunked prefill, seeded requests crash on CPU.
        return shared | ({} if torch.cuda.is_available() else {"enable_chunked_prefill": False})


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
