"""The whole decision: from sketches to one verdict a document, with the kept document and the measured similarity.

1. equal exact hashes form groups; only the best document of a group goes on;
2. bands give candidate pairs of those, checked by their whole signatures;
3. `similarities` measures the exact Jaccard similarity of the candidates; pairs below the threshold are forgotten;
4. components are computed anew from what is left; of each the best document stays: best quality, then longest,
   then smallest id. Documents of a reference set come before all others and are never removed.

A component can hold documents that are similar only by way of others: they are removed too, and the similarity that
stands beside them is the one measured with the document that stays, which may then lie below the threshold. In a giant
cluster that is not believed: chains of templates grow without bound. There a document goes only for one that stays and
that it is similar to by its own measured similarity; those similar by way of others are spared and counted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from filters.text.dedup.bands import Bands
from filters.text.dedup.buckets import BUCKET_CAP, candidate_pairs
from filters.text.dedup.cluster import choose_apart, components, keepers, ranking
from filters.text.dedup.sketch import Sketches

__all__ = ["DUPLICATE_EXACT", "DUPLICATE_NEAR", "GIANT_CLUSTER", "Decision", "Members", "decide"]

DUPLICATE_EXACT = "duplicate:exact"
DUPLICATE_NEAR = "duplicate:near"
GIANT_CLUSTER = 1000  # documents in a cluster beyond which similarity by way of others removes nothing

Integers = npt.NDArray[np.int64]
Similarities = Callable[[Integers], npt.NDArray[np.float64]]
"""Pairs (m, 2) of document indexes to their exact Jaccard similarities (m,)."""


@dataclass(frozen=True, slots=True)
class Members:
    """What decides which document stays; all of shape (n,). `fixed` marks the reference set, None: there is none."""

    ids: npt.NDArray[np.bytes_]
    qualities: npt.NDArray[np.float32]
    fixed: npt.NDArray[np.bool_] | None = None

    def taken(self, order: Integers) -> Members:
        """The rows `order`."""
        return Members(self.ids[order], self.qualities[order], None if self.fixed is None else self.fixed[order])


@dataclass(frozen=True, slots=True)
class Decision:
    """One row a document: `keeper[i]` stays instead of i (or is i); `similarity` with it; `clustered`: not alone."""

    keeper: Integers
    similarity: npt.NDArray[np.float32]
    exact: npt.NDArray[np.bool_]
    clustered: npt.NDArray[np.bool_]
    pairs_candidate: int
    pairs_verified: int
    giant: int = 0  # clusters that were larger than allowed
    spared: int = 0  # documents of those, beside their first one, that stay: similar by way of others only

    @property
    def removed(self) -> npt.NDArray[np.bool_]:
        """True for documents that go. Shape (n,)."""
        return np.asarray(self.keeper != np.arange(len(self.keeper)), bool)

    def given_back(self, order: Integers) -> Decision:
        """The decision about rows that were taken in `order` (all of them, once each), in their own order."""
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return Decision(
            order[self.keeper][back],
            self.similarity[back],
            self.exact[back],
            self.clustered[back],
            self.pairs_candidate,
            self.pairs_verified,
            self.giant,
            self.spared,
        )

    def clusters(self) -> Integers:
        """Sizes of the clusters of two and more, largest first."""
        sizes = np.bincount(self.keeper[self.clustered], minlength=1)
        return np.sort(sizes[sizes > 1])[::-1].astype(np.int64)


def decide(
    sketches: Sketches,
    members: Members,
    bands: Bands,
    similarities: Similarities,
    *,
    cap: int = BUCKET_CAP,
    largest_cluster: int = GIANT_CLUSTER,
) -> Decision:
    """A verdict for each document of `sketches`; see the module's text for the rules.

    A cluster of more than `largest_cluster` documents is a giant one.

    `similarities` is called with candidate pairs, and once more for documents that reach their keeper only by way
    of others. Memory: some hundred bytes a document besides the signatures; no text.
    """
    count = len(sketches.shingles)
    place = ranking(members.ids, members.qualities, sketches.sizes, members.fixed)
    best = _best_of_equal(sketches.exact, place)
    alone = np.flatnonzero((best == np.arange(count)) & (sketches.shingles > 0))
    pairs = candidate_pairs(sketches.signatures, alone, bands, cap=cap)
    if members.fixed is not None and len(pairs):
        pairs = pairs[~(members.fixed[pairs[:, 0]] & members.fixed[pairs[:, 1]])]
    measured = similarities(pairs) if len(pairs) else np.empty(0)
    good = measured >= bands.threshold
    copies = np.flatnonzero(best != np.arange(count))
    component = components(count, np.concatenate([pairs[good], np.stack([copies, best[copies]], 1)]))
    keeper = keepers(component, place)
    similarity = np.full(count, np.nan, np.float64)
    if members.fixed is not None:
        _nearest_reference(keeper, similarity, pairs[good], measured[good], members.fixed)
        keeper[members.fixed] = np.flatnonzero(members.fixed)
        copied = copies[members.fixed[best[copies]] & ~members.fixed[copies]]
        keeper[copied] = best[copied]
    _measure(keeper, similarity, best, pairs[good], measured[good], similarities)
    sizes = np.bincount(component, minlength=count)
    far = (sizes[component] > largest_cluster) & (similarity < bands.threshold)
    spared = _spare(keeper, similarity, best, far, pairs[good], measured[good], place)
    exact = (best == best[keeper]) & (keeper != np.arange(count))
    clustered = (sizes[component] > 1) & ((sizes[component] <= largest_cluster) | (np.bincount(keeper)[keeper] > 1))
    return Decision(
        keeper,
        similarity.astype(np.float32),
        exact,
        clustered,
        pairs_candidate=len(pairs),
        pairs_verified=int(np.count_nonzero(good)),
        giant=int(np.count_nonzero(sizes > largest_cluster)),
        spared=spared,
    )


def _spare(
    keeper: Integers,
    similarity: npt.NDArray[np.float64],
    best: Integers,
    far: npt.NDArray[np.bool_],
    pairs: Integers,
    measured: npt.NDArray[np.float64],
    place: Integers,
) -> int:
    """Decide anew about documents of giant clusters that are `far` from what stays; gives how many of them stay.

    Of each verified pair of them one stays at most, the better-placed; exact copies go with the one they are copies of.
    """
    among = far[pairs[:, 0]] & far[pairs[:, 1]]
    chosen, near = choose_apart(pairs[among], measured[among], place)
    spared = np.flatnonzero(far)
    keeper[spared] = chosen[best[spared]]
    copies = (best[spared] != spared) & (keeper[spared] == best[spared])
    similarity[spared] = np.where(copies, 1.0, near[best[spared]])
    return int(np.count_nonzero(keeper[spared] == spared))


def _best_of_equal(exact: npt.NDArray[np.uint8], place: Integers) -> Integers:
    """For each document the best-placed one with the same exact hash. Shape (n,)."""
    if not len(place):
        return place
    keys = np.ascontiguousarray(exact).view(np.uint64).reshape(-1, 2)
    order = np.lexsort((place, keys[:, 1], keys[:, 0]))
    ordered = keys[order]
    first = np.ones(len(order), bool)
    first[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    best = np.empty_like(place)
    best[order] = order[np.flatnonzero(first)[np.cumsum(first) - 1]]
    return best


def _nearest_reference(
    keeper: Integers,
    similarity: npt.NDArray[np.float64],
    pairs: Integers,
    measured: npt.NDArray[np.float64],
    fixed: npt.NDArray[np.bool_],
) -> None:
    """Where a document was measured against reference documents, name the most similar one (then the first)."""
    both = np.concatenate([pairs, pairs[:, ::-1]])
    twice = np.concatenate([measured, measured])
    cross = fixed[both[:, 1]] & ~fixed[both[:, 0]]
    both, twice = both[cross], twice[cross]
    order = np.lexsort((-both[:, 1], twice))  # the last one written wins: most similar, then smallest index
    keeper[both[order, 0]] = both[order, 1]
    similarity[both[order, 0]] = twice[order]


def _measure(
    keeper: Integers,
    similarity: npt.NDArray[np.float64],
    best: Integers,
    pairs: Integers,
    measured: npt.NDArray[np.float64],
    similarities: Similarities,
) -> None:
    """Fill in the similarity of every removed document with its keeper, from known pairs or by measuring."""
    count = len(keeper)
    removed = np.flatnonzero(keeper != np.arange(count))
    same = best[removed] == best[keeper[removed]]
    similarity[removed[same]] = 1.0
    rest = removed[~same]
    wanted = np.sort(np.stack([best[rest], best[keeper[rest]]], 1), axis=1)
    keys = pairs[:, 0] * count + pairs[:, 1]  # pairs are sorted by this key already
    wanted_keys = wanted[:, 0] * count + wanted[:, 1]
    at = np.minimum(np.searchsorted(keys, wanted_keys), max(0, len(keys) - 1))
    known = keys[at] == wanted_keys if len(keys) else np.zeros(len(rest), bool)
    similarity[rest[known]] = measured[at[known]]
    if not known.all():
        similarity[rest[~known]] = similarities(wanted[~known])
