"""Step `decontaminate`: documents that hold items of the recipe's benchmark files are dropped, with item and span."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from filters.text.decontaminate import CONTAMINATED, Benchmarks, Unit, build_benchmarks, item_units
from pipelines.context import RunContext, StepOutput
from pipelines.corpus.plain import plain_files, plain_records
from pipelines.corpus.read.records import Problem
from pipelines.corpus.tables import VERDICT_SCHEMAS, iterate_documents, verdict_part, write_part
from schemas.document import KEEP
from schemas.errors import InputError

__all__ = ["read_benchmarks", "step"]

ALIVE_AFTER = ("quality", "dedup")


@dataclass(frozen=True, slots=True)
class DecontaminateTask:
    """Search one partition for the units in the file `index` (empty: there are no benchmarks)."""

    run: str
    part: int
    index: str


def step(context: RunContext) -> StepOutput:
    """Write verdicts/decontaminate/part-k. Without benchmarks every document is kept.

    Raises UsageError for a benchmark path that is not there, InputError for a file without a usable item, and with
    on_error: fail for the first record that cannot be read.
    """
    folder = context.run / "spill" / "decontaminate"
    shutil.rmtree(folder, ignore_errors=True)
    counts: dict[str, Any] = {"benchmarks": {}}
    index = ""
    try:
        if context.recipe.decontaminate.benchmarks:
            units, counts["benchmarks"] = read_benchmarks(context)
            index = str(folder / "benchmarks.npz")
            build_benchmarks(units, context.recipe.decontaminate.shingle_words).save(Path(index))
        partitions = range(context.recipe.engine.partitions)
        tasks = [DecontaminateTask(str(context.run), part, index) for part in partitions]
        results = context.engine.map(decontaminate_task, tasks, label="decontaminate", progress=context.progress)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if folder.parent.is_dir() and not any(folder.parent.iterdir()):
            folder.parent.rmdir()
    by_benchmark: Counter[str] = Counter()
    for result in results:
        by_benchmark.update(result["by_benchmark"])
    documents = sum(result["documents"] for result in results)
    dropped = sum(by_benchmark.values())
    counts |= {
        "documents_in": documents,
        "kept": documents - dropped,
        "dropped": {CONTAMINATED: dropped} if dropped else {},
    }
    for name, figures in counts["benchmarks"].items():
        figures["documents_dropped"] = by_benchmark[name]
        context.progress.say(
            f"decontaminate: {name}: {figures['items']} items, {by_benchmark[name]} documents hold one or more"
            + (f"; {figures['too_short']} items are too short to be searched for" if figures["too_short"] else "")
        )
    return StepOutput([verdict_part(context.run, "decontaminate", part) for part in partitions], counts)


def read_benchmarks(context: RunContext) -> tuple[list[Unit], dict[str, dict[str, int]]]:
    """All units of the recipe's files, and counts by file."""
    units: list[Unit] = []
    counts: dict[str, dict[str, int]] = {}
    files = {
        f: None for p in context.recipe.decontaminate.benchmarks for f in plain_files(p, "decontaminate.benchmarks")
    }
    for path in files:
        figures = {"items": 0, "too_short": 0, "unreadable": 0}
        for record in plain_records(path):
            if isinstance(record, Problem):
                if context.recipe.on_error == "fail":
                    raise record.error()
                figures["unreadable"] += 1
                context.progress.say(f"decontaminate: set aside: {record.error()}")
                continue
            own, short = item_units(record.fields, path.as_posix(), f"{path.as_posix()}#{record.line}")
            units += own
            figures["items"] += 1
            figures["too_short"] += short
        if figures["items"] == figures["too_short"]:
            raise InputError(
                f"{figures['items']} records, none with a text of 8 words or more: nothing could ever be found",
                path=str(path),
                todo="Give a jsonl or parquet file whose records hold the benchmark's texts",
            )
        counts[path.as_posix()] = figures
    return units, counts


def decontaminate_task(task: DecontaminateTask) -> dict[str, Any]:
    """Judge one partition. Memory: one batch of text and the index of the benchmarks."""
    benchmarks = Benchmarks.load(Path(task.index)) if task.index else None
    schema = VERDICT_SCHEMAS["decontaminate"]
    by_benchmark: Counter[str] = Counter()
    documents = 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal documents
        columns = ["id", "text"] if benchmarks is not None else ["id"]
        for _, batch, alive in iterate_documents(task.run, task.part, columns, after=ALIVE_AFTER):
            documents += int(alive.sum())
            verdict: list[str | None] = [KEEP if here else None for here in alive.tolist()]
            benchmark: list[str | None] = [None] * batch.num_rows
            matched: list[str | None] = [None] * batch.num_rows
            if benchmarks is not None:
                rows = alive.nonzero()[0].tolist()
                for number, match in benchmarks.search(batch.column("text").filter(pa.array(alive))).items():
                    row = rows[number]
                    verdict[row], benchmark[row], matched[row] = CONTAMINATED, match.item, match.matched
                    by_benchmark[match.benchmark] += 1
            yield pa.record_batch(
                [batch.column("id"), *(pa.array(c, pa.string()) for c in (verdict, benchmark, matched))], schema=schema
            )

    write_part(verdict_part(task.run, "decontaminate", task.part), schema, batches())
    return {"documents": documents, "by_benchmark": dict(by_benchmark)}
