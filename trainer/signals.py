"""SIGTERM and Ctrl-C as a request: finish nothing more, save, leave."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from schemas.errors import DatamixError

__all__ = ["StopRequest", "TrainingStopped", "listen_for_signals"]


class TrainingStopped(DatamixError):  # noqa: N818  (not a fault: it was asked for)
    """Training was asked to stop and saved where it was; the same command goes on from there.

    `exit_code` is 0 after SIGTERM, whose sender wants just that, and 130 after Ctrl-C, as shells expect.
    """

    def __init__(self, message: str, exit_code: int = 0) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class StopRequest:
    """Whether a signal came, and which (of the signals that reached this process)."""

    def __init__(self) -> None:
        self.asked = False
        self.by = signal.SIGTERM

    def stopped(self, where: str) -> TrainingStopped:
        """The exception that leaves the training; `where` says how far it is."""
        name = "Ctrl-C" if self.by == signal.SIGINT else "SIGTERM"
        return TrainingStopped(
            f"stopped by {name} {where}, all saved. The same command goes on from there",
            130 if self.by == signal.SIGINT else 0,
        )


@contextmanager
def listen_for_signals(second_interrupts: bool = True) -> Iterator[StopRequest]:
    """Turn SIGTERM and SIGINT into `asked` while the block runs (in the main thread; elsewhere they cannot be set).

    A second Ctrl-C does what it does elsewhere: it interrupts at once; not where `second_interrupts` is false, since
    torchrun sends its workers another one. A signal that was ignored (a job in the background) stays so.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return

    def note(number: int, frame: FrameType | None) -> None:
        request.asked, request.by = True, signal.Signals(number)
        if number == signal.SIGINT and second_interrupts:
            signal.signal(signal.SIGINT, before[signal.SIGINT])

    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    before = {number: handler for number, handler in handlers.items() if handler not in (signal.SIG_IGN, None)}
    for number in before:
        signal.signal(number, note)
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
