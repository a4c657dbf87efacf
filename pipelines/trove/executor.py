"""The default engine: datatrove's executor on the processes of one machine."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pipelines.engine import InProcess
from pipelines.trove.pool import WorkerDied, WorkerPool
from pipelines.workers import worker_death
from schemas.progress import Progress, Quiet

__all__ = ["MAX_RANKS", "TroveEngine"]

Task = TypeVar("Task")

MAX_RANKS = 64
"""More tasks than this share datatrove ranks (task i goes to rank i mod 64): a rank costs 30 ms of CPU for its logs."""


class TroveEngine:
    """Runs tasks through datatrove on `workers` local processes (see `pipelines.engine.Engine`).

    The processes start at the first map that needs them and stay until `close` or the end of the program; a map
    then costs some milliseconds a task. One worker or one task runs in this process: nothing is started for it.
    """

    name = "datatrove"

    def __init__(self, workers: int) -> None:
        if workers < 1:
            raise ValueError(f"workers must be at least 1, received {workers}")
        self.workers = workers
        self._pool = WorkerPool(workers, preload="pipelines.trove.local")

    def map(
        self,
        function: Callable[[Task], dict[str, Any]],
        tasks: Sequence[Task],
        *,
        label: str,
        progress: Progress | None = None,
    ) -> list[dict[str, Any]]:
        """`[function(task) for task in tasks]`: see `Engine.map`.

        Of several failing tasks the first in task order is raised, whatever the number of workers (with more than
        MAX_RANKS tasks: the first of the ranks). Another exception than a DatamixError is raised as it was, with
        the worker's traceback as a note.
        """
        if self.workers == 1 or len(tasks) < 2:
            return InProcess().map(function, tasks, label=label, progress=progress)
        from pipelines.trove.local import PooledExecutor, RunTasks

        with tempfile.TemporaryDirectory(prefix="datamix-trove-") as folder:
            results = Path(folder, "results")
            results.mkdir()
            executor = PooledExecutor(
                [RunTasks(function, tasks, str(results))],
                tasks=min(len(tasks), MAX_RANKS),
                workers=min(self.workers, len(tasks)),
                logging_dir=folder,
                skip_completed=False,
            )
            stripes = [range(rank, len(tasks), executor.world_size) for rank in range(executor.world_size)]
            with (progress or Quiet()).task(label, len(tasks)) as advance:
                try:
                    failure = executor.run_in(self._pool, lambda rank: advance(len(stripes[rank])))
                except WorkerDied as death:
                    index = next(i for i in stripes[death.rank] if not (results / f"{i}.json").exists())
                    raise worker_death(label, death.exit_code, index, tasks[index]) from None
            if failure is not None:
                raise failure
            return [json.loads((results / f"{i}.json").read_text(encoding="utf-8")) for i in range(len(tasks))]

    def close(self) -> None:
        """End the worker processes; a later map starts new ones."""
        self._pool.close()
