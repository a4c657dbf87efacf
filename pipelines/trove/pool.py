"""Worker processes that outlive one map, notice when one of them dies, and end when their parent does.

`multiprocessing.Pool` waits for ever for a task whose worker was killed, and `ProcessPoolExecutor` cannot say which
task it was and leaves its workers behind when the parent is killed.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
import traceback
import weakref
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from pipelines.processes import Place, Worker, begin_worker, here, start_workers, stop_workers, take_place
from schemas.errors import DatamixError

__all__ = ["WorkerDied", "WorkerPool"]


class WorkerDied(Exception):  # noqa: N818  (an event that the engine turns into its error)
    """A worker process ended in the middle of `rank`; `exit_code` is negative for a signal."""

    def __init__(self, rank: int, exit_code: int) -> None:
        super().__init__(rank, exit_code)
        self.rank, self.exit_code = rank, exit_code


class WorkerPool:
    """`size` processes, started at the first `run` and kept for the next.

    They come from a fork server that has `preload` imported (see `pipelines.processes`).
    """

    def __init__(self, size: int, preload: str) -> None:
        self._size = size
        self._preload = preload
        self._workers: list[Worker] = []
        self._finalizer: weakref.finalize[..., WorkerPool] | None = None

    def run(
        self, call: Callable[[int], object], count: int, *, done: Callable[[int], None] = lambda rank: None
    ) -> BaseException | None:
        """Call `call(rank)` for every rank below `count`; `done(rank)` is told here as each one ends.

        Returns None, or the exception of the lowest rank that raised: after a failure no new rank starts, the
        running ones end, so the answer does not depend on timing or on the number of workers.
        Raises WorkerDied when a process ends in the middle of a rank; the pool is closed then.
        """
        if not self._workers:
            self._start()
        job = (pickle.dumps(call), here())
        try:
            return self._share_out(job, count, done)
        except BaseException:
            self.close()
            raise

    def _share_out(self, job: tuple[bytes, Place], count: int, done: Callable[[int], None]) -> BaseException | None:
        failures: dict[int, BaseException] = {}
        running: dict[Connection, int] = {}
        upcoming = iter(range(count))
        process_of = {connection: process for process, connection in self._workers}

        def give(connection: Connection, message: Any = None) -> None:
            rank = None if failures else next(upcoming, None)
            if rank is None:
                return
            running[connection] = rank
            try:
                if message is not None:
                    connection.send(message)
                connection.send(rank)
            except OSError:
                raise self._died(process_of[connection], rank) from None

        for _, connection in self._workers:
            give(connection, job)
        while running:
            for ready in wait(list(running)):
                connection = ready  # type: ignore[assignment]
                rank = running.pop(connection)
                try:
                    failure = connection.recv()
                except (EOFError, OSError):
                    raise self._died(process_of[connection], rank) from None
                if failure is not None:
                    failures[rank] = failure
                done(rank)
                give(connection)
        return failures[min(failures)] if failures else None

    def _died(self, process: BaseProcess, rank: int) -> WorkerDied:
        process.join(timeout=5)
        return WorkerDied(rank, process.exitcode if process.exitcode is not None else -signal.SIGKILL)

    def _start(self) -> None:
        self._workers = start_workers(self._size, _serve, preload=self._preload, name="datamix-worker")
        self._finalizer = weakref.finalize(self, stop_workers, self._workers)

    def close(self) -> None:
        """End the workers now. The next `run` starts new ones."""
        if self._finalizer is not None:
            self._finalizer()
        self._workers, self._finalizer = [], None


def _serve(connection: Connection) -> None:
    """What a worker does until its pipe closes: take a job once per map, then ranks; answer None or an exception."""
    begin_worker()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    job: tuple[bytes, Place] | None = None
    call: Callable[[int], object] | None = None
    while True:
        try:
            message = connection.recv()
        except (EOFError, OSError):
            return
        if not isinstance(message, int):
            job, call = message, None
            continue
        failure: BaseException | None = None
        try:
            if call is None and job is not None:
                payload, place = job
                take_place(place)
                call = pickle.loads(payload)  # noqa: S301  (our own bytes, over our own pipe)
            if call is None:
                raise RuntimeError("a rank came before its job")
            call(message)
        except BaseException as error:
            failure = _portable(error)
        try:
            connection.send(failure)
        except OSError:  # the parent is gone
            return


def _end_with_parent() -> None:
    """End this worker when its parent was killed, in the middle of a rank too: the run may be another's by then."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _portable(error: BaseException) -> BaseException:
    """`error` in a form that survives the pipe; a defect (no DatamixError) brings its traceback as a note."""
    if isinstance(error, DatamixError):
        return error
    story = "in a worker process:\n" + "".join(traceback.format_exception(error))
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301
    except Exception:
        error = RuntimeError(f"{type(error).__name__}: {error}")
    error.add_note(story)
    return error
