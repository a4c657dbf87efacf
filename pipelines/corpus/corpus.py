"""The step `corpus`: documents joined with what every step found out about them, kept and dropped apart.

The verdict tables are row-aligned with the documents, so the join is by row; the ids are compared all the same. Where
the recipe says so (`pii`), personal data and keys in kept texts become placeholders here, after every decision: ids,
origins and verdicts are those of the text as it was read, which stays in `documents/`. Dropped texts stay as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.context import RunContext, StepOutput
from pipelines.corpus.batch_judges import without_private
from pipelines.corpus.tables import (
    JUDGES,
    VERDICT_SCHEMAS,
    corpus_part,
    count_verdicts,
    documents_part,
    iterate_batches,
    read_verdicts,
    verdict_part,
    write_part,
)
from schemas.document import DOCUMENT_SCHEMA, KEEP
from schemas.errors import CheckError
from schemas.recipe import Recipe

__all__ = ["JoinTask", "join_documents", "join_part", "pii_kinds", "step"]

_FOUND = {"quality": "quality", "cluster": "dedup", "domain": "classify", "domain_score": "classify"}
"""Which step's table a column of the document comes from."""


@dataclass(frozen=True, slots=True)
class JoinTask:
    """One partition of a run, and the kinds of personal data to replace in kept texts."""

    run: str
    part: int
    pii: tuple[str, ...] = ()


def step(context: RunContext) -> StepOutput:
    """Write `corpus/kept/part-k` and `corpus/dropped/part-k`; `tokens` stays null until the mixture is known."""
    pii = pii_kinds(context.recipe)
    tasks = [JoinTask(str(context.run), part, pii) for part in range(context.recipe.engine.partitions)]
    results = context.engine.map(join_part, tasks, label="corpus", progress=context.progress)
    verdicts: Counter[str] = Counter()
    by_domain: Counter[str] = Counter()
    by_source: Counter[str] = Counter()
    replaced: Counter[str] = Counter()
    for result in results:
        verdicts.update(result["verdicts"])
        replaced.update(result["replaced"])
        by_domain.update(result["kept_by_domain"])
        by_source.update(result["kept_by_source"])
    kept = verdicts.pop(KEEP, 0)
    counts: dict[str, Any] = {
        "documents_in": kept + sum(verdicts.values()),
        "kept": kept,
        "dropped": dict(sorted(verdicts.items())),
        "kept_by_domain": dict(sorted(by_domain.items())),
        "kept_by_source": dict(sorted(by_source.items())),
        "characters_kept": sum(result["characters_kept"] for result in results),
        "characters_dropped": sum(result["characters_dropped"] for result in results),
    }
    if verdicts and not kept:
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in verdicts.most_common())
        context.progress.say(f"corpus: warning: no document is left: {reasons}")
    if pii:
        counts["replaced"] = {kind: replaced[kind] for kind in pii}
        counts["documents_with_replacements"] = sum(result["documents_replaced"] for result in results)
    files = [corpus_part(context.run, kind, task.part) for kind in ("kept", "dropped") for task in tasks]
    return StepOutput(files, counts)


def pii_kinds(recipe: Recipe) -> tuple[str, ...]:
    """Kinds of personal data that a recipe has replaced, in a fixed order; none when it has no `pii`."""
    return () if recipe.pii is None else tuple(sorted(set(recipe.pii.replace)))


def join_part(task: JoinTask) -> dict[str, Any]:
    """Join one partition. The text is read twice, once for each output, and never held beyond a batch."""
    tables = {step: read_verdicts(task.run, step, task.part) for step in VERDICT_SCHEMAS}
    names = ("verdicts", "kept_by_domain", "kept_by_source", "replaced")
    counts: dict[str, Counter[str]] = {name: Counter() for name in names}
    characters = {"kept": 0, "dropped": 0}
    documents_replaced = 0

    def rows(kind: str) -> Iterator[pa.RecordBatch]:
        nonlocal documents_replaced
        for joined in join_documents(task, tables):
            keeps = pc.equal(joined.column("verdict"), KEEP)
            chosen = joined.filter(keeps if kind == "kept" else pc.invert(keeps))
            if kind == "kept" and task.pii:
                chosen, found = without_private(chosen, task.pii)
                counts["replaced"].update(found.counts())
                documents_replaced += len(found.found)
            counts["verdicts"].update(count_verdicts(chosen.column("verdict")))
            characters[kind] += pc.sum(pc.utf8_length(chosen.column("text"))).as_py() or 0
            if kind == "kept":
                counts["kept_by_domain"].update(count_verdicts(chosen.column("domain")))
                counts["kept_by_source"].update(count_verdicts(chosen.column("source")))
            yield chosen

    for kind in ("kept", "dropped"):
        write_part(corpus_part(task.run, kind, task.part), DOCUMENT_SCHEMA, rows(kind))
    return {
        **{name: dict(counter) for name, counter in counts.items()},
        "documents_replaced": documents_replaced,
        "characters_kept": characters["kept"],
        "characters_dropped": characters["dropped"],
    }


def join_documents(task: JoinTask, tables: dict[str, pa.Table]) -> Iterator[pa.RecordBatch]:
    """The documents of a partition, complete but for their tokens. Raises CheckError when tables do not line up."""
    first = 0
    path = documents_part(task.run, task.part)
    for batch in iterate_batches(path, rows=1024):
        slices = {step: table.slice(first, batch.num_rows).combine_chunks() for step, table in tables.items()}
        for step, part in slices.items():
            if not part.column("id").combine_chunks().equals(batch.column("id").cast(pa.string())):
                _refuse(path, verdict_part(task.run, step, task.part), first)
        columns = []
        for field in DOCUMENT_SCHEMA:
            if field.name == "verdict":
                columns.append(_final([slices[step].column("verdict") for step in JUDGES]))
            elif field.name == "language":  # what the model says, else what the source claims
                columns.append(
                    pc.coalesce(slices["quality"].column("language").combine_chunks(), batch.column("language"))
                )
            elif field.name in _FOUND:
                columns.append(slices[_FOUND[field.name]].column(field.name).combine_chunks())
            else:
                columns.append(batch.column(field.name))
        yield pa.RecordBatch.from_arrays(columns, schema=DOCUMENT_SCHEMA)
        first += batch.num_rows
    for step, table in tables.items():
        if table.num_rows != first:
            _refuse(path, verdict_part(task.run, step, task.part), first)


def _final(verdicts: list[pa.ChunkedArray]) -> pa.Array:
    """The first verdict, in the order of the steps, that is not KEEP; null counts as not judged."""
    reasons = [pc.if_else(pc.equal(v, KEEP), pa.scalar(None, pa.string()), v) for v in verdicts]
    final = pc.coalesce(*reasons, pa.scalar(KEEP))
    return final.combine_chunks() if isinstance(final, pa.ChunkedArray) else final


def _refuse(documents: Path, verdicts: Path, row: int) -> None:
    raise CheckError(
        f"{verdicts}: does not line up with {documents} from row {row} on: they are of different runs. "
        "Run again from the step that wrote the verdicts"
    )
