"""Worker processes for Beam's local runner that outlive one pipeline and whose death is noticed.

Beam's `multi_processing` mode starts its processes anew for every pipeline (6 s, 3 s of CPU) and waits for ever for
one that was killed. Here the same SDK harness runs in processes of a fork server, offered to the runner through the
external worker pool of Beam's own protocol (environment EXTERNAL).
"""

from __future__ import annotations

import logging
import signal
import threading
import weakref
from concurrent import futures
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any

import grpc
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_fn_api_pb2, beam_fn_api_pb2_grpc, beam_runner_api_pb2
from apache_beam.runners.portability.fn_api_runner.worker_handlers import ExternalWorkerHandler, WorkerHandler
from apache_beam.runners.worker.sdk_worker import SdkHarness
from apache_beam.transforms.environments import ExternalEnvironment, python_sdk_capabilities

from pipelines.processes import Worker, begin_worker, here, start_workers, stop_workers, take_place

__all__ = ["HarnessDied", "HarnessPool"]

_POLL_SECONDS = 0.2
_END_SECONDS = 10


class HarnessDied(Exception):  # noqa: N818  (an event that the engine turns into its error)
    """A worker process ended while a pipeline was running; `exit_code` is negative for a signal."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code


@WorkerHandler.register_environment(common_urns.environments.EXTERNAL.urn, beam_runner_api_pb2.ExternalPayload)
class _KnownHandler(ExternalWorkerHandler):
    """Beam's handler of an external worker, remembered: the runner waits for ever on one whose worker is gone."""

    known: weakref.WeakSet[_KnownHandler] = weakref.WeakSet()

    def start_worker(self) -> None:
        """As Beam does."""
        _KnownHandler.known.add(self)
        super().start_worker()

    @classmethod
    def abort_all(cls, error: Exception) -> None:
        """End every pipeline of this process that waits for an external worker."""
        for handler in list(cls.known):
            handler.control_conn.abort(error)


class HarnessPool(beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolServicer):
    """`size` worker processes, started when first needed and kept for the next pipeline."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._workers: list[Worker] = []
        self._idle: list[Connection] = []
        self._server: Any = None
        self._address = ""
        self._finalizer: weakref.finalize[..., HarnessPool] | None = None

    def environment(self) -> ExternalEnvironment:
        """The environment to build a pipeline with; starts what is not running."""
        if not self._settled():
            self.close()
            self._start()
        self._idle = [connection for _, connection in self._workers]
        return ExternalEnvironment(self._address, capabilities=python_sdk_capabilities())

    def watch(self, running: threading.Thread) -> None:
        """Wait for the thread that runs the pipeline. Raises HarnessDied when a worker ends before it does."""
        sentinels = [process.sentinel for process, _ in self._workers]
        while running.is_alive():
            running.join(_POLL_SECONDS)
            if wait(sentinels, timeout=0):
                running.join(_POLL_SECONDS)
                if running.is_alive():
                    dead = next(process for process, _ in self._workers if not process.is_alive())
                    raise HarnessDied(dead.exitcode if dead.exitcode is not None else -signal.SIGKILL)

    def StartWorker(self, request: Any, context: Any) -> Any:  # noqa: N802  (the protocol's name)
        """Called by the runner: give one idle process to a pipeline."""
        if not self._idle:
            return beam_fn_api_pb2.StartWorkerResponse(error=f"all {self._size} processes are in use")
        job = (request.control_endpoint.url, request.worker_id, here())
        self._idle.pop(0).send(job)
        return beam_fn_api_pb2.StartWorkerResponse()

    def StopWorker(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Called by some runners: a process ends its work by itself when the control stream closes."""
        return beam_fn_api_pb2.StopWorkerResponse()

    def give_up(self, running: threading.Thread) -> None:
        """End the processes and the pipeline that waits for them."""
        self.close()
        _KnownHandler.abort_all(RuntimeError("a worker process is gone"))
        running.join(_END_SECONDS)

    def close(self) -> None:
        """End the processes; a later pipeline starts new ones."""
        if self._finalizer is not None:
            self._finalizer()
        self._workers, self._idle, self._server = [], [], None

    def _settled(self) -> bool:
        """Are all processes there, and done with the pipeline before?"""
        if not self._workers:
            return False
        for process, connection in self._workers:
            if connection in self._idle:
                if not process.is_alive():
                    return False
                continue
            if not connection.poll(_END_SECONDS) or not process.is_alive():
                return False
            with suppress(EOFError, OSError):
                connection.recv()
        return True

    def _start(self) -> None:
        self._workers = start_workers(self._size, _serve, preload="pipelines.beam.harness", name="datamix-beam")
        self._server = grpc.server(futures.ThreadPoolExecutor(max_workers=2))
        self._address = f"localhost:{self._server.add_insecure_port('localhost:0')}"
        beam_fn_api_pb2_grpc.add_BeamFnExternalWorkerPoolServicer_to_server(self, self._server)
        self._server.start()
        self._finalizer = weakref.finalize(self, _stop, self._workers, self._server)


def _stop(workers: list[Worker], server: Any) -> None:
    server.stop(None)
    stop_workers(workers)


def _serve(connection: Connection) -> None:
    """What a process does until its pipe closes: run the SDK harness for one pipeline after the other."""
    begin_worker()
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL + 1)
    while True:
        try:
            control, worker, place = connection.recv()
        except (EOFError, OSError):
            return
        take_place(place)
        with suppress(grpc.RpcError):  # the runner went away: so does this pipeline
            SdkHarness(control, worker_id=worker).run()
        with suppress(OSError):
            connection.send(None)
