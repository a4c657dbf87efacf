"""A batch of texts as lines: what each line begins and ends with, as shares per text.

Lines end at \\n; lines of white space only are not counted. All shares are of the lines that are left.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from filters.text.words import Floats, Ints

__all__ = ["Lines", "count_pattern", "split_lines", "split_paragraphs"]


@dataclass(frozen=True, slots=True)
class Lines:
    """`documents` texts cut into N trimmed, non-empty lines. `doc` (N,) is ascending; `count` is (documents,)."""

    documents: int
    text: pa.Array
    doc: Ints
    count: Ints

    def share(self, pattern: str) -> Floats:
        """Share of each text's lines in which the RE2 pattern is found, shape (documents,)."""
        return self.share_of(pc.match_substring_regex(self.text, pattern).to_numpy(zero_copy_only=False))

    def share_of(self, marked: npt.NDArray[np.bool_]) -> Floats:
        """Share of each text's lines that are marked. Shape (N,) to (documents,)."""
        return np.bincount(self.doc[marked], minlength=self.documents) / np.maximum(self.count, 1)

    def lengths(self) -> Ints:
        """Characters of each line, shape (N,)."""
        return np.asarray(pc.utf8_length(self.text).to_numpy(zero_copy_only=False), np.int64)


def split_lines(texts: pa.Array) -> Lines:
    """Cut at \\n. `texts`: large_string without nulls."""
    return _pieces(pc.split_pattern(texts, "\n"))


def split_paragraphs(texts: pa.Array) -> Lines:
    """Cut at blank lines: two or more \\n. `texts`: large_string without nulls."""
    return _pieces(pc.split_pattern_regex(texts, "\n{2,}"))


def _pieces(lists: pa.Array) -> Lines:
    trimmed = pc.utf8_trim_whitespace(lists.flatten())
    counts = pc.list_value_length(lists).to_numpy(zero_copy_only=False)
    doc = np.repeat(np.arange(len(lists), dtype=np.int64), counts)
    filled = pc.greater(pc.binary_length(trimmed), 0)
    doc = doc[filled.to_numpy(zero_copy_only=False)]
    count = np.bincount(doc, minlength=len(lists)).astype(np.int64)
    return Lines(len(lists), trimmed.filter(filled), doc, count)


def count_pattern(texts: pa.Array, pattern: str) -> Floats:
    """How often the RE2 pattern occurs in each text, shape (documents,)."""
    return np.asarray(pc.count_substring_regex(texts, pattern).to_numpy(zero_copy_only=False), np.float64)
