"""The texts of rows of negatives: what both completions have before them, the real one, and the sampled ones."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pipeline.text.tokenizer import TextEncoder
from schemas.division import LEFT_TO_RIGHT, divide, join


@dataclass(frozen=True)
class RowTexts:
    """Of one row. What stands before a completion is as long as all its completions agree on it, letter by letter."""

    prompt: str
    real: str
    generated: list[str]
    is_first: bool  # of its window and context: further samples of the same are in rows of their own

    @property
    def whole(self) -> list[str]:
        """The real text, then the others."""
        return [self.prompt + text for text in (self.real, *self.generated)]


def texts_of(rows: pa.Table, encoder: TextEncoder, joint: str | None = None) -> Iterator[RowTexts]:
    """The texts of rows; `joint` is put where documents are joined, in place of the tokenizer's own word for it.

    A generator that reads from right to left is given the end of a text: nothing stands before its completions, and
    they are whole texts. A context may end within a letter of several bytes, which then belongs to the completions.
    """
    columns = [
        rows[name].to_pylist() for name in ("tokens", "context_length", "direction", "negatives", "first_sample")
    ]
    for tokens, length, direction, negatives, first in zip(*columns, strict=True):
        context, _ = divide(np.array(tokens, np.int64), length, direction)
        sampled = [join(context, np.array(ids, np.int64), direction).tolist() for ids in negatives]
        before = context.tolist() if direction == LEFT_TO_RIGHT else []
        prompt, *whole = decoded([before, tokens, *sampled], encoder, joint)
        prompt = common_beginning([prompt, *whole])
        real, *generated = [text[len(prompt) :] for text in whole]
        yield RowTexts(prompt, real, generated, first == 0)


def common_beginning(texts: list[str]) -> str:
    least, most = min(texts), max(texts)  # all others are between them
    end = next((place for place, letter in enumerate(least) if letter != most[place]), len(least))
    return least[:end]


def decoded(ids: list[list[int]], encoder: TextEncoder, joint: str | None) -> list[str]:
    texts = encoder.backend.decode_batch(ids, skip_special_tokens=False)
    return texts if joint is None else [text.replace(encoder.eos_token, joint) for text in texts]
