"""What an energy model is trained to minimise, a loss a row: the energies of its real window and of its negatives.

With one negative the first two are the same, and the paper's: conditional noise-contrastive estimation, which is
binary cross-entropy with the logit -E, real and generated text weighted equally. With K negatives a window, P the
data's distribution of completions and P_phi the generator's:

  balanced  (softplus(E+) + mean over k of softplus(-E_k)) / 2
            logit -E, a weight of 1/K on each negative; least at E = log P_phi - log P
  nce       (softplus(E+ + log K) + sum over k of softplus(-E_k - log K)) / (1 + K)
            logit -E - log K, unit weights (Gutmann and Hyvarinen 2010); least at the same E
  ranking   E+ + log(exp(-E+) + sum over k of exp(-E_k))
            which of the K + 1 is the real one (Ma and Collins 2018); least at the same E up to a constant a context

Both corrections for K at once, the weight and the logit, would be wrong by log K. After training by ranking the
threshold s > 0 means nothing, only comparisons within a context do.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import softplus

from training.energy.names import BALANCED, NCE, RANKING


def balanced(positive: Tensor, negatives: Tensor) -> Tensor:
    return (softplus(positive) + softplus(-negatives).mean(1)) / 2


def nce(positive: Tensor, negatives: Tensor) -> Tensor:
    shift, count = math.log(negatives.shape[1]), negatives.shape[1]
    return (softplus(positive + shift) + softplus(-negatives - shift).sum(1)) / (1 + count)


def ranking(positive: Tensor, negatives: Tensor) -> Tensor:
    return positive + torch.logsumexp(-torch.cat([positive.unsqueeze(1), negatives], dim=1), dim=1)


# Energies of shape (rows,) and (rows, K) to losses of shape (rows,).
OBJECTIVES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {BALANCED: balanced, NCE: nce, RANKING: ranking}
