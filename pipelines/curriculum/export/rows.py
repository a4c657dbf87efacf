"""One packed row in the terms of other trainers: pure functions of ids, mask and segment lengths."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pipelines.curriculum.inspect import Row

__all__ = ["IGNORED", "documents_of", "labels_of", "positions_of", "rolled_mask"]

IGNORED = -100  # the label that PyTorch's cross entropy leaves out


def lengths_of(row: Row) -> list[int]:
    """Tokens of each segment."""
    return [segment.length for segment in row.segments]


def labels_of(row: Row) -> npt.NDArray[np.int32]:
    """(n,) the id of each trained token, IGNORED elsewhere; aligned with the ids, as Hugging Face models shift them."""
    return np.where(row.mask, row.ids.astype(np.int32), np.int32(IGNORED))


def positions_of(row: Row) -> npt.NDArray[np.int32]:
    """(n,) positions that start at 0 in every segment."""
    return np.concatenate([np.arange(length, dtype=np.int32) for length in lengths_of(row)])


def rolled_mask(row: Row) -> npt.NDArray[np.int8]:
    """(n,) 1 where the next token of the same segment is trained: Megatron aligns its mask with the targets."""
    rolled = np.zeros(len(row.mask), dtype=np.int8)
    rolled[:-1] = row.mask[1:]
    ends = np.cumsum(lengths_of(row)) - 1
    rolled[ends] = 0
    return rolled


def documents_of(row: Row, end: int, dtype: npt.DTypeLike) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """Ids and mask of the row's segments, each closed by the token `end` (added untrained where it is missing).

    OLMo-core finds documents by that token, so it may stand nowhere else: pieces of a longer document get one too.
    """
    ids, masks = [], []
    for segment in row.segments:
        span = slice(segment.start, segment.start + segment.length)
        ids.append(row.ids[span].astype(dtype))
        masks.append(row.mask[span])
        if int(row.ids[span.stop - 1]) != end:
            ids.append(np.array([end], dtype=dtype))
            masks.append(np.array([False]))
    return np.concatenate(ids), np.concatenate(masks)
