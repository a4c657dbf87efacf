"""One writer at a time in a run folder."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from schemas.errors import UsageError

__all__ = ["LOCK_NAME", "locked"]

LOCK_NAME = ".lock"


@contextmanager
def locked(run: Path) -> Iterator[None]:
    """Hold the run folder's lock (made if absent). The system frees it when the process ends, however it ends.

    Raises UsageError naming the process that holds it.
    """
    try:
        run.mkdir(parents=True, exist_ok=True)
        handle = open(run / LOCK_NAME, "a+", encoding="ascii")  # noqa: SIM115  (closed by the with below)
    except OSError as error:
        raise UsageError(f"{run}: cannot be written ({error.strerror}). Give a folder that can be") from None
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            handle.seek(0)
            holder = handle.read().strip() or "unknown"
            raise UsageError(
                f"{run}: process {holder} is writing this run. Wait for it, or give another folder"
            ) from None
        handle.truncate(0)
        handle.write(f"{os.getpid()}\n")
        handle.flush()
        yield
