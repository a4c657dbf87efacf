"""A map of tasks as one Beam pipeline: descriptions in, one small JSON file a task out.

Only the pickled description of a task (paths, ranges, settings) is an element. What a task makes are its own files;
what it returns, or how it failed, is written to the work folder, which the caller reads when the pipeline is done.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems

from pipelines.workers import describe_failure
from schemas.errors import DatamixError

__all__ = ["RunTasks", "read_result", "started"]


class RunTasks(beam.PTransform[Any, Any]):
    """Runs `function` on every task; applied to a pipeline, it gives the indexes of the tasks that were run.

    `folder` is any path that Beam's file systems know and every worker sees. With `stop_early` (a local folder) a
    task is left out when an earlier one has failed already: the first failure in task order is found all the same.
    """

    def __init__(
        self, function: Callable[[Any], dict[str, Any]], tasks: Sequence[Any], folder: str, *, stop_early: bool
    ) -> None:
        super().__init__()
        self.function, self.folder, self.stop_early = function, folder, stop_early
        self.descriptions = [(index, pickle.dumps(task)) for index, task in enumerate(tasks)]

    def expand(self, pbegin: Any) -> Any:
        """Create, spread over the workers, run."""
        return (
            pbegin
            | "Descriptions" >> beam.Create(self.descriptions, reshuffle=False)
            | "Spread" >> beam.Reshuffle()
            | "Run" >> beam.ParDo(_Run(self.function, self.folder, self.stop_early))
        )


class _Run(beam.DoFn):
    """Runs one task and leaves INDEX.started, then INDEX.json. Repeating it is harmless: the same bytes."""

    def __init__(self, function: Callable[[Any], dict[str, Any]], folder: str, stop_early: bool) -> None:
        self.function, self.folder, self.stop_early = function, folder, stop_early

    def process(self, element: tuple[int, bytes]) -> Iterable[int]:
        """See `RunTasks`. A defect on a distant runner is raised, so that the runner's retries can do their work."""
        index, description = element
        if self.stop_early and any(int(path.stem) < index for path in Path(self.folder).glob("*.failed")):
            return
        _put(self.folder, f"{index}.started", "")
        task = pickle.loads(description)  # noqa: S301  (our own bytes, made by RunTasks)
        try:
            result = {"result": self.function(task)}
        except Exception as error:
            if not self.stop_early and not isinstance(error, DatamixError):
                raise
            result = {"failure": describe_failure(error)}
            if self.stop_early:
                _put(self.folder, f"{index}.failed", "")
        _put(self.folder, f"{index}.json", json.dumps(result))
        yield index


def _put(folder: str, name: str, text: str) -> None:
    with FileSystems.create(FileSystems.join(folder, name), "application/octet-stream") as sink:
        sink.write(text.encode("utf-8"))


def started(folder: str, count: int) -> list[int]:
    """Tasks that were begun and left no result, of a folder on this machine."""
    return [n for n in range(count) if Path(folder, f"{n}.started").exists() and not _whole(Path(folder, f"{n}.json"))]


def _whole(path: Path) -> bool:
    try:
        json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return True


def read_result(folder: str, index: int) -> dict[str, Any] | None:
    """What task `index` left: {"result": …} or {"failure": …}; None when it left nothing."""
    path = FileSystems.join(folder, f"{index}.json")
    if not FileSystems.exists(path):
        return None
    with FileSystems.open(path, "application/octet-stream") as source:
        found = json.loads(source.read())
    return found if isinstance(found, dict) else None
