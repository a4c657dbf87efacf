"""Clusters of verified pairs, and which document of a cluster stays."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"
from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import types

from filters.text.dedup.compiled import compiled

__all__ = ["choose_apart", "components", "keepers", "ranking"]


@compiled(types.void(types.Array(types.int64, 2, "C", readonly=True), types.Array(types.int64, 1, "C")))
def _unite(pairs, parent):
    """Union by smaller index with path halving; afterwards parent[i] is the smallest index of i's component."""
    for pair in range(pairs.shape[0]):
        a, b = pairs[pair, 0], pairs[pair, 1]
        while parent[a] != a:
            parent[a] = parent[parent[a]]
            a = parent[a]
        while parent[b] != b:
            parent[b] = parent[parent[b]]
            b = parent[b]
        if a < b:
            parent[b] = a
        elif b < a:
            parent[a] = b
    for index in range(parent.shape[0]):
        parent[index] = parent[parent[index]]


def components(count: int, pairs: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """For each of `count` documents the smallest index of its component under `pairs` (m, 2). Shape (count,).

    The result does not depend on the order of the pairs, or of the two in a pair.
    """
    parent = np.arange(count, dtype=np.int64)
    _unite(np.ascontiguousarray(pairs, np.int64).reshape(-1, 2), parent)
    return parent


@compiled(
    types.void(
        types.Array(types.int64, 2, "C", readonly=True),
        types.Array(types.float64, 1, "C", readonly=True),
        types.Array(types.int64, 1, "C", readonly=True),
        types.Array(types.int64, 1, "C"),
        types.Array(types.float64, 1, "C"),
    )
)
def _choose_apart(pairs, measured, place, keeper, similarity):
    """See `choose_apart`; `pairs` hold each pair both ways, in the order of the first one's place."""
    for pair in range(pairs.shape[0]):
        a, b = pairs[pair, 0], pairs[pair, 1]
        if keeper[a] == a and keeper[b] == b and place[a] < place[b]:
            keeper[b] = a
            similarity[b] = measured[pair]


def choose_apart(
    pairs: npt.NDArray[np.int64], measured: npt.NDArray[np.float64], place: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Of every pair (m, 2) at most one document stays, and none goes but for a pair with one that stays.

    Documents are gone through from the best-placed one on: who is in no pair with one that stays, stays. Gives each
    document's keeper (itself when it stays) and the pair's `measured` similarity (NaN), both of shape (n,).
    """
    both = np.concatenate([pairs, pairs[:, ::-1]])
    order = np.lexsort((place[both[:, 1]], place[both[:, 0]]))
    keeper = np.arange(len(place), dtype=np.int64)
    similarity = np.full(len(place), np.nan, np.float64)
    both, twice = np.ascontiguousarray(both[order]), np.concatenate([measured, measured])[order]
    _choose_apart(both, twice, place, keeper, similarity)
    return keeper, similarity


def ranking(
    ids: npt.NDArray[np.bytes_],
    qualities: npt.NDArray[np.float32],
    sizes: npt.NDArray[np.int64],
    fixed: npt.NDArray[np.bool_] | None = None,
) -> npt.NDArray[np.int64]:
    """The place of every document in the order of preference (0 is best): best quality, then longest, then smallest id.

    `fixed` documents (a reference set) come before all others. Equal ids are told apart by their index. Shape (n,).
    """
    outside = np.zeros(len(ids), bool) if fixed is None else ~fixed
    order = np.lexsort((np.arange(len(ids)), ids, -sizes, -qualities.astype(np.float64), outside))
    place = np.empty(len(ids), np.int64)
    place[order] = np.arange(len(ids))
    return place


def keepers(component: npt.NDArray[np.int64], place: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """For each document the index of the best-placed document of its component. Shape (n,)."""
    best = np.full(len(component), len(component), np.int64)
    np.minimum.at(best, component, place)
    by_place = np.empty(len(place), np.int64)
    by_place[place] = np.arange(len(place))
    return by_place[best[component]] if len(component) else component
