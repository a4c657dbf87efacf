"""How a training goes, told now and then: the loss, the speed, the time that is left."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["Pace", "duration"]

SAID_EVERY_SECONDS = 30.0


class Pace:
    """Collects steps and says one line for all of them once `every` seconds are over. It changes no result."""

    def __init__(
        self,
        say: Callable[[str], None],
        every: float = SAID_EVERY_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._say, self._every, self._clock = say, every, clock
        self._forget()

    def _forget(self) -> None:
        self._since = self._clock()
        self._rows = self._tokens = self._trained = 0
        self._loss = 0.0

    def step(self, done: str, rows: int, tokens: int, trained: int, loss: float | None, rows_left: int) -> None:
        """Count a step. `done` says where training is, `rows_left` how many rows its stage still has.

        The loss that is said is the mean over the steps, each weighed by its `trained` tokens.
        """
        self._rows += rows
        self._tokens += tokens
        if loss is not None:
            self._trained += trained
            self._loss += loss * trained
        seconds = self._clock() - self._since
        if seconds < self._every or not self._rows:
            return
        loss_said = f"loss {self._loss / self._trained:.3f}, " if self._trained else ""
        left = duration(rows_left * seconds / self._rows)
        self._say(f"{done}: {loss_said}{self._tokens / seconds:,.0f} tokens/s, about {left} left in this stage")
        self._forget()


def duration(seconds: float) -> str:
    """Seconds in the unit that a person would take."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
