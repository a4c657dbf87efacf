"""Worker processes with a pipe each, from a fork server: what both engines' pools are made of.

Every worker has its own pipe, so a parent can wait on pipes and process ends at once, and a worker whose parent closed
its end reads end-of-file and stops.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from pipelines.workers import THREAD_LIMITS, environment

__all__ = ["Place", "Worker", "begin_worker", "here", "start_workers", "stop_workers", "take_place"]

Worker = tuple[BaseProcess, Connection]
Place = tuple[str, list[str]]
"""Working folder and module path of a caller."""
_END_SECONDS = 5


def start_workers(size: int, serve: Callable[[Connection], None], *, preload: str, name: str) -> list[Worker]:
    """`size` daemon processes that run `serve(connection)`; the other end of each pipe is given with it.

    The fork server has the module `preload` imported, so the first start costs that import (1 to 3 s) and later ones
    some milliseconds. Scripts that start workers need the usual `if __name__ == "__main__"`.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([preload])
    workers: list[Worker] = []
    with environment(THREAD_LIMITS):
        for number in range(size):
            ours, theirs = context.Pipe()
            process = context.Process(target=serve, args=(theirs,), name=f"{name}-{number}", daemon=True)
            process.start()
            theirs.close()
            workers.append((process, ours))
    return workers


def stop_workers(workers: list[Worker]) -> None:
    """End the processes: their pipes are closed, they are asked to end, and killed when they do not."""
    for process, connection in workers:
        connection.close()
        process.terminate()
    for process, _ in workers:
        process.join(timeout=_END_SECONDS)
        if process.is_alive():
            process.kill()


def begin_worker() -> None:
    """First thing in a worker: one thread a library, and Ctrl-C left to the parent, which ends its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.update(THREAD_LIMITS)


def here() -> Place:
    """This process's own place, to send to a worker."""
    return str(Path.cwd()), list(sys.path)


def take_place(place: Place) -> None:
    """Work in the caller's folder, with the modules that it can import."""
    folder, path = place
    os.chdir(folder)
    sys.path[:] = path
