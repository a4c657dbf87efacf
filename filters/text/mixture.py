"""Mixture algebra: how many tokens each domain gets, and which documents give them. Pure integers and hashes.

A domain's supply is the tokens of its training documents; it can be used up to `max_epochs` times. Targets are shares
of the budget. What a domain cannot supply is poured over the others in proportion to their shares (water-filling),
so the budget is met as long as anything is left; the shortfall and the shares that come out of it are reported.

Which documents: whole passes over the domain, then a part of one more, taken in the order of a hash of (id, seed,
epoch) as far as the tokens go. The order of the input, the engine and the workers play no role.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import xxhash

from filters.text.weights import exact

__all__ = [
    "Allocation",
    "allocate",
    "choose",
    "exact",
    "fill",
    "hash_order",
    "heldout_mask",
    "split_budget",
    "use_divisibly",
    "use_evenly",
]

Integers = npt.NDArray[np.int64]
MENDING_ROUNDS = 16


@dataclass(frozen=True, slots=True)
class Allocation:
    """Tokens of one domain. `limited`: the supply times the epoch cap is below what the target asks for."""

    target: int
    tokens: int
    limited: bool


def split_budget(budget: int, shares: Mapping[str, Fraction]) -> dict[str, int]:
    """Whole tokens in proportion to `shares`, summing to `budget` (largest remainder, then smallest name).

    All zero shares give zeros.
    """
    total = sum(shares.values())
    if total <= 0:
        return dict.fromkeys(shares, 0)
    wanted = {name: budget * share / total for name, share in shares.items()}
    parts = {name: int(value) for name, value in wanted.items()}
    rest = budget - sum(parts.values())
    for name in sorted(wanted, key=lambda n: (parts[n] - wanted[n], n))[:rest]:
        parts[name] += 1
    return parts


def allocate(
    supply: Mapping[str, int], shares: Mapping[str, Fraction], budget: int, max_epochs: Fraction
) -> dict[str, Allocation]:
    """Tokens for every name in `supply` or `shares`; a name without share gets 0.

    The sum is `budget` unless all domains with a share are at their cap, supply * max_epochs.
    """
    names = sorted(set(supply) | set(shares))
    return fill({name: int(supply.get(name, 0) * max_epochs) for name in names}, shares, budget)


def fill(room: Mapping[str, int], shares: Mapping[str, Fraction], budget: int) -> dict[str, Allocation]:
    """Water-filling: `budget` by `shares`, none above its `room`; what one lacks goes to the others by their shares.

    The sum is `budget` unless all with a share are full. A name without share gets 0. Exact integers.
    """
    names = sorted(set(room) | set(shares))
    targets = split_budget(budget, {name: shares.get(name, Fraction(0)) for name in names})
    given = dict.fromkeys(names, 0)
    limited: set[str] = set()
    while True:
        open_names = [n for n in names if n not in limited and shares.get(n, Fraction(0)) > 0]
        left = budget - sum(given[n] for n in limited)
        parts = split_budget(left, {n: shares[n] for n in open_names})
        full = [n for n in open_names if parts[n] > room.get(n, 0)]
        if not full:
            given.update(parts)
            break
        for name in full:
            given[name] = room.get(name, 0)
            limited.add(name)
    return {name: Allocation(targets[name], given[name], name in limited) for name in names}


def hash_order(ids: Sequence[str], seed: int, purpose: str) -> npt.NDArray[np.uint64]:
    """A pseudo-random number for each id that depends on (id, seed, purpose) alone. Shape (n,)."""
    key = xxhash.xxh3_64_intdigest(f"{seed}:{purpose}".encode())
    digest = xxhash.xxh3_64_intdigest
    return np.fromiter((digest(i.encode(), key) for i in ids), np.uint64, len(ids))


def heldout_mask(order: npt.NDArray[np.uint64], share: float, least: int) -> npt.NDArray[np.bool_]:
    """Which documents of one domain are held out: those with the smallest numbers. Shape (n,).

    `share` of them, at least `least`, and never more than half: a domain with one document keeps it for training.
    """
    count = len(order)
    wanted = min(max(least, round(count * exact(share))), count // 2)
    mask = np.zeros(count, bool)
    mask[np.argsort(order, kind="stable")[:wanted]] = True
    return mask


def use_evenly(
    ids: Sequence[str],
    tokens: Integers,
    used: npt.NDArray[np.int32],
    wanted: int,
    seed: int,
    tolerance: int,
    most: Integers | None = None,
) -> npt.NDArray[np.int32]:
    """How often more each document is used so that the tokens sum to `wanted` as nearly as whole documents allow.

    `used` is how often each was used before, `most` how often each may be used in all (None: no bound). The least used
    come first: all are brought to the same number of uses, a part of one more pass is chosen in the order of a hash of
    (id, seed, number of the pass). Shape (n,). The sum is below `wanted` where `most` allows no more.
    """
    more = np.zeros(len(ids), np.int32)
    total = int(tokens.sum())
    if not total or wanted <= 0:
        return more
    highest = int(used.max()) + wanted // total + 1
    bound = np.full(len(ids), highest + 1, np.int64) if most is None else np.minimum(most, highest + 1)

    def raised(level: int) -> Integers:
        added: Integers = np.maximum(np.minimum(bound, level) - used, 0)
        return added

    low, high = 0, highest + 1  # the highest level of uses that all can be brought to
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if int((tokens * raised(middle)).sum()) <= wanted else (low, middle)
    more = raised(low).astype(np.int32)
    rest = wanted - int((tokens * more).sum())
    rows = np.flatnonzero((used <= low) & (bound > low))
    if rest and len(rows):
        order = hash_order([ids[row] for row in rows.tolist()], seed, f"epoch {low}")
        more[rows] += choose(tokens[rows], order, rest, tolerance)
    return more


def use_divisibly(
    tokens: Integers, used: npt.NDArray[np.float64], wanted: int, most: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """As `use_evenly` with documents that can be cut anywhere: all below a level are used up to it. Shape (n,), floats.

    For estimates, where a document stands for many.
    """
    open_ones = (most > used) & (tokens > 0)
    if not open_ones.any() or wanted <= 0:
        return np.zeros(len(tokens))
    points = np.concatenate([used[open_ones], most[open_ones]])
    order = np.argsort(points, kind="stable")
    points = points[order]
    slopes = np.cumsum(np.concatenate([tokens[open_ones], -tokens[open_ones]])[order])
    spent = np.concatenate([[0.0], np.cumsum(slopes[:-1] * np.diff(points))])  # when all are raised to a point
    at = min(int(np.searchsorted(spent, wanted, side="right")) - 1, len(points) - 1)
    level = points[at] + ((wanted - spent[at]) / slopes[at] if slopes[at] else 0.0)
    more: npt.NDArray[np.float64] = np.maximum(0.0, np.minimum(most, level) - used)
    return more


def choose(tokens: Integers, order: npt.NDArray[np.uint64], wanted: int, tolerance: int = 0) -> npt.NDArray[np.bool_]:
    """Documents whose tokens sum to `wanted` as nearly as whole documents allow. Shape (n,).

    In the order of their numbers every document that still fits is taken. When the sum is more than `tolerance` off
    (few or huge documents), one document at a time is added, removed or exchanged for the best sum, MENDING_ROUNDS
    times at most. Equal inputs in another order give the same documents. Cost: n log n.
    """
    mask = np.zeros(len(tokens), bool)
    ranked = np.argsort(order, kind="stable")
    sizes = tokens[ranked]
    taken, left = _fill(sizes, wanted)
    for _ in range(MENDING_ROUNDS):
        if abs(left) <= tolerance:
            break
        step = _best_change(sizes, taken, left)
        if step is None:
            break
        for index in step:
            left += int(sizes[index]) * (1 if taken[index] else -1)
            taken[index] = not taken[index]
    mask[ranked[taken]] = True
    return mask


def _fill(sizes: Integers, wanted: int) -> tuple[npt.NDArray[np.bool_], int]:
    """Take what fits, in order; returns (taken, tokens still wanted)."""
    taken = np.zeros(len(sizes), bool)
    left = wanted
    fitting = np.flatnonzero(sizes <= left)
    while len(fitting) and left > 0:
        sums = np.cumsum(sizes[fitting])
        fits = int(np.searchsorted(sums, left, side="right"))
        taken[fitting[:fits]] = True
        left -= int(sums[fits - 1])
        rest = fitting[fits + 1 :]  # the one at `fits` is too long: go on with those that still fit
        fitting = rest[sizes[rest] <= left]
    return taken, left


def _best_change(sizes: Integers, taken: npt.NDArray[np.bool_], left: int) -> tuple[int, ...] | None:
    """The addition, removal or exchange that brings the sum nearest to the wanted one, if any improves it."""
    inside, outside = np.flatnonzero(taken), np.flatnonzero(~taken)
    changes: list[tuple[int, tuple[int, ...]]] = []
    if len(outside):
        off = np.abs(left - sizes[outside])
        changes.append((int(off.min()), (int(outside[off.argmin()]),)))
    if len(inside):
        off = np.abs(left + sizes[inside])
        changes.append((int(off.min()), (int(inside[off.argmin()]),)))
    if len(inside) and len(outside):
        by_size = outside[np.argsort(sizes[outside], kind="stable")]
        ordered = sizes[by_size]
        goal = sizes[inside] + left
        above = np.searchsorted(ordered, goal)
        for near in (np.minimum(above, len(ordered) - 1), np.maximum(above - 1, 0)):
            off = np.abs(goal - ordered[near])
            best = int(off.argmin())
            changes.append((int(off[best]), (int(inside[best]), int(by_size[near[best]]))))
    if not changes:
        return None
    off_by, step = min(changes)
    return step if off_by < abs(left) else None
