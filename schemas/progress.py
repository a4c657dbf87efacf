"""How long work says how far it is, without knowing who listens.

Steps receive a `Progress`; the command gives them bars on a terminal and plain lines elsewhere, tests give `Quiet`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

__all__ = ["Progress", "Quiet"]


class Progress(Protocol):
    """A listener. Implementations never raise and never change results."""

    def say(self, line: str) -> None:
        """One line of news (a count, a warning, a figure)."""

    def task(self, label: str, total: float | None = None) -> AbstractContextManager[Callable[[float], None]]:
        """Open a bar; the context gives `advance(amount)`. `total` None means that the end is unknown."""


class Quiet:
    """A listener that says nothing."""

    def say(self, line: str) -> None:
        """Drop the line."""

    @contextmanager
    def task(self, label: str, total: float | None = None) -> Iterator[Callable[[float], None]]:
        """A bar that nobody sees."""
        yield lambda amount: None
