"""Token replacements chosen by the gradient of the energy: its first-order expansion in the embeddings."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pipeline.runtime.errors import UserError
from training.energy.folder import EnergyModelFolder

if TYPE_CHECKING:
    from torch import Tensor, nn

    from training.energy.model import EnergyModel

Tokens = NDArray[np.int32]
Numbers = NDArray[np.float64]
LOWER, HIGHER = "lower", "higher"  # what a replacement does to the energy: the lower, the more real


@dataclass(frozen=True)
class Replacement:
    """A new token at a place of a window, and what the expansion says that it adds to the energy."""

    place: int
    old: int
    new: int
    estimate: float


def check_has_embeddings(energy: EnergyModelFolder) -> None:
    """Refuses models that do not read the store's ids."""
    if energy.config.own_tokenizer:
        raise UserError(
            f"--energy {energy.name}: an encoder with a tokenizer of its own reads text, and has no embeddings of the "
            f"store's tokens: take one of the kinds linear, bilstm, unit and bit"
        )


def embedding_gradient(model: "EnergyModel", ids: "Tensor") -> "Tensor":
    """dE/de, (batch, length, width), for ids of shape (batch, length): e is what the embedding layer gives for them."""
    import torch

    kept: list[Tensor] = []

    def keep(module: "nn.Module", inputs: "tuple[Tensor, ...]", output: "Tensor") -> "Tensor":
        kept.append(output.detach().requires_grad_())
        return kept[-1]

    handle = model.get_input_embeddings().register_forward_hook(keep)
    try:
        # cuDNN's LSTM has no gradient outside of training.
        with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
            (gradient,) = torch.autograd.grad(model(ids).sum(), kept[-1:])
    finally:
        handle.remove()
    return gradient[:, -ids.shape[1] :]  # without the start token that the model puts before them


def first_order_changes(model: "EnergyModel", tokens: Tokens, size: int) -> Numbers:
    """(length, size): (e_v - e_(x_t)) · dE/de_t, what token v at place t adds to the energy to first order."""
    import torch

    weights = next(model.get_input_embeddings().parameters()).detach()[:size]
    ids = torch.from_numpy(tokens.astype(np.int64)).to(weights.device)
    gradient = embedding_gradient(model, ids[None])[0]
    products = (gradient.float() @ weights.float().T).double()
    return (products - products.gather(1, ids[:, None])).cpu().numpy()


def best_replacements(
    changes: Numbers, tokens: Tokens, places: Sequence[int], count: int, goal: str
) -> list[Replacement]:
    """At the `count` places where it does most for the goal, the token that does most."""
    signed = changes[list(places)] if goal == LOWER else -changes[list(places)]
    signed[np.arange(len(places)), tokens[list(places)]] = np.inf  # a token does not replace itself
    best = signed.argmin(1)
    order = np.argsort(signed[np.arange(len(places)), best], kind="stable")[:count]
    return [
        Replacement(places[n], int(tokens[places[n]]), int(best[n]), float(changes[places[n], best[n]])) for n in order
    ]


def find_replacements(
    model: "EnergyModel", tokens: Tokens, places: Sequence[int], count: int, goal: str, size: int, greedy: bool = False
) -> list[Replacement]:
    """`count` replacements, all from one gradient, or each from that of the window with those before it made."""
    if not greedy:
        return best_replacements(first_order_changes(model, tokens, size), tokens, places, count, goal)
    found: list[Replacement] = []
    for _ in range(min(count, len(places))):
        left = [place for place in places if place not in {one.place for one in found}]
        window = replaced(tokens, found)
        found += best_replacements(first_order_changes(model, window, size), window, left, 1, goal)
    return found


def replaced(tokens: Tokens, replacements: Sequence[Replacement]) -> Tokens:
    """The window with its new tokens."""
    window = tokens.copy()
    for one in replacements:
        window[one.place] = one.new
    return window
