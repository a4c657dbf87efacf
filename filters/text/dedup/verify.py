"""Exact Jaccard similarity of candidate pairs, from sorted sets of shingle hashes.

Sets are of 64-bit hashes: two different shingles of a pair collide with probability about size**2 / 2**64, below
1e-9 for documents of a million words.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numba import types

from filters.text.dedup.compiled import compiled

__all__ = ["ShingleSets", "jaccard", "jaccard_pairs"]

RO64 = types.Array(types.uint64, 1, "C", readonly=True)
ROI64 = types.Array(types.int64, 1, "C", readonly=True)


@dataclass(frozen=True, slots=True)
class ShingleSets:
    """Many sorted sets in one array: set i is flat[bounds[i]:bounds[i + 1]]. The arrays may be memory-mapped."""

    flat: npt.NDArray[np.uint64]
    bounds: npt.NDArray[np.int64]

    @classmethod
    def of(cls, sets: Sequence[npt.NDArray[np.uint64]]) -> ShingleSets:
        """Join sorted arrays."""
        bounds = np.concatenate([[0], np.cumsum([len(one) for one in sets])]).astype(np.int64)
        return cls(np.concatenate(sets) if sets else np.empty(0, np.uint64), bounds)

    def __len__(self) -> int:
        return len(self.bounds) - 1


@compiled(types.void(RO64, ROI64, RO64, ROI64, ROI64, ROI64, types.Array(types.float64, 1, "C")))
def _jaccard(left, left_bounds, right, right_bounds, lefts, rights, out):
    """out[p] = Jaccard similarity of set lefts[p] of `left` and set rights[p] of `right`, by merging."""
    for pair in range(lefts.shape[0]):
        i, i_end = left_bounds[lefts[pair]], left_bounds[lefts[pair] + 1]
        j, j_end = right_bounds[rights[pair]], right_bounds[rights[pair] + 1]
        total = (i_end - i) + (j_end - j)
        common = 0
        while i < i_end and j < j_end:
            a, b = left[i], right[j]
            common += a == b
            i += a <= b
            j += b <= a
        out[pair] = common / (total - common) if total > 0 else 1.0


def jaccard_pairs(
    left: ShingleSets, lefts: npt.NDArray[np.int64], right: ShingleSets, rights: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """Similarity of set lefts[p] of `left` and rights[p] of `right` for every p; two empty sets give 1. Shape (p,)."""
    out = np.empty(len(lefts), np.float64)
    _jaccard(
        left.flat,
        left.bounds,
        right.flat,
        right.bounds,
        np.ascontiguousarray(lefts, np.int64),
        np.ascontiguousarray(rights, np.int64),
        out,
    )
    return out


def jaccard(left: npt.NDArray[np.uint64], right: npt.NDArray[np.uint64]) -> float:
    """Similarity of two sorted sets."""
    zero = np.zeros(1, np.int64)
    return float(jaccard_pairs(ShingleSets.of([left]), zero, ShingleSets.of([right]), zero)[0])
