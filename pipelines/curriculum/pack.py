"""Packing: which samples share a row. Global best-fit decreasing; no sample is cut, split or left out.

Samples go longest first into the fullest row that still has room. Rows are kept by the room they have left, in a
binary tree of counts over 0…capacity, so that finding the tightest row is two walks of log2(capacity) steps and the
whole is O(n log capacity) time and O(n + capacity) memory (a first-fit search over rows is O(n rows)).
Best fit for bins: Johnson, Demers, Ullman, Garey, Graham 1974 (at most 11/9 of the optimum plus 4 rows).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from schemas.errors import InputError

__all__ = ["Packing", "order_rows", "pack"]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Packing:
    """Rows of sample indices. Row r holds `samples[starts[r]:starts[r + 1]]`, longest first.

    samples (n,) int64, every index once; starts (rows + 1,) int64; tokens (rows,) and squares (rows,) int64: the sum of
    the lengths and of the squared lengths in a row (attention costs the squares).
    """

    samples: Ints
    starts: Ints
    tokens: Ints
    squares: Ints
    capacity: int

    @property
    def rows(self) -> int:
        return len(self.starts) - 1

    @property
    def fill(self) -> float:
        """Tokens over the room of all rows, 0 to 1; 1 for no rows."""
        return float(self.tokens.sum()) / (self.rows * self.capacity) if self.rows else 1.0

    def row(self, number: int) -> Ints:
        """The sample indices of one row."""
        return self.samples[self.starts[number] : self.starts[number + 1]]


def pack(lengths: Sequence[int] | npt.NDArray[Any], capacity: int) -> Packing:
    """Pack samples of `lengths` (tokens, each 1…capacity) into as few rows of `capacity` tokens as best fit finds.

    Equal lengths keep their order, so the result depends on nothing but the arguments. A million lengths take about
    0.2 s of CPU after the first call has compiled. Raises InputError naming the indices of lengths above `capacity` or
    below 1: what to do with them is the caller's decision.
    """
    sizes = np.ascontiguousarray(lengths, dtype=np.int64)
    if capacity < 1:
        raise InputError(f"capacity {capacity} is below 1", field="context_tokens")
    wrong = np.flatnonzero((sizes > capacity) | (sizes < 1))
    if wrong.size:
        shown = ", ".join(f"{i} ({sizes[i]})" for i in wrong[:10]) + (" …" if wrong.size > 10 else "")
        raise InputError(
            f"{wrong.size} samples do not fit in 1…{capacity} tokens, by index (length): {shown}",
            field="lengths",
            todo="Give them to a longer stage or record them as left out before packing",
        )
    order = np.argsort(-sizes, kind="stable")
    row_of, rows = _best_fit(sizes[order], capacity)
    by_row = np.argsort(row_of, kind="stable")
    samples = order[by_row]
    starts = np.zeros(rows + 1, dtype=np.int64)
    np.cumsum(np.bincount(row_of, minlength=rows), out=starts[1:])
    tokens = np.zeros(rows, dtype=np.int64)
    squares = np.zeros(rows, dtype=np.int64)
    np.add.at(tokens, row_of, sizes[order])
    np.add.at(squares, row_of, sizes[order] ** 2)
    return Packing(samples, starts, tokens, squares, capacity)


def order_rows(squares: npt.NDArray[np.int64], seed: Sequence[int], *, window: int = 1) -> Ints:
    """A training order of rows: shuffled by `seed` (non-negative integers), then alike in cost inside windows.

    Rows are shuffled as wholes, never samples. With `window` w > 1 the rows are sorted by `squares` (the summed squared
    segment lengths of each, which attention costs), cut into blocks of w and the blocks shuffled: ranks that step
    together wait little for one another. Returns row numbers, (rows,) int64.
    """
    generator = np.random.Generator(np.random.PCG64(list(seed)))
    rows = len(squares)
    if window <= 1 or not rows:
        return generator.permutation(rows).astype(np.int64)
    by_cost = np.argsort(squares, kind="stable")
    blocks = [by_cost[at : at + window] for at in range(0, rows, window)]
    return np.concatenate([generator.permutation(blocks[i]) for i in generator.permutation(len(blocks))])


@njit(cache=True)
def _best_fit(lengths: Ints, capacity: int) -> tuple[Ints, int]:  # pragma: no cover (compiled)
    """Row of each of the (descending) lengths, and how many rows there are.

    `heads[room]` and `below[row]` are stacks of rows by the room they have left; `counts` is the tree over room:
    node k has children 2k and 2k + 1, leaf `leaves + room` counts the rows with that room.
    """
    leaves = 1
    while leaves < capacity + 1:
        leaves *= 2
    counts = np.zeros(2 * leaves, dtype=np.int32)
    heads = np.full(capacity + 1, -1, dtype=np.int64)
    below = np.empty(len(lengths), dtype=np.int64)
    row_of = np.empty(len(lengths), dtype=np.int64)
    rows = 0
    for sample in range(len(lengths)):
        length = lengths[sample]
        # smallest room >= length: climb until a right neighbour has a row, then descend to its leftmost
        node = leaves + length
        if counts[node] == 0:
            while node > 1 and (node % 2 == 1 or counts[node + 1] == 0):
                node //= 2
            if node > 1:
                node += 1
                while node < leaves:
                    node = 2 * node if counts[2 * node] > 0 else 2 * node + 1
        if node > 1:
            room = node - leaves
            row = heads[room]
            heads[room] = below[row]
            step = node
            while step >= 1:
                counts[step] -= 1
                step //= 2
        else:
            room = capacity
            row = rows
            rows += 1
        row_of[sample] = row
        room -= length
        below[row] = heads[room]
        heads[room] = row
        step = leaves + room
        while step >= 1:
            counts[step] += 1
            step //= 2
    return row_of, rows
