"""One exact step of sampling: from logits and a uniform number to a token."""

import torch
from torch import Tensor

from pipeline.engines.sampling import TEMPERATURE, TOP_K, Sampling

TOKENS_PER_SUM = 256  # tokens whose probabilities are summed together; running sums go over blocks, then inside of one


def draw(logits: Tensor, u: Tensor, sampling: Sampling) -> tuple[Tensor, Tensor, Tensor]:
    """One token a row from logits (B, V) and uniform numbers (B,): tokens, log_p and log_q, the latter in float64.

    The token is the first at which the running sum of probabilities exceeds u: no noise of a width of its own, so
    tokens of probability 1e-12 come as often as they should, and those of probability 0 never.
    """
    most = logits.amax(-1, keepdim=True)
    weights = _weights_in_blocks(logits, most)
    # In fp32 the sum of a block would swallow the small tokens beside a large one, and bias the tail.
    sums = weights.double().sum(-1).cumsum_(-1)
    total = sums[:, -1]
    if sampling.rule == TEMPERATURE:
        tokens, kept = _from_blocks(weights, sums, u).clamp_(max=logits.shape[-1] - 1), total  # the clamp is for NaN
    elif sampling.rule == TOP_K:
        best = torch.topk(logits, min(sampling.top_k, logits.shape[-1]))
        sums = (best.values - most).double().exp_().cumsum(-1)
        kept = sums[:, -1]
        tokens = _pick(best.indices, _first_above(sums, u * kept, kept))
    else:
        ordered, order = torch.sort(logits, descending=True, stable=True)
        sums = (ordered - most).double().exp_().cumsum(-1)
        # The token that reaches top_p is the last one kept.
        last = torch.searchsorted(sums, (sampling.top_p * total)[:, None]).clamp_(max=sums.shape[-1] - 1)
        kept = sums.gather(1, last)[:, 0]
        tokens = _pick(order, _first_above(sums, u * kept, kept))
    above = (_pick(logits, tokens) - most[:, 0]).double()
    return tokens, above - total.log(), above - kept.log()


def log_probabilities(logits: Tensor, tokens: Tensor) -> Tensor:
    """Of the tokens (…), under the softmax of logits (…, V), in float64; the logits are overwritten."""
    most = logits.amax(-1, keepdim=True)
    above = (logits.gather(-1, tokens[..., None]) - most)[..., 0].double()
    return above - logits.sub_(most).exp_().sum(-1).double().log()


def _weights_in_blocks(logits: Tensor, most: Tensor) -> Tensor:
    """exp(logits - most) as (B, blocks, TOKENS_PER_SUM), filled up with zeros."""
    rows, width = logits.shape
    weights = torch.empty(rows, -(-width // TOKENS_PER_SUM) * TOKENS_PER_SUM, dtype=torch.float32, device=logits.device)
    torch.sub(logits, most, out=weights[:, :width])
    weights[:, width:] = -torch.inf
    return weights.exp_().view(rows, -1, TOKENS_PER_SUM)


def _from_blocks(weights: Tensor, sums: Tensor, u: Tensor) -> Tensor:
    """The first token at which the running sum exceeds u times the whole: first its block, then its place in there."""
    target = u * sums[:, -1]
    block = _first_above(sums, target, sums[:, -1])
    before = torch.where(block > 0, _pick(sums, (block - 1).clamp(min=0)), 0.0)
    inside = weights[torch.arange(len(weights), device=weights.device), block].double().cumsum(-1)
    return block * TOKENS_PER_SUM + _first_above(inside, target - before, inside[:, -1])


def _first_above(sums: Tensor, target: Tensor, total: Tensor) -> Tensor:
    """Where running sums first exceed the target. Rounding may bring it up to the total: it is kept below.

    A sum that exceeds what the one before it does not has been added to, so no weight of 0 is ever chosen.
    """
    below = torch.minimum(target, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(sums, below[:, None], right=True)[:, 0].clamp_(max=sums.shape[-1] - 1)


def _pick(rows: Tensor, places: Tensor) -> Tensor:
    return rows.gather(1, places[:, None])[:, 0]
