"""Engine: what runs many independent tasks. A step never knows which one.

A step cuts its work into tasks (plain picklable values: paths, ranges, configs). Each task reads its own input
files and writes its own output files atomically, so text never travels between processes; what comes back is a
small JSON-able result. Hence every engine and every worker count gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from schemas.errors import UsageError
from schemas.progress import Progress

__all__ = ["Engine", "InProcess", "open_engine"]

Task = TypeVar("Task")


class Engine(Protocol):
    """Runs tasks. `name` is what the recipe calls it."""

    name: str

    def map(
        self,
        function: Callable[[Task], dict[str, Any]],
        tasks: Sequence[Task],
        *,
        label: str,
        progress: Progress | None = None,
    ) -> list[dict[str, Any]]:
        """`[function(task) for task in tasks]`, in task order, on as many workers as the engine has.

        `function` is importable by name; results are JSON-able dicts. The first DatamixError of a task is raised
        here as it was; a worker that dies raises DatamixError naming the task.
        """


class InProcess:
    """Runs the tasks one after another in this process: for tests, for tiny inputs, and as the oracle."""

    name = "in-process"

    def map(
        self,
        function: Callable[[Task], dict[str, Any]],
        tasks: Sequence[Task],
        *,
        label: str,
        progress: Progress | None = None,
    ) -> list[dict[str, Any]]:
        """See `Engine.map`."""
        if progress is None:
            return [function(task) for task in tasks]
        results = []
        with progress.task(label, len(tasks)) as advance:
            for task in tasks:
                results.append(function(task))
                advance(1)
        return results


def open_engine(name: str, workers: int, options: Sequence[str] = ()) -> Engine:
    """The engine called `name` ('datatrove' or 'beam') with `workers` local processes.

    `options` are flags for the engine itself (`datamix run … -- FLAGS`): of Beam and its runner, or of datatrove's
    executor. Heavy libraries are imported here, not at module load. Raises UsageError for an unknown name or flag.
    """
    if name == "datatrove":
        if options:
            from pipelines.trove.cluster import open_cluster

            return open_cluster(workers, options)
        from pipelines.trove.executor import TroveEngine

        return TroveEngine(workers=workers)
    if name == "beam":
        from pipelines.beam.engine import BeamEngine

        return BeamEngine(workers=workers, options=options)
    raise UsageError(f"engine {name!r} is unknown. Use datatrove or beam")
