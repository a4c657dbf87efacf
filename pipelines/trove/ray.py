"""The datatrove engine on a Ray cluster: `datamix run … -- --executor ray --work-folder FOLDER`.

The run folder and the work folder must be paths that every node sees. The cluster is the one that RAY_ADDRESS names,
or one that Ray starts on this machine.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pipelines.trove.cluster import RecordTasks, collected
from pipelines.workers import THREAD_LIMITS
from schemas.errors import UsageError
from schemas.progress import Progress, Quiet

__all__ = ["RayEngine"]

Task = TypeVar("Task")
RANKS_PER_WORKER = 4  # Ray starts an actor for each rank: fewer, longer ranks


class RayEngine:
    """Runs tasks on `workers` Ray workers at once (see `pipelines.engine.Engine`)."""

    name = "datatrove"

    def __init__(self, workers: int, folder: Path, *, cpus_per_task: int = 1, mem_per_cpu_gb: float = 2) -> None:
        self.workers, self.folder = workers, folder
        self.settings = {"cpus_per_task": cpus_per_task, "mem_per_cpu_gb": mem_per_cpu_gb}

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
            return collected(results, tasks, label)
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
