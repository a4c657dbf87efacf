"""Results of a standalone step: documents joined with its verdicts, kept and dropped apart, provenance in full."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.context import RunContext
from pipelines.corpus.batch_judges import without_private
from pipelines.corpus.corpus import JoinTask, join_documents, pii_kinds
from pipelines.corpus.tables import (
    VERDICT_SCHEMAS,
    count_verdicts,
    documents_part,
    iterate_batches,
    part_name,
    read_verdicts,
    verdict_part,
    write_part,
)
from schemas.document import DOCUMENT_SCHEMA, KEEP

__all__ = ["write_neutral", "write_results"]

EXTRA = {"dedup": ("similarity", "duplicate_of"), "decontaminate": ("benchmark", "matched")}
"""Columns of a step's verdicts that a dropped document carries beside those of every document."""
_SOURCE_ID = pa.field("duplicate_of_source_id", pa.string())


@dataclass(frozen=True, slots=True)
class ResultTask:
    """One partition of so many, the step that was run, and what to replace in kept texts."""

    run: str
    part: int
    step: str
    partitions: int
    pii: tuple[str, ...] = ()


def write_neutral(run: Path, step: str, partitions: int) -> None:
    """Verdicts of a step that is not run: every document stays, nothing is known about it."""
    schema = VERDICT_SCHEMAS[step]
    for part in range(partitions):

        def rows(part: int = part) -> Iterator[pa.RecordBatch]:
            for batch in iterate_batches(documents_part(run, part), ["id"], rows=65_536):
                columns = [
                    batch.column("id").cast(pa.string())
                    if field.name == "id"
                    else pa.array([KEEP] * batch.num_rows, pa.string())
                    if field.name == "verdict"
                    else pa.nulls(batch.num_rows, field.type)
                    for field in schema
                ]
                yield pa.record_batch(columns, schema=schema)

        write_part(verdict_part(run, step, part), schema, rows())


def write_results(context: RunContext, step: str) -> tuple[int, dict[str, int], dict[str, int]]:
    """Write out/kept and out/dropped; returns how many stayed, the others by reason, what was replaced by kind."""
    partitions, pii = context.recipe.engine.partitions, pii_kinds(context.recipe)
    tasks = [ResultTask(str(context.run), part, step, partitions, pii) for part in range(partitions)]
    results = context.engine.map(write_result, tasks, label=f"{step}: write", progress=context.progress)
    verdicts: Counter[str] = Counter()
    replaced: Counter[str] = Counter(dict.fromkeys(pii, 0))
    for result in results:
        verdicts.update(result["verdicts"])
        replaced.update(result["replaced"])
    kept = verdicts.pop(KEEP, 0)
    return kept, dict(sorted(verdicts.items())), dict(replaced)


def write_result(task: ResultTask) -> dict[str, Any]:
    """Join one partition. Memory: one batch of text, and for dedup the ids of the whole corpus."""
    tables = {step: read_verdicts(task.run, step, task.part) for step in VERDICT_SCHEMAS}
    extra = [VERDICT_SCHEMAS[task.step].field(name) for name in EXTRA.get(task.step, ())]
    names = _source_ids(task, tables["dedup"]) if task.step == "dedup" else None
    schema = DOCUMENT_SCHEMA
    for field in [*extra, *([_SOURCE_ID] if names is not None else [])]:
        schema = schema.append(field)
    verdicts: Counter[str] = Counter()
    replaced: Counter[str] = Counter()

    def rows(kind: str) -> Iterator[pa.RecordBatch]:
        first = 0
        for joined in join_documents(JoinTask(task.run, task.part), tables):
            keeps = pc.equal(joined.column("verdict"), KEEP)
            mask = keeps if kind == "kept" else pc.invert(keeps)
            chosen = joined.filter(mask)
            verdicts.update(count_verdicts(chosen.column("verdict")))
            if kind == "kept":
                if task.pii:
                    chosen, found = without_private(chosen, task.pii)
                    replaced.update(found.counts())
                yield chosen
            else:
                judged = tables[task.step].slice(first, joined.num_rows).combine_chunks().filter(mask)
                columns = [judged.column(field.name).combine_chunks() for field in extra]
                if names is not None:
                    columns.append(pa.array([names.get(i) for i in columns[-1].to_pylist()], pa.string()))
                yield pa.RecordBatch.from_arrays([*chosen.columns, *columns], schema=schema)
            first += joined.num_rows

    out = Path(task.run) / "out"
    write_part(out / "kept" / part_name(task.part), DOCUMENT_SCHEMA, rows("kept"))
    write_part(out / "dropped" / part_name(task.part), schema, rows("dropped"))
    return {"verdicts": dict(verdicts), "replaced": dict(replaced)}


def _source_ids(task: ResultTask, verdicts: pa.Table) -> dict[str, str]:
    """The input's own ids of the documents that stay for those of this partition."""
    wanted = verdicts.column("duplicate_of").drop_null().unique()
    found: dict[str, str] = {}
    if not len(wanted):
        return found
    for part in range(task.partitions):
        for batch in iterate_batches(documents_part(task.run, part), ["id", "source_id"], rows=65_536):
            here = batch.filter(pc.is_in(batch.column("id"), value_set=wanted))
            pairs = zip(here.column("id").to_pylist(), here.column("source_id").to_pylist(), strict=True)
            for name, source_id in pairs:
                if source_id is not None:
                    found.setdefault(name, source_id)
    return found
