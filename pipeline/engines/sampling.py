"""Sampling rules, the seeds of requests, and the numbers that tokens are drawn with."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.runtime.errors import UserError
from pipeline.runtime.randomness import U64, mix

TEMPERATURE, TOP_K, NUCLEUS = "temperature", "top_k", "nucleus"
RULES = (TEMPERATURE, TOP_K, NUCLEUS)


@dataclass(frozen=True)
class Sampling:
    """How the next token is drawn: from the whole softmax, from the k best, or from the likeliest with mass top_p."""

    rule: str = TEMPERATURE
    top_k: int = 10
    top_p: float = 0.9

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise UserError(f"--sampling {self.rule}: not a sampling rule, there are {', '.join(RULES)}")
        if self.rule == TOP_K and self.top_k < 1:
            raise UserError(f"--top_k {self.top_k}: at least one token must be left to draw from")
        if self.rule == NUCLEUS and not 0 < self.top_p <= 1:
            raise UserError(f"--top_p {self.top_p}: a probability above 0 and at most 1 is needed")

    @property
    def truncated(self) -> bool:
        """Whether some completions are never drawn: log_q differs from log_p."""
        return self.rule != TEMPERATURE

    @property
    def description(self) -> dict[str, Any]:
        """What a manifest says of it."""
        settings: dict[str, dict[str, Any]] = {
            TEMPERATURE: {"temperature": 1.0},
            TOP_K: {"top_k": self.top_k},
            NUCLEUS: {"top_p": self.top_p},
        }
        return {"rule": self.rule} | settings[self.rule]


@dataclass(frozen=True)
class Completions:
    """The samples of one request: tokens of shape (n, length), and of each its two log-probabilities."""

    tokens: NDArray[np.int32]
    log_p: NDArray[np.float64]
    log_q: NDArray[np.float64]


def request_seed(run_seed: int, window_id: str, context_length: int) -> int:
    """The seed of a window's first sample, in [0, 2**62): a hash of its address, so that no two windows share one.

    Sample j has this seed plus j, in whatever chunks the samples are drawn: no two samples of a window share a seed
    either, also where an engine looks at the low bits alone.
    """
    address = json.dumps([int(run_seed), window_id, int(context_length)]).encode()
    return int.from_bytes(hashlib.blake2b(address, digest_size=8).digest()) >> 2


def uniform(seeds: U64, length: int) -> NDArray[np.float64]:
    """Numbers in [0, 1), one a row and position: each a function of (seed, position) alone."""
    rows = mix(mix(seeds, 1), 2)
    bits = mix(rows[:, None] + np.arange(length, dtype=np.uint64), 3)
    return np.asarray((bits >> np.uint64(11)) * 2.0**-53, np.float64)
