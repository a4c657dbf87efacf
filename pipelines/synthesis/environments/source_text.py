"""Positions in Python source: from syntax tree nodes to character offsets and back to lines."""

from __future__ import annotations

import ast
import bisect
import io
import warnings
from dataclasses import dataclass
from functools import lru_cache

__all__ = ["SourceText", "Span", "changed_lines", "parse_module", "parse_quietly"]


@lru_cache(maxsize=4)
def parse_module(source: str) -> ast.Module | None:
    """`parse_quietly`, remembering the last few texts: trees are shared, so nobody may change them."""
    return parse_quietly(source)


def parse_quietly(source: str) -> ast.Module | None:
    """The syntax tree, or None for text that Python (or its parser's limits) refuses. Never prints warnings."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


@dataclass(frozen=True, slots=True)
class Span:
    """Characters start (included) to end (excluded) of a text."""

    start: int
    end: int


class SourceText:
    """A source with its line starts. Columns of syntax tree nodes are UTF-8 bytes; spans are characters."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = list(io.StringIO(text, newline=""))  # as Python counts lines: a form feed ends none
        self._starts = [0]
        for line in self.lines:
            self._starts.append(self._starts[-1] + len(line))

    def offset(self, line: int, column: int) -> int:
        """Character offset of a 1-based line and a column in bytes."""
        content = self.lines[line - 1]
        if not content.isascii():
            column = len(content.encode("utf-8")[:column].decode("utf-8", "ignore"))
        return self._starts[line - 1] + column

    def span(self, node: ast.AST) -> Span:
        """Where an expression or statement lies."""
        start = self.offset(node.lineno, node.col_offset)  # type: ignore[attr-defined]
        return Span(start, self.offset(node.end_lineno, node.end_col_offset))  # type: ignore[attr-defined]

    def segment(self, node: ast.AST) -> str:
        """The text of a node."""
        span = self.span(node)
        return self.text[span.start : span.end]

    def line_of(self, offset: int) -> int:
        """The 1-based line that holds a character offset."""
        return max(1, bisect.bisect_right(self._starts, offset))


def changed_lines(old: str, new: str) -> tuple[int, int, int]:
    """The smallest block of lines in which two texts differ: (first, end in old, end in new), from 0, end excluded."""
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    first = 0
    while first < min(len(before), len(after)) and before[first] == after[first]:
        first += 1
    last = 0
    while last < min(len(before), len(after)) - first and before[-1 - last] == after[-1 - last]:
        last += 1
    return first, len(before) - last, len(after) - last
