"""The class that lm-evaluation-harness knows as `residual-ebm`: text in, what the harness wants to know out.

Importing this module registers it. Everything about texts and their boundaries is as in the harness's own `hf` model:
a continuation's tokens are those that the whole text has beyond its context's, an empty context is the token that
precedes a text, and nothing else is put first unless the tokenizer does it, or `add_bos_token` asks for it: this
project's own language models, and the energies that correct them, were trained with it.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.models.utils import normalize_gen_kwargs

from evaluation.harness.account import Account
from evaluation.harness.answers import Answer, Question, answers, before_end, before_stops, room_for
from evaluation.harness.estimates import Estimate, estimates
from evaluation.harness.pair import Pair, open_pair
from evaluation.harness.passages import Ids, Passage, fitted, rolling
from evaluation.results.cache import ResultCache
from pipeline.engines.sampling import TOP_K, Sampling
from pipeline.models.model_folder import quiet
from pipeline.runtime.digests import digest_of
from pipeline.runtime.errors import UserError
from pipeline.runtime.progress import Bar

LOWER, UPPER = BOUNDS = ("lower", "upper")
ANSWER_TOKENS = 256  # where a task does not say


@register_model("residual-ebm")
class ResidualEnergyModel(TemplateLM):
    """P(x) ~ P_phi(x) exp(-E(x)), or P_phi alone where there is no energy.

    A log-likelihood is the `bound` of the joint model's. `is_greedy`: no completion that was drawn in this context, nor
    what the language model would write greedily, is likelier; of the language model alone, that it is what it would.
    """

    def __init__(
        self,
        generator: str | Pair,
        energy: str | None = None,
        samples: int = 64,
        seed: int = 0,
        window: int | None = None,
        stride: int | None = None,
        top_k: int = 10,
        add_bos_token: bool = False,
        engine: str = "torch",
        bound: str = LOWER,
        kept: ResultCache | None = None,
        batch_size: int | str | None = None,  # the engine knows what fits
        max_batch_size: int | None = None,
        device: str | None = None,  # the engine's, or none
    ):
        super().__init__()
        if bound not in BOUNDS:
            raise UserError(f"bound={bound}: one of {', '.join(BOUNDS)}")
        self.pair = generator if isinstance(generator, Pair) else open_pair(generator, energy, engine, window)
        own = getattr(self.pair.generator.engine, "device", None)
        # The harness itself says cuda:0 where nobody has said anything, and means what there is.
        if device is not None and own is not None and device.partition(":")[0] not in (own, "cuda"):
            raise UserError(f"device={device}: the models are on {own}: leave it out, or see CUDA_VISIBLE_DEVICES")
        if samples < 2 and self.pair.joint is not None:
            raise UserError(f"samples={samples}: at least 2 are needed to estimate log Z")
        self.samples, self.seed, self.bound, self.always_start = samples, seed, bound, add_bos_token
        self.stride = min(stride or self.pair.window, self.pair.window)
        self.sampling = Sampling(TOP_K, top_k)
        self.known: dict[str, Any] = {} if kept is None else kept.results
        self.kept = kept
        self.account = Account(samples)
        self.tokenizer = self._open_tokenizer()
        self._first_text = self.tokenizer.decode([self.prefix_token_id])

    def _open_tokenizer(self) -> Any:
        from transformers import AutoTokenizer

        with quiet():
            return AutoTokenizer.from_pretrained(self.pair.generator.model.folder, trust_remote_code=False)

    @property
    def eot_token_id(self) -> int:
        end = self.tokenizer.eos_token_id
        return self.pair.start if end is None else int(end)

    @property
    def prefix_token_id(self) -> int:
        return self.pair.start

    @property
    def max_length(self) -> int:
        return self.pair.window

    @property
    def tokenizer_name(self) -> str:
        return self.pair.generator.model.name.replace("/", "__")

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        return str(
            self.tokenizer.apply_chat_template(
                chat_history,
                tokenize=False,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=not add_generation_prompt,
            )
        )

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **options: Any) -> list[int]:
        """With the tokens that the tokenizer puts around a text of itself, unless the first is there already."""
        if add_special_tokens is None:
            add_special_tokens = not string.startswith(self._first_text)
        return list(self.tokenizer.encode(string, add_special_tokens=add_special_tokens))

    def loglikelihood(self, requests: list[Any], disable_tqdm: bool = True) -> list[tuple[float, bool]]:
        return super().loglikelihood(requests, disable_tqdm=True)  # there is a bar of our own

    def _loglikelihood_tokens(
        self, requests: list[tuple[tuple[str, str], list[int], list[int]]], **options: Any
    ) -> list[tuple[float, bool]]:
        passages = [self._passage(*request) for request in requests]
        found = self._estimates(passages, greedy=True)
        results = [(float(getattr(found[passage], self.bound)), found[passage].is_greedy) for passage in passages]
        for (texts, _, _), result in zip(requests, results, strict=True):
            self.cache_hook.add_partial("loglikelihood", texts, result)
        return results

    def loglikelihood_rolling(self, requests: list[Any], disable_tqdm: bool = True) -> list[float]:
        """The sum over disjoint completions of `stride` tokens (default: a window), each with a log Z of its own."""
        texts = [tuple(self.tok_encode(request.args[0])) for request in requests]
        how = (self.pair.start, self.pair.window, self.stride, self.always_start)
        cut = [list(rolling(text, *how)) for text in texts]
        found = self._estimates([passage for passages in cut for passage in passages], greedy=False)
        results = [sum(float(getattr(found[passage], self.bound)) for passage in passages) for passages in cut]
        for request, result in zip(requests, results, strict=True):
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, result)
        return results

    def generate_until(self, requests: list[Any], disable_tqdm: bool = True) -> list[str]:
        """One of n top-k samples, cut where the task says; how to sample is ours to say, not the task's."""
        rules = [normalize_gen_kwargs(dict(request.args[1]), ANSWER_TOKENS) for request in requests]
        questions, asked = [], Counter[tuple[Ids, int]]()
        for request, rule in zip(requests, rules, strict=True):
            prompt = self._started(self.tok_encode(request.args[0]))
            length = room_for(rule["max_gen_toks"], len(prompt), self.pair.window)
            self.account.shortened_answers += length < rule["max_gen_toks"]
            shape = self._fitted(prompt, length), length
            questions.append(Question(*shape, asked[shape]))  # who asks twice wants two answers
            asked[shape] += 1
        found = self._answers(questions)
        results = []
        for request, rule, question in zip(requests, rules, questions, strict=True):
            tokens = before_end(found[question].tokens, self.eot_token_id)
            text = before_stops(self.tokenizer.decode(tokens, skip_special_tokens=True), rule["until"])
            self.cache_hook.add_partial("generate_until", request.args, text)
            results.append(text)
        return results

    def get_model_info(self) -> dict[str, Any]:
        """What the harness puts beside its results when it is done."""
        model = self.pair.generator.model
        facts = {
            "generator": model.name,
            "generator_digest": model.weights_digest,
            "energy_digest": self.pair.energy_digest,
            "window": self.pair.window,
            "stride": self.stride,
            "sampling": self.sampling.description,
            "seed": self.seed,
            "add_bos_token": self.always_start,
            "bound": self.bound,
        }
        return {"residual_ebm": facts | self.account.statement(self.pair.cut_by_encoder)}

    def _passage(self, texts: tuple[str, str], context: list[int], continuation: list[int]) -> Passage:
        if not continuation:
            raise UserError(f"{texts[1][:80]!r}: nothing of it is left where the tokens of its context end")
        if len(continuation) > self.pair.window:
            raise UserError(
                f"{texts[1][:80]!r}: {len(continuation)} tokens, a window has {self.pair.window}: take a larger one, "
                f"or a task of loglikelihood_rolling"
            )
        return Passage(self._fitted(self._started(context), len(continuation)), tuple(continuation))

    def _started(self, ids: Sequence[int]) -> Ids:
        first = (self.pair.start,)
        return (*first, *ids) if not ids or (self.always_start and tuple(ids[:1]) != first) else tuple(ids)

    def _fitted(self, prompt: Ids, length: int) -> Ids:
        found = fitted(prompt, length, self.pair.window, self.pair.start if self.always_start else None)
        self.account.cut_prompts += len(found) < len(prompt)
        return found

    def _estimates(self, passages: list[Passage], greedy: bool) -> dict[Passage, Estimate]:
        keys = {passage: self._key("likelihood", asdict(passage), greedy) for passage in passages}
        new = [passage for passage, key in keys.items() if key not in self.known]
        with Bar(total=len(new), desc="likelihoods", unit=" passages") as bar:
            for passage, estimate in estimates(self.pair, new, self.samples, self.seed, greedy):
                self._keep(keys[passage], asdict(estimate))
                bar.update()
        found = {passage: Estimate(**self.known[key]) for passage, key in keys.items()}
        self.account.scored |= found
        return found

    def _answers(self, questions: list[Question]) -> dict[Question, Answer]:
        keys = {question: self._key("answer", asdict(question), self.sampling.description) for question in questions}
        new = [question for question, key in keys.items() if key not in self.known]
        with Bar(total=len(new), desc="answers", unit=" questions") as bar:
            for question, answer in answers(self.pair, new, self.sampling, self.samples, self.seed):
                self._keep(keys[question], asdict(answer))
                bar.update()
        found = {question: _answer(self.known[key]) for question, key in keys.items()}
        self.account.answered += found.values()
        return found

    def _key(self, *what: Any) -> str:
        """Of all that a result depends on, so that those of a run that was killed can be told from others."""
        return digest_of([*what, self.samples, self.seed, self.pair.window, self.pair.digests])

    def _keep(self, key: str, value: dict[str, Any]) -> None:
        if self.kept is None:
            self.known[key] = value
        else:
            self.kept.get(key, lambda: value)


def _answer(kept: dict[str, Any]) -> Answer:
    return Answer(tuple(kept["tokens"]), kept["effective_samples"])
