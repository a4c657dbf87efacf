"""The datatrove engine on a Ray cluster: `datamix run … -- --executor ray --work-folder FOLDER`.

The run folder and the work folder must be paths that every node sees. The cluster is the one that RAY_ADDRESS names,
or one that Ray starts on this machine.
"""

from __future__ import annotations

import argparse
import json
import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from datatrove.pipeline.base import PipelineStep

from pipelines.workers import THREAD_LIMITS, describe_failure, failure_of, shown_task
from schemas.errors import DatamixError, UsageError
from schemas.files import atomic_path
from schemas.progress import Progress, Quiet

__all__ = ["RayEngine", "RecordTasks"]

Task = TypeVar("Task")
RANKS_PER_WORKER = 4  # Ray starts an actor for each rank: fewer, longer ranks


class RecordTasks(PipelineStep):  # type: ignore[misc]
    """Runs `function` on `tasks[rank::world_size]`; each leaves its result, or how it failed, as INDEX.json."""

    name, type = "tasks", "datamix"

    def __init__(self, function: Callable[[Any], dict[str, Any]], tasks: Sequence[Any], folder: str) -> None:
        super().__init__()
        self.function, self.tasks, self.folder = function, list(tasks), folder

    def run(self, data: Any, rank: int = 0, world_size: int = 1) -> Iterator[Any]:
        """See `PipelineStep.run`. A rank ends at its first failure."""
        for index in range(rank, len(self.tasks), world_size):
            try:
                result = {"result": self.function(self.tasks[index])}
            except Exception as error:
                result = {"failure": describe_failure(error)}
            with atomic_path(Path(self.folder, f"{index}.json")) as temporary:
                temporary.write_text(json.dumps(result), encoding="utf-8")
            if "failure" in result:
                break
        yield from ()


class RayEngine:
    """Runs tasks on `workers` Ray workers at once (see `pipelines.engine.Engine`)."""

    name = "datatrove"

    def __init__(self, workers: int, options: Sequence[str]) -> None:
        given = _parsed(options)
        self.workers = workers
        self.folder = Path(given.work_folder).resolve()
        self.settings = {"cpus_per_task": given.cpus_per_task, "mem_per_cpu_gb": given.mem_per_cpu_gb}

    def map(
        self,
        function: Callable[[Task], dict[str, Any]],
        tasks: Sequence[Task],
        *,
        label: str,
        progress: Progress | None = None,
    ) -> list[dict[str, Any]]:
        """`[function(task) for task in tasks]`: see `Engine.map`.

        Of several failing tasks the first in task order that was run is raised: a rank ends at its first failure.
        """
        if not tasks:
            return []
        self._connect()
        from datatrove.executor.ray import RayPipelineExecutor

        folder = self.folder / f"datamix-{uuid.uuid4().hex}"
        results = folder / "results"
        results.mkdir(parents=True)
        try:
            with (progress or Quiet()).task(label, len(tasks)) as advance:
                RayPipelineExecutor(
                    [RecordTasks(function, tasks, str(results))],
                    tasks=min(len(tasks), RANKS_PER_WORKER * self.workers),
                    workers=self.workers,
                    logging_dir=str(folder / "logs"),
                    log_first=False,
                    **self.settings,
                ).run()
                advance(len(tasks))
            return _collected(results, tasks, label)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _connect(self) -> None:
        try:
            import ray
        except ImportError:
            raise UsageError("--executor ray needs Ray. Install it with: pip install 'datamix[ray]'") from None
        if not ray.is_initialized():
            ray.init(runtime_env={"env_vars": dict(THREAD_LIMITS)}, log_to_driver=False, include_dashboard=False)

    def close(self) -> None:
        """Leave the cluster."""
        import ray

        ray.shutdown()


def _collected(folder: Path, tasks: Sequence[Any], label: str) -> list[dict[str, Any]]:
    """Results in task order. A failure comes before the results that its rank no longer made."""
    found = {int(p.stem): json.loads(p.read_text(encoding="utf-8")) for p in folder.glob("*.json")}
    for index in sorted(found):
        if "failure" in found[index]:
            raise failure_of(found[index]["failure"])
    for index, task in enumerate(tasks):
        if index not in found:
            raise DatamixError(
                f"{label}: task {index} left no result: its Ray worker is gone. The task was {shown_task(task)}. "
                "Nothing half-written counts: run the same command again, with more --mem-per-cpu-gb if memory is short"
            )
    return [found[index]["result"] for index in range(len(tasks))]


def _parsed(options: Sequence[str]) -> argparse.Namespace:
    """Settings of the executor. Raises UsageError naming the ones there are."""
    parser = argparse.ArgumentParser(prog="engine datatrove", add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--executor", choices=("ray",), required=True)
    parser.add_argument("--work-folder", required=True)
    parser.add_argument("--cpus-per-task", type=int, default=1)
    parser.add_argument("--mem-per-cpu-gb", type=float, default=2)
    known = "--executor ray --work-folder FOLDER [--cpus-per-task N] [--mem-per-cpu-gb N]"
    try:
        given, unknown = parser.parse_known_args(options)
    except (argparse.ArgumentError, SystemExit):
        given, unknown = None, list(options)
    if given is None or unknown:
        raise UsageError(f"engine datatrove: options {' '.join(unknown)} are not understood. Use {known}")
    return given
