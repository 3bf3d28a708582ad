"""The central operation: a window divided into context and completion, by direction, and put together again.

A left-to-right generator is given a window's beginning and completes it; a right-to-left one is given its end. All
arrays are in text order, whatever the direction, and may have further axes before the last one.
"""

from typing import TypeVar

import numpy as np

LEFT_TO_RIGHT, RIGHT_TO_LEFT = "left_to_right", "right_to_left"
DIRECTIONS = (LEFT_TO_RIGHT, RIGHT_TO_LEFT)

Tokens = TypeVar("Tokens", bound=np.ndarray)


def divide(window: Tokens, context_length: int, direction: str) -> tuple[Tokens, Tokens]:
    """A window's context and its completion."""
    if direction == RIGHT_TO_LEFT:
        cut = window.shape[-1] - context_length
        return window[..., cut:], window[..., :cut]  # type: ignore[return-value]
    return window[..., :context_length], window[..., context_length:]  # type: ignore[return-value]


def join(context: Tokens, completion: Tokens, direction: str) -> Tokens:
    """The window of a context and a completion: what `divide` divides into them."""
    parts = (completion, context) if direction == RIGHT_TO_LEFT else (context, completion)
    return np.concatenate(parts, axis=-1)


def completion_start(context_length: int, direction: str) -> int:
    """Where in its window a completion starts."""
    return 0 if direction == RIGHT_TO_LEFT else context_length


def nearest(context: Tokens, most: int, direction: str) -> Tokens:
    """Of a context that is too long, the tokens that its completion adjoins."""
    if direction == RIGHT_TO_LEFT:
        return context[..., : max(0, most)]  # type: ignore[return-value]
    return context[..., max(0, context.shape[-1] - max(0, most)) :]  # type: ignore[return-value]


def reading_order(tokens: Tokens, direction: str) -> Tokens:
    """Tokens in the order in which a model of this direction reads them, from text order; or back."""
    return tokens[..., ::-1].copy() if direction == RIGHT_TO_LEFT else tokens  # type: ignore[return-value]
