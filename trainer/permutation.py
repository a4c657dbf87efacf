"""A random order of n things that is computed, not stored."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Permutation"]

_ROUNDS = 8
_MASK = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Permutation:
    """A pseudo-random permutation of range(size), a pure function of `key` (any text).

    A balanced Feistel network over the smallest even number of bits that holds `size`, walked until it falls inside
    the range (Black and Rogaway 2002, "Ciphers with arbitrary finite domains"): fewer than four steps on average.
    Memory: none. Eight rounds of a 64-bit mixer are for shuffling, not for secrets.
    """

    size: int
    half_bits: int
    keys: tuple[int, ...]

    @classmethod
    def of(cls, size: int, key: str) -> Permutation:
        """The permutation that `key` names. Raises ValueError for a negative size."""
        if size < 0:
            raise ValueError(f"size {size} must not be negative")
        half_bits = max(1, (max(size - 1, 1).bit_length() + 1) // 2)
        digest = hashlib.blake2b(key.encode("utf-8"), digest_size=8 * _ROUNDS).digest()
        keys = tuple(int.from_bytes(digest[8 * i : 8 * i + 8], "little") for i in range(_ROUNDS))
        return cls(size, half_bits, keys)

    def __getitem__(self, index: int) -> int:
        """Where `index` goes. Raises IndexError outside range(size)."""
        if not 0 <= index < self.size:
            raise IndexError(f"{index} is not below {self.size}")
        value = index
        while True:
            value = self._feistel(value)
            if value < self.size:
                return value

    def block(self, first: int, last: int) -> list[int]:
        """Where `first`…`last` - 1 go, all at once: about a fiftieth of the cost of asking one by one.

        Raises IndexError outside range(size).
        """
        if not 0 <= first <= last <= self.size:
            raise IndexError(f"{first} to {last} is not within {self.size}")
        values = self._feistel_all(np.arange(first, last, dtype=np.uint64))
        while len(outside := np.flatnonzero(values >= self.size)):
            values[outside] = self._feistel_all(values[outside])
        return [int(value) for value in values.tolist()]

    def _feistel_all(self, values: np.ndarray[Any, np.dtype[np.uint64]]) -> np.ndarray[Any, np.dtype[np.uint64]]:
        bits, low_mask = np.uint64(self.half_bits), np.uint64((1 << self.half_bits) - 1)
        high, low = values >> bits, values & low_mask
        for key in self.keys:
            mixed = low ^ np.uint64(key)
            for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
                mixed = (mixed ^ mixed >> np.uint64(shift)) * np.uint64(factor)  # arrays wrap at 2^64
            high, low = low, high ^ ((mixed ^ mixed >> np.uint64(31)) & low_mask)
        return high << bits | low

    def _feistel(self, value: int) -> int:
        low_mask = (1 << self.half_bits) - 1
        high, low = value >> self.half_bits, value & low_mask
        for key in self.keys:
            high, low = low, high ^ (_mix(low ^ key) & low_mask)
        return high << self.half_bits | low


def _mix(value: int) -> int:
    """The finaliser of splitmix64 (Steele, Lea and Flood 2014): every input bit moves every output bit."""
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    value = (value ^ value >> 27) * 0x94D049BB133111EB & _MASK
    return value ^ value >> 31
