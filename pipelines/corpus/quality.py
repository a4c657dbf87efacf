"""The step `quality`: every document gets a verdict by the recipe's languages and rule sets, and a score."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from filters.text.language import LanguageRule
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
from schemas.files import sha256_file
from schemas.recipe import LanguageConfig

__all__ = ["QualityTask", "judge_part", "language_rule", "step"]


@dataclass(frozen=True, slots=True)
class QualityTask:
    """One partition: where its documents lie, where its verdicts go, the rule sets and the languages."""

    documents: str
    verdicts: str
    rules: tuple[str, ...]
    language: LanguageConfig | None = None


def step(context: RunContext) -> StepOutput:
    """Judge all documents; writes `verdicts/quality/part-k`, row-aligned with `documents/part-k`.

    Raises RecipeError when the language model does not have the labels to keep, InputError when it is no model.
    """
    recipe = context.recipe
    language = recipe.quality.language
    if language is not None:
        language_rule(language)  # a wrong model is said before any work
    tasks = [
        QualityTask(
            str(documents_part(context.run, part)),
            str(verdict_part(context.run, "quality", part)),
            tuple(recipe.quality.rules),
            language,
        )
        for part in range(recipe.engine.partitions)
    ]
    results = context.engine.map(judge_part, tasks, label="quality", progress=context.progress)
    dropped: Counter[str] = Counter()
    languages: Counter[str] = Counter()
    for result in results:
        dropped.update(result["verdicts"])
        languages.update(result["languages"])
    kept = dropped.pop(KEEP, 0)
    counts: dict[str, Any] = {
        "documents_in": kept + sum(dropped.values()),
        "kept": kept,
        "dropped": dict(sorted(dropped.items())),
    }
    if language is not None:
        counts["languages"] = dict(sorted(languages.items()))
        counts["language_model"] = {"digest": sha256_file(language.model)}
    return StepOutput([verdict_part(context.run, "quality", part) for part in range(len(tasks))], counts)


def language_rule(config: LanguageConfig) -> LanguageRule:
    """The model of a recipe, loaded."""
    return LanguageRule.load(config.model, config.keep, config.min_score)


def judge_part(task: QualityTask) -> dict[str, Any]:
    """Judge one partition, a batch at a time; returns how often each verdict and each language was given."""
    verdicts: Counter[str] = Counter()
    languages: Counter[str] = Counter()
    language = None if task.language is None else language_rule(task.language)

    def judged() -> Iterator[pa.RecordBatch]:
        for batch in iterate_batches(task.documents, ["id", "text"], rows=1024):
            found = judge(batch.column("text"), task.rules, language=language)
            verdicts.update(count_verdicts(found.verdict))
            languages.update(count_verdicts(found.language))
            columns = [batch.column("id"), found.verdict, found.quality, found.language]
            yield pa.RecordBatch.from_arrays(columns, schema=VERDICT_SCHEMAS["quality"])

    write_part(task.verdicts, VERDICT_SCHEMAS["quality"], judged())
    return {"verdicts": dict(verdicts), "languages": dict(languages)}
