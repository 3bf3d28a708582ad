"""How completions are scored on GPUs, from the context on: the part of vLLM's runner for GPUs that does it, on a CPU.

The runner itself needs a GPU. What it calls between the network and the answer is plain torch, and is called here as it
would: with pieces of a prompt, as it reads long ones. Its log-softmax is a kernel for GPUs; logits that are
log-probabilities already do without it.
"""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from pipeline.engines.vllm_engine import scores_of_what_was_read, scoring_request

pytestmark = pytest.mark.vllm

VOCABULARY = 50


@pytest.mark.parametrize("pieces", [1, 3])
@pytest.mark.parametrize(("context", "length"), [(1, 2), (12, 9), (30, 1)])
def test_a_completions_tokens_are_scored_where_they_stand(context: int, length: int, pieces: int):
    rng = np.random.default_rng(context)
    prompt, completion = (rng.integers(0, VOCABULARY, size, np.int32) for size in (context, length))
    read = np.concatenate([prompt, completion[:-1]])
    after = torch.log_softmax(torch.from_numpy(rng.normal(size=(len(read), VOCABULARY))), -1).float()

    rows = scored_by_vllm(scoring_request(prompt, completion, from_the_beginning=False), after, pieces)
    found = scores_of_what_was_read(SimpleNamespace(prompt_logprobs=None, prompt_token_id_logprobs=rows), len(prompt))

    expected = [float(after[context - 1 + place, token]) for place, token in enumerate(completion[:-1])]
    assert np.asarray(found, np.float64) == pytest.approx(np.array(expected))


def scored_by_vllm(request: dict, after: torch.Tensor, pieces: int) -> np.ndarray | None:
    """What vLLM's worker gives for a prompt whose logits are known, and which is read in so many pieces."""
    from vllm import SamplingParams
    from vllm.v1.worker.gpu.sample.prompt_logprob import PromptLogprobsWorker

    if "prompt_logprob_token_ids" in request:  # vLLM turns it into an array of this kind when a request comes in
        ids = np.ascontiguousarray(request["prompt_logprob_token_ids"], dtype=np.int32)
        request = request | {"prompt_logprob_token_ids": ids}
        assert len(ids) == len(after) - 1 - request["prompt_logprob_start"]  # what it checks before
    worker = PromptLogprobsWorker(1, torch.device("cpu"), logprobs_mode="raw_logits")
    worker.add_request("one", 0, SamplingParams(**request))
    given: dict[str, torch.Tensor] = {}
    for piece in np.array_split(np.arange(len(after)), pieces):
        if len(piece):
            batch = SimpleNamespace(
                req_ids=["one"],
                idx_mapping_np=np.array([0]),
                num_computed_prefill_tokens_np=piece[:1],
                num_scheduled_tokens=np.array([len(piece)]),
                prefill_len_np=np.array([len(after)]),
                query_start_loc_np=np.array([0, len(piece)]),
            )
            given |= worker.compute_prompt_token_id_logprobs(
                lambda states: states, after[piece], batch, np.array([len(after)])
            )
    return given["one"].numpy() if given else None
