"""datatrove under Slurm: an executor with a recipe's engine settings, and the engine of `datamix run` on a cluster.

    datamix run RECIPE --out /shared/run --workers 64 -- --executor slurm --work-folder /shared/tmp --partition cpu \\
        --time 10:00:00

Each map of a step is one job array; `datamix run` itself stays on the login node and waits. Nodes need this
installation at the same path (or `env_command` to reach it).
"""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from datatrove.executor.slurm import SlurmPipelineExecutor
from datatrove.pipeline.base import PipelineStep
from loguru import logger

from pipelines.trove.cluster import RecordTasks, WorkerGone, collected
from pipelines.workers import THREAD_LIMITS
from schemas.errors import UsageError
from schemas.progress import Progress, Quiet

__all__ = ["SlurmEngine", "SlurmSettings", "slurm_executor"]

Task = TypeVar("Task")
RANKS_PER_WORKER = 4  # a rank is a job of the array and an import of the step's libraries: fewer, longer ranks
_POLL_SECONDS = 2.0
_SETTLE_SECONDS = 20.0  # network file systems show a finished file some seconds late


@dataclass(frozen=True, slots=True)
class SlurmSettings:
    """What sbatch has to know. `sbatch_args` are more of its options, such as {"account": "math"}."""

    partition: str
    time: str
    cpus_per_task: int = 1
    mem_per_cpu_gb: float = 2
    qos: str | None = None
    env_command: str | None = None
    sbatch_args: Mapping[str, str] = field(default_factory=dict)


def slurm_executor(
    steps: Sequence[PipelineStep],
    settings: SlurmSettings,
    *,
    folder: str | Path,
    tasks: int,
    workers: int,
    name: str = "datamix",
    depends: SlurmPipelineExecutor | None = None,
) -> SlurmPipelineExecutor:
    """An executor of `steps` as `tasks` ranks, `workers` of them at once; `.run()` submits it.

    For a recipe: `workers=recipe.engine.workers`. `folder` (logs, statistics, what is done) must be seen by every
    node. Every rank runs with one thread, as the steps need (`cpus_per_task` buys memory, not speed).
    """
    limits = "; ".join(f"export {variable}={value}" for variable, value in THREAD_LIMITS.items())
    return SlurmPipelineExecutor(
        list(steps),
        tasks=tasks,
        workers=min(workers, tasks),
        time=settings.time,
        partition=settings.partition,
        cpus_per_task=settings.cpus_per_task,
        mem_per_cpu_gb=math.ceil(settings.mem_per_cpu_gb),  # sbatch takes no fractions
        qos=settings.qos,
        env_command=f"{settings.env_command}; {limits}" if settings.env_command else limits,
        sbatch_args=dict(settings.sbatch_args),
        job_name=name,
        logging_dir=str(Path(folder).expanduser().resolve()),
        depends=depends,
    )


class SlurmEngine:
    """Runs tasks as job arrays, `workers` ranks at once (see `pipelines.engine.Engine`)."""

    name = "datatrove"

    def __init__(self, workers: int, folder: Path, settings: SlurmSettings) -> None:
        if "SLURM_ARRAY_TASK_ID" in os.environ:
            raise UsageError("--executor slurm: this is itself a task of a job array. Start the run outside of one")
        for command in ("sbatch", "squeue", "scancel"):
            if shutil.which(command) is None:
                raise UsageError(f"--executor slurm: there is no {command} here. Run it on a node that submits jobs")
        self.workers, self.folder, self.settings = workers, folder, settings

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
        folder = self.folder / f"datamix-{uuid.uuid4().hex}"
        results = folder / "results"
        results.mkdir(parents=True)
        executor = slurm_executor(
            [RecordTasks(function, tasks, str(results))],
            self.settings,
            folder=folder / "logs",
            tasks=min(len(tasks), RANKS_PER_WORKER * self.workers),
            workers=self.workers,
            name=f"datamix-{label.split(':')[0].replace(' ', '-')}",
        )
        logger.disable("datatrove")
        try:
            executor.run()
        except subprocess.CalledProcessError as error:  # sbatch has said why on stderr
            shutil.rmtree(folder, ignore_errors=True)
            raise UsageError(f"{label}: sbatch refuses the job (exit code {error.returncode}, see above)") from None
        finally:
            logger.enable("datatrove")
        try:
            with (progress or Quiet()).task(label, len(tasks)) as advance:
                _wait(str(executor.job_id), results, len(tasks), advance)
        except BaseException:  # Ctrl-C: the array has nobody to work for
            _slurm("scancel", str(executor.job_id))
            raise
        try:
            return collected(results, tasks, label)
        except WorkerGone as error:
            kept = folder.with_name(f"{folder.name}-failed")
            folder.rename(kept)
            error.add_note(f"logs of the job: {kept / 'logs'}")
            raise
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _wait(job: str, results: Path, count: int, advance: Callable[[float], None]) -> None:
    """Until every task has left its file, or the job is gone from the queue and its files had time to appear."""
    seen, gone_since = 0, None
    while True:
        done = sum(1 for _ in results.glob("*.json"))
        advance(done - seen)
        seen = done
        if done >= count:
            return
        queued = _slurm("squeue", "--noheader", "--jobs", job)
        if queued.strip():
            gone_since = None
        elif gone_since is None:
            gone_since = time.monotonic()
        elif time.monotonic() - gone_since > _SETTLE_SECONDS:
            return
        time.sleep(_POLL_SECONDS)


def _slurm(*command: str) -> str:
    """Output of a command; nothing when Slurm no longer knows the job."""
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout
