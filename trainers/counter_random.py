"""Randomness without state: keys, 64-bit hashes of counters, and permutations in closed form.

A generator's hidden state is what resumed runs lose. Here every random choice is a function of a
key (seed and labels) and a counter, so it can be asked for in any order, again, or from the
middle. Nothing depends on a library's random stream, which may change between versions.

Sources: the mixing function is the finaliser of SplitMix64 (Steele, Lea, Flood 2014, with
Stafford's constants); the permutation is a balanced Feistel network (Luby and Rackoff 1988) made
to fit any size by cycle walking (Black and Rogaway 2002).
"""

from __future__ import annotations

import hashlib
import json

import numpy as np

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: spreads consecutive counters
_ROUNDS = 6  # four already give a strong pseudorandom permutation; two more for tiny halves


def key(seed: int, *labels: str | int) -> int:
    """A 64-bit key for one use of the seed: the first 8 bytes of SHA-256 over seed and labels."""
    text = json.dumps([seed, *labels], ensure_ascii=False, separators=(",", ":"))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


def hashes(counters: np.ndarray, key_: int) -> np.ndarray:
    """A uniform ``uint64`` for each counter (any integer array; same shape) under ``key_``."""
    x = np.asarray(counters).astype(np.uint64) * _GOLDEN + np.uint64(key_)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def permute(indices: np.ndarray, size: int, key_: int) -> np.ndarray:
    """Where each index goes under the permutation of ``0 … size - 1`` that ``key_`` names.

    ``indices`` is an integer array of values in ``0 … size - 1``; the result is ``int64`` of the
    same shape. A bijection for every size and key, at a cost that doesn't depend on the size.
    """
    values = np.asarray(indices).astype(np.uint64)
    if values.size and (size < 1 or int(values.max()) >= size):
        raise ValueError(f"index {int(values.max())} is outside a permutation of {size}")
    # The network permutes 2^(2 half) values, fewer than 4 size. A value that lands beyond the
    # size is sent through again: it is on a cycle that must come back into range.
    half = max(1, (max(1, size - 1).bit_length() + 1) // 2)
    out = _feistel(values, half, key_)
    outside = out >= size
    while outside.any():
        out[outside] = _feistel(out[outside], half, key_)
        outside = out >= size
    return out.astype(np.int64)


def _feistel(values: np.ndarray, half: int, key_: int) -> np.ndarray:
    bits, low = np.uint64(half), np.uint64((1 << half) - 1)
    left, right = values >> bits, values & low
    for round_ in range(_ROUNDS):
        mixed = hashes(right + np.uint64(round_ << 48), key_)
        left, right = right, left ^ (mixed & low)
    return (left << bits) | right
