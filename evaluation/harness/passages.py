"""What is asked of a model: the probability of a completion, after what is read first; cut where it is too long.

Everything here is a tuple of ids in text order. A prompt is what the language model reads, the token that precedes a
text included; a window is what the energy model reads: the text alone.
"""

from collections.abc import Iterator
from dataclasses import dataclass

Ids = tuple[int, ...]


@dataclass(frozen=True)
class Passage:
    """A completion and its prompt. All passages of one prompt and length share samples, and so log Z."""

    prompt: Ids
    completion: Ids

    @property
    def shape(self) -> tuple[Ids, int]:
        return self.prompt, len(self.completion)


def fitted(prompt: Ids, length: int, window: int, start: int | None = None) -> Ids:
    """A prompt that leaves room for a completion: together they have at most `window` + 1 tokens, cut at the left.

    The one more is the token that precedes a window. A prompt that begins with `start` keeps it.
    """
    room = window + 1 - length
    if len(prompt) <= room:
        return prompt
    if start is not None and prompt[0] == start:
        return (start, *prompt[len(prompt) - (room - 1) :])
    return prompt[len(prompt) - room :]


def rolling(text: Ids, start: int, window: int, stride: int, always: bool = False) -> Iterator[Passage]:
    """A text as disjoint completions of `stride` tokens, each after as much as the window holds of what precedes it.

    Only the first is preceded by the start token; all of them if that is `always` read first.
    """
    for begin in range(0, len(text), stride):
        end = min(begin + stride, len(text))
        before = (start, *text[:begin]) if always or not begin else text[:begin]
        yield Passage(fitted(before, end - begin, window, start if always else None), text[begin:end])


def text_of(prompt: Ids, start: int, most: int) -> Ids:
    """What the energy model reads of a prompt: its last `most` tokens, the one that precedes a text not among them."""
    own = prompt[1:] if prompt[:1] == (start,) else prompt
    return own[max(0, len(own) - most) :]
