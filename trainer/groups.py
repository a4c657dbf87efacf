"""A packed row cut into groups of whole segments, so that memory is bounded by a group and not by the row.

Attention never crosses a segment, so the gradient of a row is the sum of the gradients of its groups: exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from trainer.shards import Row

__all__ = ["Group", "LeftOut", "RowPlan", "plan_row"]


@dataclass(frozen=True, slots=True)
class Group:
    """Whole segments of one row.

    `input_ids` (tokens,) int64; `targets` (tokens,) bool, true where the token is predicted and trained;
    `segments` are positions in the row.
    """

    input_ids: Tensor
    targets: Tensor
    segment_lengths: list[int]
    segments: list[int]

    @property
    def trained_tokens(self) -> int:
        return int(self.targets.sum())

    def trained_by_segment(self) -> Tensor:
        """Trained tokens of each segment, int64 (segments,)."""
        return torch.stack([part.sum() for part in torch.split(self.targets, self.segment_lengths)])


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Segments above `max_segment_tokens` that were not trained."""

    segments: int = 0
    tokens: int = 0
    trained_tokens: int = 0


@dataclass(frozen=True, slots=True)
class RowPlan:
    """What of a row is trained, in groups, and what is left out."""

    row: Row
    groups: list[Group]
    left_out: LeftOut

    @property
    def trained_tokens(self) -> int:
        return sum(group.trained_tokens for group in self.groups)

    @property
    def tokens(self) -> int:
        return sum(len(group.input_ids) for group in self.groups)

    @property
    def trained_segments(self) -> int:
        """Segments with at least one trained token."""
        return sum(int((group.trained_by_segment() > 0).sum()) for group in self.groups)


def plan_row(row: Row, group_tokens: int, max_segment_tokens: int | None = None) -> RowPlan:
    """Cut `row` into groups of at most `group_tokens` tokens (whole segments, at least one) in segment order.

    Segments longer than `max_segment_tokens` are left out and counted.
    """
    starts = np.concatenate([[0], np.cumsum(row.segment_lengths)]).tolist()
    taken: list[list[int]] = []
    room = 0
    left = [0, 0, 0]
    for segment, length in enumerate(row.segment_lengths):
        if max_segment_tokens is not None and length > max_segment_tokens:
            trained = int(row.targets[starts[segment] : starts[segment + 1]].sum())
            left = [left[0] + 1, left[1] + length, left[2] + trained]
            continue
        if not taken or length > room:
            taken.append([])
            room = group_tokens
        taken[-1].append(segment)
        room -= length
    groups = [_group(row, starts, segments) for segments in taken]
    return RowPlan(row, groups, LeftOut(*left))


def _group(row: Row, starts: list[int], segments: list[int]) -> Group:
    spans = [slice(starts[segment], starts[segment + 1]) for segment in segments]
    return Group(
        input_ids=torch.from_numpy(np.concatenate([row.input_ids[span] for span in spans])),
        targets=torch.from_numpy(np.concatenate([row.targets[span] for span in spans])),
        segment_lengths=[row.segment_lengths[segment] for segment in segments],
        segments=segments,
    )
