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

from filters.text.dedup.bands import Bands
from filters.text.dedup.compiled import bare, compiled

__all__ = ["BUCKET_CAP", "HUBS", "candidate_pairs", "required_agreement"]

BUCKET_CAP = 64  # a larger bucket is gone through by stars: at most 2,016 pairs from a small one
HUBS = 64  # stars in one bucket; a bucket of m documents costs at most HUBS * m comparisons
KEYS_AT_ONCE = 1 << 22  # 64-bit keys held at once: all bands of a small corpus, one band of a large one
PAIRS_AT_ONCE = 1 << 22  # pairs found in several bands that are held before they are made distinct
MARGIN = 4.0  # standard deviations of the sketch's estimate that a candidate may lie below the threshold

I64, U32, U64 = types.int64, types.uint32, types.uint64
ROI64 = types.Array(I64, 1, "C", readonly=True)
PAIRS = types.Array(I64, 2, "C")


def required_agreement(threshold: float, permutations: int) -> int:
    """Equal signature values below which a pair is not worth an exact check.

    The share of equal values estimates the similarity s with standard deviation sqrt(s (1 - s) / permutations);
    MARGIN of them below the threshold loses 3 pairs in 100,000 at the threshold itself.
    """
    spread = MARGIN * float(np.sqrt(threshold * (1 - threshold) / permutations))
    return max(1, int(np.floor((threshold - spread) * permutations)))


@bare(types.void(types.Array(U32, 2, "C", readonly=True), ROI64, I64, I64, U64, types.Array(U64, 2, "C")))
def _band_keys(signatures, members, first, rows, keep, out):
    """out[b, m] = the key of band first + b of document members[m], its bits outside `keep` replaced by m."""
    for index in range(members.shape[0]):
        document = members[index]
        for band in range(out.shape[0]):
            key = np.uint64(0x9E3779B97F4A7C15)
            for column in range((first + band) * rows, (first + band + 1) * rows):
                key = (key ^ np.uint64(signatures[document, column])) * np.uint64(0xD6E8FEB86659FD93)
                key ^= key >> np.uint64(32)
            out[band, index] = (key & keep) | np.uint64(index)


@bare(I64(types.Array(U32, 2, "C", readonly=True), I64, I64))
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
        types.Array(U64, 1, "C"), U64, ROI64, types.Array(U32, 2, "C", readonly=True), I64, I64, I64, I64,
    )
)  # fmt: skip
def _pairs_of_band(sorted_keys, keep, members, signatures, enough, clear, cap, hubs):
    """Pairs of one band. `sorted_keys` are those of `_band_keys`; see the module's text."""
    keys = sorted_keys & keep
    order = np.empty(keys.shape[0], np.int64)
    for index in range(keys.shape[0]):
        order[index] = members[np.int64(sorted_keys[index] & ~keep)]
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
    Memory: 32 bytes a member for one band at a time, 16 a pair. Keys hold as many bits as the numbers of the members
    leave (34 for 10**9 of them): bands that differ share a bucket now and then, and the signatures tell them apart.
    Raises ValueError when the bands need more values than the signatures have.
    """
    if bands.bands * bands.rows > signatures.shape[1]:
        raise ValueError(f"{bands.bands} bands of {bands.rows} rows need more than {signatures.shape[1]} values")
    signatures = np.ascontiguousarray(signatures, np.uint32)
    members = np.ascontiguousarray(members, np.int64)
    enough = required_agreement(bands.threshold, bands.permutations)
    clear = min(bands.permutations, 2 * int(np.ceil(bands.threshold * bands.permutations)) - enough)
    keep = ~np.uint64((1 << max(1, len(members)).bit_length()) - 1)
    known: list[npt.NDArray[np.int64]] = []
    waiting = 0
    count = len(signatures)
    at_once = max(1, min(bands.bands, KEYS_AT_ONCE // max(1, len(members))))
    for first in range(0, bands.bands, at_once):
        bands_here = min(at_once, bands.bands - first)
        keys = np.empty((bands_here, len(members)), np.uint64)
        _band_keys(signatures, members, first, bands.rows, keep, keys)
        for row in keys:
            row.sort()  # by key, then by document: what a key is short of is said by the number of the document
            found = _pairs_of_band(row, keep, members, signatures, enough, clear, cap, HUBS)
            known.append(found[:, 0] * count + found[:, 1])
            waiting += len(found)
            if waiting > PAIRS_AT_ONCE:
                known = [np.unique(np.concatenate(known))]
                waiting = 0
    distinct = np.unique(np.concatenate([np.empty(0, np.int64), *known]))
    return np.stack([distinct // max(1, count), distinct % max(1, count)], axis=1)
