"""Shard files from a plan: each task writes one file, reading its rows' tokens by position.

The plan of a stage is an Arrow file with one record batch for each shard file and one row for each segment: which row
of the shard it belongs to, and where its tokens lie. So a task's memory is one batch of the plan and BATCH_TOKENS of
rows (one row at least), whatever the size of the corpus, and every worker count gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipelines.curriculum.render import TRAINED
from pipelines.curriculum.token_files import open_mask, open_tokens
from schemas.files import atomic_path, sha256_file
from schemas.shard import ShardFile, shard_schema

__all__ = ["PLAN_SCHEMA", "SEGMENT_START", "AssembleTask", "assemble_file", "write_plan"]

SEGMENT_START = "segment_start"  # the reason of a pretraining segment's first token, which nothing precedes
BATCH_TOKENS = 1_048_576  # rows are written in record batches of about this size, so that readers hold little

PLAN_SCHEMA = pa.schema(
    [
        ("row", pa.int32()),  # of the shard file
        ("part", pa.int32()),  # of the work files
        ("start", pa.int64()),  # first token in the part's flat file
        ("length", pa.int32()),
        ("record", pa.int64()),  # row of the part's Arrow file
        ("segment_id", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class AssembleTask:
    """One shard file. `plan` and `batch` say which rows, `target` where (`path` relative to the index)."""

    plan: str
    batch: int
    phase: str
    work: str
    target: str
    path: str
    vocab_size: int
    metadata: tuple[tuple[str, str], ...]


def write_plan(path: Path, batches: Iterator[pa.RecordBatch]) -> int:
    """Write the plan of a stage; returns how many shard files it has."""
    count = 0
    with (
        atomic_path(path) as temporary,
        pa.OSFile(str(temporary), "wb") as sink,
        pa.ipc.new_file(sink, PLAN_SCHEMA) as out,
    ):
        for batch in batches:
            out.write_batch(batch)
            count += 1
    return count


@dataclass(slots=True)
class _Segment:
    ids: npt.NDArray[Any]
    mask: npt.NDArray[np.bool_]
    runs: list[tuple[int, str]]
    name: str


def assemble_file(task: AssembleTask) -> dict[str, Any]:
    """Write one shard file atomically; returns its `ShardFile` as a dict."""
    schema = shard_schema(task.vocab_size, dict(task.metadata))
    with pa.memory_map(task.plan) as source:
        plan = pa.ipc.open_file(source).get_batch(task.batch).to_pydict()
    target = Path(task.target)
    rows = tokens = trained = 0
    with (
        atomic_path(target) as temporary,
        pa.OSFile(str(temporary), "wb") as sink,
        pa.ipc.new_file(sink, schema) as out,
    ):
        waiting: list[list[_Segment]] = []
        held = 0
        for row in _rows(task, plan):
            waiting.append(row)
            held += sum(len(segment.ids) for segment in row)
            trained += sum(int(segment.mask.sum()) for segment in row)
            if held >= BATCH_TOKENS:
                out.write_batch(_batch(waiting, schema))
                rows, tokens, waiting, held = rows + len(waiting), tokens + held, [], 0
        if waiting:
            out.write_batch(_batch(waiting, schema))
            rows, tokens = rows + len(waiting), tokens + held
    entry = ShardFile(
        path=task.path,
        sha256=sha256_file(target),
        bytes=target.stat().st_size,
        rows=rows,
        tokens=tokens,
        trained_tokens=trained,
        segments=len(plan["row"]),
    )
    return asdict(entry)


def _rows(task: AssembleTask, plan: dict[str, list[Any]]) -> Iterator[list[_Segment]]:
    """The rows of a plan, one at a time."""
    work = Path(task.work)
    name = "documents" if task.phase == "pretrain" else "trajectories"

    @cache
    def tokens_of(part: int) -> npt.NDArray[Any]:
        return open_tokens(work / f"{name}-{part:05d}.bin", task.vocab_size)

    @cache
    def mask_of(part: int) -> npt.NDArray[Any]:
        return open_mask(work / f"{name}-{part:05d}.mask")

    @cache
    def runs_of(part: int) -> pa.ChunkedArray:
        with pa.memory_map(str(work / f"{name}-{part:05d}.arrow")) as source:
            return pa.ipc.open_file(source).read_all().column("runs")

    row: list[_Segment] = []
    current = 0
    for number, part, start, length, record, segment_id in zip(*plan.values(), strict=True):
        if number != current:
            yield row
            row, current = [], number
        ids = tokens_of(part)[start : start + length]
        if task.phase == "pretrain":
            mask = np.ones(length, dtype=np.bool_)
            mask[0] = False
            runs = [(1, SEGMENT_START)] + ([(length - 1, TRAINED)] if length > 1 else [])
        else:
            mask = mask_of(part)[start : start + length].astype(np.bool_)
            runs = [(run["tokens"], run["reason"]) for run in runs_of(part)[record].as_py()]
        row.append(_Segment(ids, mask, runs, segment_id))
    if row:
        yield row


def _batch(rows: list[list[_Segment]], schema: pa.Schema) -> pa.RecordBatch:
    """Rows as one record batch of the shard schema, built from flat arrays (no Python list of tokens)."""
    token_ends = np.cumsum([0, *(sum(len(s.ids) for s in row) for row in rows)], dtype=np.int32)
    segment_ends = np.cumsum([0, *(len(row) for row in rows)], dtype=np.int32)
    run_ends = np.cumsum([0, *(sum(len(s.runs) for s in row) for row in rows)], dtype=np.int32)
    segments = [segment for row in rows for segment in row]
    runs = [run for segment in segments for run in segment.runs]
    values = {
        "input_ids": (token_ends, pa.array(np.concatenate([s.ids for s in segments]))),
        "loss_mask": (token_ends, pa.array(np.concatenate([s.mask for s in segments]))),
        "segment_lengths": (segment_ends, pa.array([len(s.ids) for s in segments], pa.int32())),
        "segment_ids": (segment_ends, pa.array([s.name for s in segments], pa.string())),
        "mask_reasons": (
            run_ends,
            pa.StructArray.from_arrays(
                [pa.array([n for n, _ in runs], pa.int32()), pa.array([r for _, r in runs], pa.string())],
                fields=list(schema.field("mask_reasons").type.value_type),
            ),
        ),
    }
    arrays = [
        pa.ListArray.from_arrays(pa.array(ends, pa.int32()), items, type=schema.field(name).type)
        for name, (ends, items) in values.items()
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
