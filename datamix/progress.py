"""Progress for people: bars on a terminal, a few plain lines elsewhere; both on stderr.

Both listeners implement schemas.progress.Progress; `open_progress` chooses. Neither changes any result.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from schemas.progress import Progress as Listener

__all__ = ["BarProgress", "LineProgress", "open_progress"]

LINE_SECONDS = 10.0  # a log that is read later needs a sign of life, not a flood


class BarProgress:
    """Live bars. Must be entered as a context manager, which `open_progress` does."""

    def __init__(self, console: Console) -> None:
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )

    def __enter__(self) -> BarProgress:
        self._bars.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._bars.stop()

    def say(self, line: str) -> None:
        """Print the line above the bars."""
        self._bars.console.print(line, markup=False, highlight=False)

    @contextmanager
    def task(self, label: str, total: float | None = None) -> Iterator[Callable[[float], None]]:
        """A bar that disappears when its work is done."""
        bar = self._bars.add_task(escape(label), total=total)
        try:
            yield lambda amount: self._bars.update(bar, advance=amount)
        finally:
            self._bars.remove_task(bar)


class LineProgress:
    """Plain lines: every `say`, and for running tasks at most one line in `seconds`."""

    def __init__(
        self,
        stream: TextIO,
        *,
        seconds: float = LINE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream, self._seconds, self._clock = stream, seconds, clock
        self._last = clock()

    def say(self, line: str) -> None:
        """Write the line and restart the quiet time."""
        self._stream.write(line + "\n")
        self._stream.flush()
        self._last = self._clock()

    @contextmanager
    def task(self, label: str, total: float | None = None) -> Iterator[Callable[[float], None]]:
        """Count what is done; a line now and then says how far it is."""
        done = 0.0

        def advance(amount: float) -> None:
            nonlocal done
            done += amount
            if self._clock() - self._last >= self._seconds:
                share = f" ({done / total:.0%})" if total else ""
                of = f" of {total:,.0f}" if total else ""
                self.say(f"  {label}: {done:,.0f}{of}{share}")

        yield advance


@contextmanager
def open_progress() -> Iterator[Listener]:
    """Bars when stderr is a terminal, lines when it is not."""
    if sys.stderr.isatty():
        with BarProgress(Console(stderr=True)) as bars:
            yield bars
    else:
        yield LineProgress(sys.stderr)
