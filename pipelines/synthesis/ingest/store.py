"""Ingested runs to a Parquet file, with a count for every source file and a list of what was set aside."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipelines.synthesis.ingest.read import find_files, read_file
from pipelines.synthesis.ingest.records import SetAside
from schemas.errors import InputError
from schemas.files import atomic_path
from schemas.trajectory import TRAJECTORY_SCHEMA, Trajectory

__all__ = ["FileReport", "count_file", "ingest_to_file", "read_trajectories", "write_trajectories"]

BATCH_ROWS = 256
BATCH_CHARACTERS = 16_000_000

# Formats whose records of one file share turns (branches, paths of a tree, growing prefixes)
_SHARING = {"claude-code", "pi", "codex", "toolbench", "harbor-traces"}


@dataclass(slots=True)
class FileReport:
    """What one file gave. Turns that several records of the file share (author "copied") count once.

    `turns` are assistant turns, `errors` results that the source's own structure calls wrong. `copies` are trajectories
    whose id (what was said and done, source and task) an earlier record has: they are written too, for their outcomes
    may differ; a run's masks step and `convert` with a policy use the first of them.
    """

    path: str
    formats: set[str] = field(default_factory=set)
    trajectories: int = 0
    turns: int = 0
    calls: int = 0
    errors: int = 0
    set_aside: int = 0
    copies: int = 0
    problems: Counter[str] = field(default_factory=Counter)

    def add(self, item: Trajectory | SetAside) -> None:
        """Count one item of the file."""
        if isinstance(item, SetAside):
            self.set_aside += 1
            self.problems[item.problem] += 1
            return
        self.formats.add(item.source)
        self.trajectories += 1
        shared: set[str] = set()
        for message in item.messages:
            if message.role == "assistant":
                if message.author == "copied" and item.source in _SHARING:
                    shared.update(call.id for call in message.tool_calls)
                    continue
                self.turns += 1
                self.calls += len(message.tool_calls)
            elif message.error and (message.tool_call_id or "") not in shared:
                self.errors += 1

    def to_row(self) -> dict[str, Any]:
        """A JSON-able row."""
        return {
            "file": self.path,
            "format": "+".join(sorted(self.formats)) or None,
            "trajectories": self.trajectories,
            "turns": self.turns,
            "calls": self.calls,
            "errors": self.errors,
            "set_aside": self.set_aside,
            "copies": self.copies,
            "problems": dict(self.problems.most_common(5)),
        }


def count_file(path: str, format: str = "auto") -> FileReport:
    """Read one file and count, keeping nothing."""
    report = FileReport(path)
    for item in read_file(path, format):
        report.add(item)
    return report


def write_trajectories(path: str | Path, trajectories: Iterable[Trajectory]) -> int:
    """Write a Parquet file of TRAJECTORY_SCHEMA atomically, in batches; returns how many. Same input, same bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    written = 0
    with (
        atomic_path(path) as temporary,
        pq.ParquetWriter(temporary, TRAJECTORY_SCHEMA, compression="zstd") as writer,
    ):
        for batch in _batches(trajectories):
            writer.write_table(pa.Table.from_pylist([item.to_row() for item in batch], TRAJECTORY_SCHEMA))
            written += len(batch)
    return written


def _batches(trajectories: Iterable[Trajectory]) -> Iterator[list[Trajectory]]:
    """Batches bounded in rows and in characters of content."""
    batch: list[Trajectory] = []
    size = 0
    for trajectory in trajectories:
        batch.append(trajectory)
        size += sum(len(message.content) for message in trajectory.messages)
        if len(batch) >= BATCH_ROWS or size >= BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def read_trajectories(path: str | Path) -> Iterator[Trajectory]:
    """The trajectories of a Parquet file of ours, in order; memory is one batch of 64.

    Raises InputError when the file is missing or is no trajectory file.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.ParquetFile(path)
    except FileNotFoundError:
        raise InputError("there is no such file", path=str(path), todo="Check the path") from None
    except pa.ArrowInvalid as error:
        todo = "Give a trajectory file, as `datamix ingest` writes it"
        raise InputError(f"not a Parquet file ({error})", path=str(path), todo=todo) from None
    missing = [name for name in ("id", "source", "family", "messages") if name not in table.schema_arrow.names]
    if missing:
        todo = "Give a trajectory file, as `datamix ingest` writes it"
        raise InputError(f"no trajectory file: columns {', '.join(missing)} are missing", path=str(path), todo=todo)
    with table:
        for batch in table.iter_batches(batch_size=64):
            for row in batch.to_pylist():
                yield Trajectory.from_row(row)


def ingest_to_file(
    paths: Iterable[str | Path],
    out: str | Path,
    *,
    format: str = "auto",
    on_file: Callable[[FileReport], None] | None = None,
) -> list[FileReport]:
    """Read `paths`, write `out` and, when anything was set aside, `out`.set_aside.jsonl; one report a file.

    `on_file` hears of each file when it is done. Raises InputError when no file gave a trajectory (`out` is then not
    written) or a path does not exist, and UsageError for an unknown format.
    """
    reports: list[FileReport] = []
    beside = Path(f"{out}.set_aside.jsonl")
    files = [path for path in find_files(paths) if Path(path).resolve() not in (Path(out).resolve(), beside.resolve())]

    seen: set[str] = set()
    with atomic_path(beside) as temporary, open(temporary, "w", encoding="utf-8") as aside:

        def trajectories() -> Iterator[Trajectory]:
            for path in files:
                report = FileReport(path)
                for item in read_file(path, format):
                    report.add(item)
                    if isinstance(item, Trajectory):
                        report.copies += item.id in seen
                        seen.add(item.id)
                        yield item
                    else:
                        aside.write(json.dumps(item.to_row(), ensure_ascii=False) + "\n")
                reports.append(report)
                if on_file is not None:
                    on_file(report)

        found = trajectories()
        first = next(found, None)
        if first is not None:
            write_trajectories(out, _chain(first, found))
    if not any(report.set_aside for report in reports):
        beside.unlink()
    if first is None:
        todo = f"See {beside} for the reason of each" if reports else "Give files of recorded runs"
        raise InputError(f"none of {len(files)} files holds a trajectory", path=", ".join(map(str, paths)), todo=todo)
    return reports


def _chain(first: Trajectory, rest: Iterator[Trajectory]) -> Iterator[Trajectory]:
    yield first
    yield from rest
