"""Candidate pairs: documents that share a band and whose whole signatures agree well enough.

A bucket is the set of documents with equal keys in one band. Small buckets give all their pairs. A giant bucket (a
licence header, a page template) would give a quadratic number of them, so it is gone through by stars: its first
document is the hub, every other one is compared with the hub; who clearly belongs to it is done with, the others
stay for the next hub, and so on for a bounded number of hubs.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"
from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import types

from filters.text.dedup.bands import Bands, band_keys
from filters.text.dedup.compiled import compiled

__all__ = ["BUCKET_CAP", "HUBS", "candidate_pairs", "required_agreement"]

BUCKET_CAP = 64  # a larger bucket is gone through by stars: at most 2,016 pairs from a small one
HUBS = 64  # stars in one bucket; a bucket of m documents costs at most HUBS * m comparisons
MARGIN = 4.0  # standard deviations of the sketch's estimate that a candidate may lie below the threshold

I64, U32 = types.int64, types.uint32
PAIRS = types.Array(I64, 2, "C")


def required_agreement(threshold: float, permutations: int) -> int:
    """Equal signature values below which a pair is not worth an exact check.

    The share of equal values estimates the similarity s with standard deviation sqrt(s (1 - s) / permutations);
    MARGIN of them below the threshold loses 3 pairs in 100,000 at the threshold itself.
    """
    spread = MARGIN * float(np.sqrt(threshold * (1 - threshold) / permutations))
    return max(1, int(np.floor((threshold - spread) * permutations)))


@compiled(I64(types.Array(U32, 2, "C", readonly=True), I64, I64))
def _agreement(signatures, left, right):
    """How many values two signatures have in common."""
    equal = np.uint32(0)
    for slot in range(signatures.shape[1]):
        equal += signatures[left, slot] == signatures[right, slot]
    return np.int64(equal)


@compiled(PAIRS(PAIRS, I64, I64, I64))
def _append(pairs, used, left, right):
    """Put a pair (smaller first) at index `used`, in a larger array when the old one is full."""
    if used == pairs.shape[0]:
        larger = np.empty((2 * used, 2), np.int64)
        larger[:used] = pairs
        pairs = larger
    pairs[used, 0] = min(left, right)
    pairs[used, 1] = max(left, right)
    return pairs


@compiled(
    PAIRS(
        types.Array(I64, 1, "C"), types.Array(types.uint64, 1, "C"), types.Array(U32, 2, "C", readonly=True), I64, I64,
        I64, I64,
    )
)  # fmt: skip
def _pairs_of_band(order, keys, signatures, enough, clear, cap, hubs):
    """Pairs of one band. `keys` are sorted, `order` holds the document of each key; see the module's text."""
    pairs = np.empty((1024, 2), np.int64)
    used = 0
    first = 0
    while first < keys.shape[0]:
        last = first + 1
        while last < keys.shape[0] and keys[last] == keys[first]:
            last += 1
        if last - first > 1 and last - first <= cap:
            for left in range(first, last):
                for right in range(left + 1, last):
                    if _agreement(signatures, order[left], order[right]) >= enough:
                        pairs = _append(pairs, used, order[left], order[right])
                        used += 1
        elif last - first > cap:
            waiting = order[first:last].copy()
            count = waiting.shape[0]
            turns = 0
            while count > 1 and turns < hubs:
                stay = 0
                for index in range(1, count):
                    equal = _agreement(signatures, waiting[0], waiting[index])
                    if equal >= enough:
                        pairs = _append(pairs, used, waiting[0], waiting[index])
                        used += 1
                    if equal < clear:
                        waiting[stay] = waiting[index]
                        stay += 1
                count = stay
                turns += 1
        first = last
    return pairs[:used].copy()


def candidate_pairs(
    signatures: npt.NDArray[np.uint32], members: npt.NDArray[np.int64], bands: Bands, *, cap: int = BUCKET_CAP
) -> npt.NDArray[np.int64]:
    """Sorted distinct pairs (i, j), i < j, of `members` worth an exact check. Result (m, 2).

    `members` are rows of `signatures` (n, permutations) that take part; leave out documents without shingles.
    Memory: 24 bytes a member for one band at a time, 16 a pair. Raises ValueError when the bands need more values
    than the signatures have.
    """
    if bands.bands * bands.rows > signatures.shape[1]:
        raise ValueError(f"{bands.bands} bands of {bands.rows} rows need more than {signatures.shape[1]} values")
    signatures = np.ascontiguousarray(signatures, np.uint32)
    members = np.ascontiguousarray(members, np.int64)
    enough = required_agreement(bands.threshold, bands.permutations)
    clear = min(bands.permutations, 2 * int(np.ceil(bands.threshold * bands.permutations)) - enough)
    known = np.empty((0, 2), np.int64)
    for band in range(bands.bands):
        keys = band_keys(signatures, band, bands.rows)[members]
        order = np.argsort(keys, kind="stable")
        found = _pairs_of_band(members[order], keys[order], signatures, enough, clear, cap, HUBS)
        if len(found):
            known = np.unique(np.concatenate([known, found]), axis=0)
    return known
