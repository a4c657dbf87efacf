"""SIGTERM as a request: finish nothing more, save, leave with exit code 0."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from schemas.errors import DatamixError

__all__ = ["StopRequest", "TrainingStopped", "listen_for_sigterm"]


class TrainingStopped(DatamixError):  # noqa: N818  (not a fault: it was asked for)
    """Training was asked to stop and saved where it was; the same command goes on from there."""

    exit_code = 0


class StopRequest:
    """Whether SIGTERM came."""

    def __init__(self) -> None:
        self.asked = False


@contextmanager
def listen_for_sigterm() -> Iterator[StopRequest]:
    """Turn SIGTERM into `asked` while the block runs (in the main thread; elsewhere signals cannot be set)."""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return

    def note(number: int, frame: FrameType | None) -> None:
        request.asked = True

    before = signal.signal(signal.SIGTERM, note)
    try:
        yield request
    finally:
        signal.signal(signal.SIGTERM, before)
