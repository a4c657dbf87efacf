"""The datatrove engine on a cluster: what follows '--' of `datamix run` names Ray or Slurm and its settings.

The run folder and the work folder must be paths that every node sees. Tasks leave their results there, one file each.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from datatrove.pipeline.base import PipelineStep

from pipelines.engine import Engine
from pipelines.workers import describe_failure, failure_of, shown_task
from schemas.errors import DatamixError, UsageError
from schemas.files import atomic_path

__all__ = ["RecordTasks", "WorkerGone", "collected", "open_cluster"]

_RAY = "--executor ray --work-folder FOLDER [--cpus-per-task N] [--mem-per-cpu-gb N]"
_SLURM = (
    "--executor slurm --work-folder FOLDER --partition NAME --time H:MM:SS [--cpus-per-task N] [--mem-per-cpu-gb N] "
    "[--qos NAME] [--env-command COMMAND] [--sbatch NAME=VALUE]"
)


class WorkerGone(DatamixError):  # noqa: N818  (says what happened)
    """A task left neither a result nor a failure."""


def open_cluster(workers: int, options: Sequence[str]) -> Engine:
    """The engine that `options` ask for, with `workers` tasks at once. Raises UsageError naming the options."""
    given = _parsed(options)
    folder = Path(given.work_folder).expanduser().resolve()
    if given.executor == "ray":
        from pipelines.trove.ray import RayEngine

        return RayEngine(workers, folder, cpus_per_task=given.cpus_per_task, mem_per_cpu_gb=given.mem_per_cpu_gb)
    from pipelines.trove.slurm import SlurmEngine, SlurmSettings

    if given.partition is None or given.time is None:
        raise UsageError(f"engine datatrove: --executor slurm needs --partition and --time. Use {_SLURM}")
    wrong = [entry for entry in given.sbatch if "=" not in entry]
    if wrong:
        raise UsageError(f"engine datatrove: --sbatch {wrong[0]!r} is not NAME=VALUE, for example account=math")
    settings = SlurmSettings(
        partition=given.partition,
        time=given.time,
        cpus_per_task=given.cpus_per_task,
        mem_per_cpu_gb=given.mem_per_cpu_gb,
        qos=given.qos,
        env_command=given.env_command,
        sbatch_args=dict(entry.split("=", 1) for entry in given.sbatch),
    )
    return SlurmEngine(workers, folder, settings)


def _parsed(options: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="engine datatrove", add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--executor", choices=("ray", "slurm"), required=True)
    parser.add_argument("--work-folder", required=True)
    parser.add_argument("--cpus-per-task", type=int, default=1)
    parser.add_argument("--mem-per-cpu-gb", type=float, default=2)
    parser.add_argument("--partition")
    parser.add_argument("--time")
    parser.add_argument("--qos")
    parser.add_argument("--env-command")
    parser.add_argument("--sbatch", action="append", default=[])
    try:
        given, unknown = parser.parse_known_args(options)
    except (argparse.ArgumentError, SystemExit):
        given, unknown = None, list(options)
    if given is None or unknown:
        raise UsageError(f"engine datatrove: options {' '.join(unknown)} are not understood. Use {_RAY}, or {_SLURM}")
    return given


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


def collected(folder: Path, tasks: Sequence[Any], label: str) -> list[dict[str, Any]]:
    """Results in task order. A failure comes before the results that its rank no longer made."""
    found = {int(p.stem): json.loads(p.read_text(encoding="utf-8")) for p in folder.glob("*.json")}
    for index in sorted(found):
        if "failure" in found[index]:
            raise failure_of(found[index]["failure"])
    for index, task in enumerate(tasks):
        if index not in found:
            raise WorkerGone(
                f"{label}: task {index} left no result: its worker is gone. The task was {shown_task(task)}. "
                "Nothing half-written counts: run the same command again, with more --mem-per-cpu-gb if memory is short"
            )
    return [found[index]["result"] for index in range(len(tasks))]
