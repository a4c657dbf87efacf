"""Pretraining rows: copies of documents, cut into pieces of at most a context, packed into whole rows.

A document that the mixture uses n times gives n copies. Copy j lies at (j + u) / n of the whole sequence, with u a
hash of seed, document and j: every epoch has another order, the copies of one document are far apart, and any stretch
of the sequence has the mixture's domains in their proportions. Packing stays inside windows of WINDOW_ROWS rows of that
sequence, for the same reason (a global sort by length would put equal copies side by side and domains apart).
A copy is its ids and the end-of-text token; cutting it loses no token.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pipelines.curriculum.pack import order_rows, pack
from pipelines.curriculum.rows import MIN_FILL
from schemas.recipe import PretrainStage

__all__ = ["WINDOW_ROWS", "Copies", "PretrainPlan", "cut", "plan_pretrain", "plan_stage_mixtures", "spread_copies"]

WINDOW_ROWS = 256
CARRY_FILL = 0.98  # rows of a window that are emptier than this are packed again with the next one

Ints = npt.NDArray[np.int64]


@dataclass(slots=True)
class Copies:
    """Copies of documents in training order: `document` indexes the caller's documents, `epoch` counts from 0."""

    document: Ints
    epoch: Ints


@dataclass(slots=True)
class PretrainPlan:
    """One stage in pieces. Row r holds the pieces `starts[r]:starts[r + 1]`; arrays over pieces, in training order.

    `offset` is the first token of the piece inside its copy, `length` its tokens, `number` its place in the copy.
    """

    capacity: int
    document: Ints
    epoch: Ints
    number: Ints
    offset: Ints
    length: Ints
    starts: Ints
    report: dict[str, Any]


def spread_copies(hashes: npt.NDArray[np.uint64], epochs: Ints, before: Ints | None = None) -> Copies:
    """The copies of documents in order. `hashes` (one uint64 a document, seeded), `epochs` how often each is used.

    `before` is how often each was used in earlier stages: its epochs go on from there.
    """
    document = np.repeat(np.arange(len(epochs), dtype=np.int64), epochs)
    epoch = np.arange(len(document), dtype=np.int64) - np.repeat(np.cumsum(epochs) - epochs, epochs)
    number = epoch if before is None else epoch + before[document]
    mixed = _mix(hashes[document] + number.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15))
    inside = (mixed >> np.uint64(11)).astype(np.float64) / float(1 << 53)
    place = (epoch + inside) / np.maximum(epochs[document], 1)
    order = np.lexsort((epoch, document, place))
    return Copies(document[order], number[order])


def plan_stage_mixtures(
    hashes: npt.NDArray[np.uint64],
    tokens: Ints,
    uses: Ints,
    stages: Sequence[PretrainStage],
    seed: int,
    *,
    cost_window: int = 1,
) -> list[PretrainPlan]:
    """Plan stages that have mixtures of their own: all copies that the mixture gave a stage, and no others.

    `uses` (documents, stages): how often each document is used in each stage.
    """
    plans = []
    before = np.zeros(len(tokens), dtype=np.int64)
    for place, stage in enumerate(stages):
        copies = spread_copies(hashes, uses[:, place], before)
        plans.append(_plan_stage(copies, tokens, stage, [seed, place], cost_window))
        before = before + uses[:, place]
    return plans


def _mix(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The finaliser of SplitMix64 (Steele, Lea, Flood 2014): neighbouring inputs give unrelated outputs."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def cut(lengths: Ints, capacity: int) -> tuple[Ints, Ints, Ints, Ints]:
    """Pieces of copies of `lengths` tokens: (copy, number, offset, length), each of 1…`capacity` tokens.

    All pieces but the last are full. A last piece of one token would train nothing (the first token of a segment has
    nothing before it), so it takes one from the piece before.
    """
    counts = -(-lengths // capacity)
    copy = np.repeat(np.arange(len(lengths), dtype=np.int64), counts)
    number = np.arange(len(copy), dtype=np.int64) - np.repeat(np.cumsum(counts) - counts, counts)
    offset = number * capacity
    end = np.minimum(offset + capacity, lengths[copy])
    if capacity > 2:
        lone = (lengths[copy] % capacity == 1) & (counts[copy] > 1)
        offset = offset - (lone & (number == counts[copy] - 1))
        end = end - (lone & (number == counts[copy] - 2))
    return copy, number, offset, end - offset


def plan_pretrain(
    copies: Copies, tokens: Ints, stages: Sequence[PretrainStage], seed: int, *, cost_window: int = 1
) -> tuple[list[PretrainPlan], Copies]:
    """Plan all pretraining stages; also returns the copies that the budgets leave out.

    `tokens` are those of each document with its end-of-text token, as the mixture counts them. A stage takes whole
    copies in order until its budget is reached.
    """
    totals = np.cumsum(tokens[copies.document])
    plans = []
    first = 0
    for place, stage in enumerate(stages):
        goal = (int(totals[first - 1]) if first else 0) + stage.budget_tokens
        last = min(int(np.searchsorted(totals, goal, side="left")) + 1, len(totals))
        part = Copies(copies.document[first:last], copies.epoch[first:last])
        plans.append(_plan_stage(part, tokens, stage, [seed, place], cost_window))
        first = last
    return plans, Copies(copies.document[first:], copies.epoch[first:])


def _plan_stage(copies: Copies, tokens: Ints, stage: PretrainStage, seed: list[int], cost_window: int) -> PretrainPlan:
    capacity = stage.context_tokens
    copy, number, offset, length = cut(tokens[copies.document], capacity)
    rows = [row for window in _windows(length, capacity, seed, cost_window) for row in window]
    chosen = np.concatenate(rows) if rows else np.empty(0, dtype=np.int64)
    starts = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum([len(row) for row in rows], out=starts[1:])
    filled = np.add.reduceat(length[chosen], starts[:-1]) if rows else np.empty(0, dtype=np.int64)
    total = int(length.sum())
    report = {
        "rows": len(rows),
        "segments": len(chosen),
        "tokens": total,
        "trained_tokens": total - len(chosen),
        "budget_tokens": stage.budget_tokens,
        "shortfall": max(0, stage.budget_tokens - total),
        "fill": total / (len(rows) * capacity) if rows else None,
        "short_rows": int((filled < MIN_FILL * capacity).sum()),
        "longest_segment": int(length.max()) if len(length) else 0,
        "sum_of_squares": int((length**2).sum()),
    }
    document, epoch = copies.document[copy[chosen]], copies.epoch[copy[chosen]]
    return PretrainPlan(capacity, document, epoch, number[chosen], offset[chosen], length[chosen], starts, report)


def _windows(length: Ints, capacity: int, seed: list[int], cost_window: int) -> Iterator[list[Ints]]:
    """Rows of piece indices, window after window, shuffled inside each; no piece is left over."""
    totals = np.cumsum(length)
    carried = np.empty(0, dtype=np.int64)
    first = window = 0
    while first < len(length):
        base = int(totals[first - 1]) if first else 0
        last = int(np.searchsorted(totals, base + WINDOW_ROWS * capacity, side="right"))
        last = len(length) if last >= len(length) else max(last, first + 1)
        members = np.concatenate([carried, np.arange(first, last, dtype=np.int64)])
        packing = pack(length[members], capacity)
        keep = packing.tokens >= CARRY_FILL * capacity if last < len(length) else np.ones(packing.rows, dtype=bool)
        rows = [members[packing.row(r)] for r in np.flatnonzero(keep).tolist()]
        loose = [members[packing.row(r)] for r in np.flatnonzero(~keep).tolist()]
        carried = np.concatenate(loose) if loose else np.empty(0, dtype=np.int64)
        order = order_rows(packing.squares[keep], [*seed, window], window=cost_window)
        yield [rows[r] for r in order.tolist()]
        first = last
        window += 1
