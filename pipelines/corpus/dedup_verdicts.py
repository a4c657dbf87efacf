"""Duplicates of plain files as verdicts alone: one row for every document, and no text is copied or moved.

The decisions are those of the step `dedup` on the same files: equal ids, documents compared in the order in which a
run holds them. Texts are read once, where they lie; ids, signatures and positions are what stays of them.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from filters.text.dedup.decide import DUPLICATE_EXACT, DUPLICATE_NEAR, Decision
from pipelines.context import RunContext
from pipelines.corpus.dedup import bands_of, decide_tasks, dedup_counts, id_bytes, reference_tasks, sketches_of
from pipelines.corpus.dedup_files import SketchTable
from pipelines.corpus.dedup_read import Rejected, file_batches
from pipelines.corpus.dedup_tasks import DedupBatch, DedupTask, sketch_task
from pipelines.corpus.read.step import (
    ReadTask,
    aside_of,
    collect_problems,
    counts_of_reading,
    plan_reading,
    refuse_useless_sources,
    say_what_is_odd,
)
from pipelines.corpus.tables import write_part
from schemas.document import KEEP
from schemas.files import atomic_path

__all__ = ["VERDICTS_ALONE", "FileTask", "write_verdicts"]

VERDICTS_ALONE = pa.schema(
    [
        ("row", pa.int64()),  # of the input file, from 1: the line of a jsonl file
        ("id", pa.string()),
        ("source_id", pa.string()),
        ("verdict", pa.string()),
        ("cluster", pa.string()),
        ("similarity", pa.float32()),
        ("duplicate_of", pa.string()),
        ("duplicate_of_source_id", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class FileTask(DedupTask):
    """One input file, read as the step `read` reads it."""

    read: ReadTask
    alone: bool  # the only source, and nothing to compare with

    def batches(self) -> Iterator[DedupBatch]:
        """The documents of the file; what is wrong with others goes to the set-aside file of `read`."""
        with atomic_path(aside_of(self.read)) as path, path.open("wb") as aside:
            for found in file_batches(self.read, self.alone):
                if isinstance(found, Rejected):
                    if self.read.stop_at_problem:
                        raise found.problem.error()
                    aside.write(orjson.dumps(found.problem.row(), option=orjson.OPT_APPEND_NEWLINE))
                else:
                    yield found


def sketch_file(task: FileTask) -> dict[str, Any]:
    """As `sketch_task`, with the problems of the file counted."""
    result = sketch_task(task)
    with aside_of(task.read).open("rb") as lines:
        problems = Counter(orjson.loads(line)["problem"] for line in lines)
    return {**result, "problems": dict(problems), "characters": 0, "replaced": 0}


def write_verdicts(context: RunContext) -> dict[str, Any]:
    """Write out/verdicts/NUMBER.parquet for every input file and set_aside/read.jsonl; returns counts.

    Raises what the steps read and dedup raise. Memory: about 2 KB a document and 50 bytes a candidate pair.
    """
    folder = context.run / "spill" / "dedup"
    folder.mkdir(parents=True)
    reads = plan_reading(context, folder)
    config = context.recipe.dedup
    settings = (str(folder), config.shingle_words, config.permutations)
    alone = config.against is None and len(context.recipe.sources) == 1
    own = [FileTask(str(context.run), number, None, *settings, read, alone) for number, read in enumerate(reads)]
    references = reference_tasks(context, folder)
    bands = bands_of(context)
    results = context.engine.map(sketch_file, own, label="dedup: sketch", progress=context.progress)
    refuse_useless_sources(reads, results)
    counts = counts_of_reading(reads, results)
    say_what_is_odd(context, counts)
    results += context.engine.map(sketch_task, references, label="dedup: references", progress=context.progress)
    tasks: list[DedupTask] = [*own, *references]
    table = sketches_of(context, tasks, results)
    order = _order(own, table, context.recipe.engine.partitions)
    decision = decide_tasks(context, tasks, table, bands, order)
    files = [
        {
            "path": file.read.files[0].path,
            "verdicts": f"verdicts/{part:05d}.parquet",
            "documents": _write_file(context.run / "out" / "verdicts", part, table, decision),
        }
        for part, file in enumerate(own)
    ]
    (context.run / "set_aside").mkdir(exist_ok=True)
    collect_problems(context.run / "set_aside" / "read.jsonl", reads)
    found = dedup_counts(context, tasks, table, decision, bands)
    shutil.rmtree(folder, ignore_errors=True)
    return {**found, "set_aside": counts["set_aside"], "files": files}


def _order(own: Sequence[FileTask], table: SketchTable, partitions: int) -> npt.NDArray[np.int64]:
    """Rows in the order of a run: by partition, id and origin; the reference set after them, as it was read."""
    fixed = table.parts >= len(own)
    ids = id_bytes(table.ids, fixed)
    first = int(np.argmax(fixed)) if fixed.any() else len(fixed)
    digits = np.frombuffer(np.ascontiguousarray(ids[:first]).astype("S32").tobytes(), np.uint8).reshape(-1, 32)[:, :15]
    values = (digits & 15).astype(np.uint64) + np.where(digits > 57, 9, 0).astype(np.uint64)  # hexadecimal digits
    numbers = values @ (np.uint64(16) ** np.arange(14, -1, -1, dtype=np.uint64))
    origin = np.zeros(len(fixed), np.int64)
    order = np.argsort(ids[:first], kind="stable")
    equal = np.flatnonzero(ids[:first][order][1:] == ids[:first][order][:-1])
    twins = np.unique(np.concatenate([order[equal], order[equal + 1]]))
    names = [f"{own[p].read.files[0].relative}#{r}" for p, r in zip(table.parts[twins], table.rows[twins], strict=True)]
    origin[twins[sorted(range(len(twins)), key=names.__getitem__)]] = np.arange(len(twins))
    part = np.zeros(len(fixed), np.uint64)
    part[:first] = numbers % np.uint64(partitions)
    return np.lexsort((origin, ids, part, fixed)).astype(np.int64)


def _write_file(folder: Path, part: int, table: SketchTable, decision: Decision) -> int:
    """The verdicts of one file, in its order; returns its documents."""
    here = np.arange(*np.searchsorted(table.parts, [part, part + 1]))
    removed = decision.removed[here]
    codes = np.where(removed, np.where(decision.exact[here], 1, 2), 0)
    keepers = pa.array(decision.keeper[here])
    gone, clustered = pa.array(removed), pa.array(decision.clustered[here])
    names, nothing = table.ids.take(keepers), pa.scalar(None, pa.string())
    batch = pa.record_batch(
        [
            pa.array(table.rows[here]),
            table.ids.slice(here[0], len(here)) if len(here) else table.ids.slice(0, 0),
            table.source_ids.slice(here[0], len(here)) if len(here) else table.source_ids.slice(0, 0),
            pa.array([KEEP, DUPLICATE_EXACT, DUPLICATE_NEAR]).take(pa.array(codes)),
            pc.if_else(clustered, names, nothing),
            pa.array(decision.similarity[here], pa.float32(), mask=~removed),
            pc.if_else(gone, names, nothing),
            pc.if_else(gone, table.source_ids.take(keepers), nothing),
        ],
        schema=VERDICTS_ALONE,
    )
    folder.mkdir(parents=True, exist_ok=True)
    return write_part(folder / f"{part:05d}.parquet", VERDICTS_ALONE, [batch])
