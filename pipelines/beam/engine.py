"""The Beam engine: every map of tasks is one pipeline, on any runner.

Guarantees: the same results, files and errors as every other engine (`pipelines.engine.Engine`). Not given: a run
folder in a bucket. Tasks read and write files under the run folder, so on a distant runner that folder must be a path
that every worker sees (a network file system); `python -m pipelines.beam` reads and writes buckets.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import apache_beam as beam
import grpc
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import (
    DirectOptions,
    GoogleCloudOptions,
    PipelineOptions,
    SetupOptions,
    StandardOptions,
    TestOptions,
    WorkerOptions,
)
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner

from pipelines.beam.harness import HarnessDied, HarnessPool
from pipelines.beam.shipping import ship_package
from pipelines.beam.tasks import RunTasks, read_result, started
from pipelines.workers import THREAD_LIMITS, environment, failure_of, shown_task, worker_death
from schemas.errors import DatamixError, UsageError
from schemas.progress import Progress, Quiet

__all__ = ["LOCAL_RUNNERS", "BeamEngine", "JobBuilt", "is_local_run", "is_only_built", "pipeline_options"]

Task = TypeVar("Task")

LOCAL_RUNNERS = ("FnApiRunner", "DirectRunner", "BundleBasedDirectRunner", "SwitchingDirectRunner")
LOCAL_RUNNER = "FnApiRunner"  # DirectRunner would first look for a Prism binary in the network
_POLL_SECONDS = 0.5


class JobBuilt(DatamixError):  # noqa: N818  (not a failure)
    """Not a failure: the options ask for a job that is built and not run (dry run, template). Exit code 0."""

    exit_code = 0


class BeamEngine:
    """Runs tasks through Apache Beam (see `pipelines.engine.Engine`).

    Without options the runner is FnApiRunner: in this process for one worker, in `workers` processes of this machine
    for more (their start costs 3 to 10 s a map). `options` are flags of Beam and of the runner, passed on unseen.
    """

    name = "beam"

    def __init__(self, workers: int, options: Sequence[str] = ()) -> None:
        if workers < 1:
            raise ValueError(f"workers must be at least 1, received {workers}")
        self.workers = workers
        self.flags = tuple(options)
        chosen = pipeline_options(self.flags, workers)
        self.local = is_local_run(chosen)
        _refuse_blind_workers(chosen)
        self._pool: HarnessPool | None = None

    def map(
        self,
        function: Callable[[Task], dict[str, Any]],
        tasks: Sequence[Task],
        *,
        label: str,
        progress: Progress | None = None,
    ) -> list[dict[str, Any]]:
        """`[function(task) for task in tasks]`: see `Engine.map`.

        Of several failing tasks the first in task order is raised. Another exception than a DatamixError is raised
        as a local runner met it, with its traceback as a note; a distant runner retries first and then says so
        itself. Raises JobBuilt when the options ask for a job without running it.
        """
        if not tasks:
            return []
        options = pipeline_options(self.flags, min(self.workers, len(tasks)))
        with self._work_folder(options) as folder:
            described = RunTasks(function, tasks, folder, stop_early=self.local)
            with (progress or Quiet()).task(label, len(tasks)) as advance:
                if not self.local:
                    self._submit(described, options, label)
                    advance(len(tasks))
                else:
                    variables = {**THREAD_LIMITS, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
                    with environment(variables), _quiet(), _watched(folder, advance):
                        try:
                            self._run_here(described, options, label)
                        except (HarnessDied, RuntimeError) as error:
                            dead = started(folder, len(tasks))
                            if not dead:
                                raise
                            raise _death(label, dead[0], tasks[dead[0]], error) from None
            return _collect(folder, tasks, label)

    def _submit(self, tasks: RunTasks, options: PipelineOptions, label: str) -> None:
        """One job on a distant runner, with this code for its workers."""
        ship_package(options)
        pipeline = beam.Pipeline(options=options)
        _ = pipeline | label.replace("/", " ") >> tasks
        result = pipeline.run()
        if is_only_built(options):
            template = options.view_as(GoogleCloudOptions).template_location
            where = f" as template {template}" if template else ""
            count = len(tasks.descriptions)
            raise JobBuilt(f"{label}: the job of {count} tasks is built{where} and not run, as the options say")
        result.wait_until_finish()

    def _run_here(self, tasks: RunTasks, options: PipelineOptions, label: str) -> None:
        """One pipeline on a local runner; the processes are ours unless the flags ask for Beam's."""
        direct = options.view_as(DirectOptions)
        ours = direct.direct_running_mode == "in_memory" and direct.direct_num_workers > 1
        runner: Any = None  # the one that the options name
        if ours:
            self._pool = self._pool or HarnessPool(self.workers)
            runner = FnApiRunner(default_environment=self._pool.environment())
        pipeline = beam.Pipeline(runner=runner, options=options)
        _ = pipeline | label.replace("/", " ") >> tasks
        if self._pool is None or not ours:
            pipeline.run().wait_until_finish()
            return
        ended: list[BaseException] = []

        def run() -> None:
            try:
                pipeline.run().wait_until_finish()
            except BaseException as error:
                ended.append(error)

        thread = threading.Thread(target=run, name="datamix-beam-pipeline", daemon=True)
        thread.start()
        try:
            self._pool.watch(thread)
        except BaseException:  # a dead worker, or Ctrl-C: the others have nothing to go on with
            self._pool.give_up(thread)
            raise
        if ended:
            raise ended[0]

    @contextmanager
    def _work_folder(self, options: PipelineOptions) -> Iterator[str]:
        """A folder for results: on this machine, or under the runner's temp_location."""
        if self.local:
            with tempfile.TemporaryDirectory(prefix="datamix-beam-") as folder:
                yield folder
            return
        base = options.view_as(GoogleCloudOptions).temp_location
        if not base:
            raise UsageError(
                "engine beam: a distant runner needs --temp_location, a folder that every worker can write "
                "(gs://BUCKET/tmp, or a path of a shared file system). Add it after '--'"
            )
        folder = FileSystems.join(base, f"datamix-{uuid.uuid4().hex}")
        try:
            yield folder
        finally:
            if not is_only_built(options) and FileSystems.exists(folder):
                FileSystems.delete([folder])

    def close(self) -> None:
        """End the worker processes; a later map starts new ones."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None


def pipeline_options(flags: Sequence[str], workers: int) -> PipelineOptions:
    """Beam's options from `flags`, with what datamix adds: a named local runner, its processes, this session's code.

    What `flags` say is never overridden. Raises UsageError when Beam refuses a flag.
    """
    try:
        options = PipelineOptions(list(flags))
        standard, direct = options.view_as(StandardOptions), options.view_as(DirectOptions)
    except SystemExit:  # argparse has said on stderr which flag it is
        raise UsageError(f"engine beam: Beam refuses one of the options {' '.join(flags)}") from None
    if standard.runner is None:
        standard.runner = LOCAL_RUNNER
    given = {flag.partition("=")[0].lstrip("-") for flag in flags}
    if workers > 1 and not given & {"direct_num_workers", "direct_running_mode"}:
        direct.direct_num_workers = workers
    options.view_as(SetupOptions).save_main_session = False
    return options


def _refuse_blind_workers(options: PipelineOptions) -> None:
    """Dataflow's own workers see no folder of ours: only an image of the user's can mount the run folder."""
    runner = str(options.view_as(StandardOptions).runner).rpartition(".")[2]
    image = options.view_as(WorkerOptions).sdk_container_image
    if runner == "DataflowRunner" and not (image or is_only_built(options)):
        raise UsageError(
            "engine beam: Dataflow workers see no folder of this machine, and a run folder is one. Filter a corpus in "
            "a bucket with: python -m pipelines.beam --input gs://… --output gs://… (docs/beam.md), build the job "
            "only (--dry_run=True), or give --sdk_container_image, an image that mounts the run folder"
        )


def is_local_run(options: PipelineOptions) -> bool:
    """Does the runner work inside this program or in processes of its own on this machine?"""
    return str(options.view_as(StandardOptions).runner).rpartition(".")[2] in LOCAL_RUNNERS


def is_only_built(options: PipelineOptions) -> bool:
    """Do the options ask for a job without running it (Dataflow's dry run or template)?"""
    cloud = options.view_as(GoogleCloudOptions)
    return bool(options.view_as(TestOptions).dry_run or cloud.template_location)


def _collect(folder: str, tasks: Sequence[Any], label: str) -> list[dict[str, Any]]:
    results = []
    for index, task in enumerate(tasks):
        found = read_result(folder, index)
        if found is None:
            raise DatamixError(f"{label}: task {index} left no result. The task was {shown_task(task)}. Run it again")
        if "failure" in found:
            raise failure_of(found["failure"])
        results.append(found["result"])
    return results


def _death(label: str, index: int, task: object, error: BaseException) -> DatamixError:
    """The error for a pipeline that ended in the middle of a task."""
    if isinstance(error, HarnessDied):
        return worker_death(label, error.exit_code, index, task)
    last = str(error).strip().splitlines()[-1:] or [""]
    return DatamixError(
        f"{label}: the pipeline ended in the middle of task {index} ({last[0][:200]}). The task was "
        f"{shown_task(task)}. Nothing half-written counts: run the same command again"
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """Beam's own log lines, and the traces of its threads when a worker is gone, are left out: failures are raised."""
    logger = logging.getLogger("apache_beam")
    before, hook = logger.level, threading.excepthook

    def others(failure: threading.ExceptHookArgs) -> None:
        if not issubclass(failure.exc_type, grpc.RpcError):
            hook(failure)

    logger.setLevel(logging.CRITICAL + 1)
    threading.excepthook = others
    try:
        yield
    finally:
        logger.setLevel(before)
        threading.excepthook = hook


@contextmanager
def _watched(folder: str, advance: Callable[[float], None]) -> Iterator[None]:
    """Tell `advance` of results as they appear in `folder`."""
    stop = threading.Event()
    seen = 0

    def look() -> None:
        nonlocal seen
        count = sum(1 for _ in Path(folder).glob("*.json"))
        advance(count - seen)
        seen = count

    def watch() -> None:
        while not stop.wait(_POLL_SECONDS):
            look()

    watcher = threading.Thread(target=watch, name="datamix-beam-progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        stop.set()
        watcher.join()
        look()
