"""Addressed randomness: pseudo-random numbers that are a function of an address, not of what was drawn before."""

import numpy as np
from numpy.typing import NDArray

U64 = NDArray[np.uint64]


def mix(values: U64, seed: int = 0) -> U64:
    """SplitMix64's finaliser over `values`: a bijection of 64-bit numbers for each seed, uniform and well mixed."""
    with np.errstate(over="ignore"):
        mixed = np.asarray(values, np.uint64) + np.uint64(seed % 2**64) * np.uint64(0xD1342543DE82EF95)
        mixed += np.uint64(0x9E3779B97F4A7C15)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
        return np.asarray(mixed ^ (mixed >> np.uint64(31)), np.uint64)
