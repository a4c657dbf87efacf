"""datatrove's local executor over a pool of ours, and the pipeline step that runs tasks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from datatrove.executor.local import LocalPipelineExecutor
from datatrove.pipeline.base import PipelineStep
from loguru import logger

from pipelines.trove.pool import WorkerPool
from schemas.files import atomic_path

__all__ = ["PooledExecutor", "RunTasks"]


class RunTasks(PipelineStep):  # type: ignore[misc]
    """Runs `function` on `tasks[rank::world_size]` and leaves each result as `results/INDEX.json`.

    What a task produces is its own files; the data stream of the pipeline passes through untouched.
    """

    name = "tasks"
    type = "datamix"

    def __init__(self, function: Callable[[Any], dict[str, Any]], tasks: Sequence[Any], results: str) -> None:
        super().__init__()
        self.function = function
        self.tasks = list(tasks)
        self.results = results

    def run(self, data: Any, rank: int = 0, world_size: int = 1) -> Iterator[Any]:
        """See `PipelineStep.run`."""
        if data:
            yield from data
        for index in range(rank, len(self.tasks), world_size):
            with self.track_time("task"):
                result = self.function(self.tasks[index])
            with atomic_path(Path(self.results, f"{index}.json")) as temporary:
                temporary.write_text(json.dumps(result), encoding="utf-8")


class PooledExecutor(LocalPipelineExecutor):  # type: ignore[misc]
    """`LocalPipelineExecutor` whose processes are kept from one run to the next and whose death is noticed.

    The original starts a manager and a pool for every run (1.5 s and the imports of the step, again and again) and
    waits for ever when a worker is killed; what happens inside a rank is datatrove's own code.
    """

    def run_in(self, pool: WorkerPool, done: Callable[[int], None]) -> BaseException | None:
        """Run every rank in `pool`: see `WorkerPool.run` for the result and the errors."""
        return pool.run(self.run_rank, self.world_size, done=done)

    def run_rank(self, rank: int) -> None:
        """One rank, in a worker, without datatrove's log lines: failures travel as exceptions."""
        logger.disable("datatrove")
        self._run_for_rank(rank, local_rank=rank)
