"""Replays of a whole file: which of its trajectories come out as they were recorded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pipelines.synthesis.environments.base import Environment, open_environment
from pipelines.synthesis.ingest.store import read_trajectories
from pipelines.synthesis.pools.build import pool_place
from pipelines.synthesis.replay import Difference, replay, task_of
from pipelines.synthesis.styles import unstyled
from pipelines.synthesis.synth_file import pool_beside
from schemas.errors import InputError, UsageError

__all__ = ["Replayed", "replay_file"]


@dataclass(frozen=True, slots=True)
class Replayed:
    """One trajectory of a file: `difference` is None when every observation and the verdict are as recorded."""

    row: int
    id: str
    task: str
    family: str
    messages: int
    difference: Difference | None

    def to_row(self) -> dict[str, Any]:
        """A JSON-able row."""
        return {**asdict(self), "equal": self.difference is None}


def replay_file(
    path: str | Path, row: int | None = None, pool: Path | None = None, run: Path | None = None
) -> Iterator[Replayed]:
    """Replay one row (from 0) or all rows of a trajectory file, in order, one sandbox a family.

    `pool` is what the tasks draw from, or `run` the run that has it; with neither it is looked for beside the file and
    in the run that the file lies in. Trajectories that are written in a text style are read back into calls first.
    Raises InputError for a trajectory without its task, UsageError for a file without such a row and when no pool is
    found or it is another one than the tasks were made from. Cost: that of the roll-out.
    """
    rows = 0
    with ExitStack() as stack:
        opened: dict[str, Environment] = {}
        for number, trajectory in enumerate(read_trajectories(path)):
            rows += 1
            if row not in (None, number):
                continue
            try:
                task = task_of(trajectory)
            except InputError as error:
                raise InputError(
                    error.problem, path=str(path), line=number, field=error.field, todo=error.todo
                ) from None
            if task.family not in opened:
                place = pool or (
                    pool_place(run / "trajectories", task.family) if run else pool_beside(path, task.family)
                )
                opened[task.family] = stack.enter_context(open_environment(task.family, pool_path=place, split="all"))
            differences = replay(opened[task.family], unstyled(trajectory))
            first = differences[0] if differences else None
            yield Replayed(number, trajectory.id, task.id, task.family, len(trajectory.messages), first)
    if row is not None and row >= rows:
        raise UsageError(f"{path} has {rows} trajectories, counted from 0: there is no row {row}")
    if not rows:
        raise UsageError(f"{path}: holds no trajectory, so there is nothing to replay")
