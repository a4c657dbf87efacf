"""The step `quality`: every document gets a verdict by the recipe's rule sets and a score."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from filters.text.quality import judge
from pipelines.context import RunContext, StepOutput
from pipelines.corpus.tables import (
    VERDICT_SCHEMAS,
    count_verdicts,
    documents_part,
    iterate_batches,
    verdict_part,
    write_part,
)
from schemas.document import KEEP

__all__ = ["QualityTask", "judge_part", "step"]


@dataclass(frozen=True, slots=True)
class QualityTask:
    """One partition: where its documents lie, where its verdicts go, and the rule sets."""

    documents: str
    verdicts: str
    rules: tuple[str, ...]


def step(context: RunContext) -> StepOutput:
    """Judge all documents; writes `verdicts/quality/part-k`, row-aligned with `documents/part-k`."""
    recipe = context.recipe
    tasks = [
        QualityTask(
            str(documents_part(context.run, part)),
            str(verdict_part(context.run, "quality", part)),
            tuple(recipe.quality.rules),
        )
        for part in range(recipe.engine.partitions)
    ]
    results = context.engine.map(judge_part, tasks, label="quality", progress=context.progress)
    dropped: Counter[str] = Counter()
    for result in results:
        dropped.update(result["verdicts"])
    kept = dropped.pop(KEEP, 0)
    counts = {
        "documents_in": kept + sum(dropped.values()),
        "kept": kept,
        "dropped": dict(sorted(dropped.items())),
    }
    return StepOutput([verdict_part(context.run, "quality", part) for part in range(len(tasks))], counts)


def judge_part(task: QualityTask) -> dict[str, Any]:
    """Judge one partition, a batch at a time; returns how often each verdict was given."""
    verdicts: Counter[str] = Counter()

    def judged() -> Iterator[pa.RecordBatch]:
        for batch in iterate_batches(task.documents, ["id", "text"], rows=1024):
            found = judge(batch.column("text"), task.rules)
            verdicts.update(count_verdicts(found.verdict))
            columns = [batch.column("id"), found.verdict, found.quality]
            yield pa.RecordBatch.from_arrays(columns, schema=VERDICT_SCHEMAS["quality"])

    write_part(task.verdicts, VERDICT_SCHEMAS["quality"], judged())
    return {"verdicts": dict(verdicts)}
