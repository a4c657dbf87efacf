"""Steps for anyone's datatrove pipeline that look at one batch at a time: quality, languages, domains, benchmarks, PII.

Decisions are those of a recipe: the same pure functions. Those that need the whole corpus are in
`pipelines.trove.stages`; they are given here too, so that one import serves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from datatrove.pipeline.base import PipelineStep

from filters.text.language import LanguageRule
from filters.text.pii import PII_KINDS
from pipelines.corpus.batch_judges import ContaminationJudge, DomainPredictor, judge_batch, without_private
from pipelines.trove.batches import BatchStep
from pipelines.trove.stages import (
    DedupDecide,
    DedupResult,
    DedupSketch,
    ReweightCount,
    ReweightDecide,
    ReweightResult,
)
from schemas.errors import UsageError

__all__ = [
    "Classify",
    "Decontaminate",
    "DedupDecide",
    "DedupResult",
    "DedupSketch",
    "FilterQuality",
    "ReadBatches",
    "ReplacePrivate",
    "ReweightCount",
    "ReweightDecide",
    "ReweightResult",
]


class ReadBatches(PipelineStep):  # type: ignore[misc]
    """Parquet files of a folder as record batches, file i in task i modulo the number of tasks."""

    name, type = "read batches", "datamix"

    def __init__(self, folder: str, columns: Sequence[str] | None = None, rows: int = 1000) -> None:
        super().__init__()
        self.folder, self.columns, self.rows = folder, columns, rows

    def run(self, data: Any, rank: int = 0, world_size: int = 1) -> Iterator[pa.RecordBatch]:
        """See `PipelineStep.run`."""
        if data:
            yield from data
        for path in sorted(Path(self.folder).glob("**/*.parquet"))[rank::world_size]:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(self.rows, columns=self.columns):
                    self.stat_update("rows", value=batch.num_rows)
                    yield batch


class FilterQuality(BatchStep):
    """Judge texts by rule sets (gopher, gopher-repetition, c4, fineweb, code, formula): `verdict` and `quality`.

    With `language_model` (path of a fasttext .bin) prose must have one of its labels `languages` with a score of
    `min_language_score`, and `language` is set.
    """

    name = "quality"

    def __init__(
        self,
        rules: Sequence[str] = ("gopher", "code", "formula"),
        *,
        language_model: str | None = None,
        languages: Sequence[str] = (),
        min_language_score: float = 0.65,
        rows: int = 1000,
        keep_dropped: bool = False,
    ) -> None:
        super().__init__(rows, keep_dropped)
        if (language_model is None) != (not languages):
            raise UsageError("FilterQuality: language_model and languages go together. Give both or neither")
        self.rules, self.model = tuple(rules), language_model
        self.languages, self.min_score = tuple(languages), min_language_score
        self._language: LanguageRule | None = None  # loaded in the worker: models cannot be pickled

    def process(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The columns."""
        if self.model is not None and self._language is None:
            self._language = LanguageRule.load(self.model, self.languages, self.min_score)
        return judge_batch(batch, self.rules, language=self._language)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_language": None}


class ReplacePrivate(BatchStep):
    """Replace e-mail addresses, public IP addresses, phone numbers and keys in `text` by placeholders.

    `kinds` are some of email, ip, phone, key; statistics count replacements by kind. Use it after the last decision.
    """

    name = "replace private"

    def __init__(self, kinds: Sequence[str] = PII_KINDS, *, rows: int = 1000, keep_dropped: bool = False) -> None:
        super().__init__(rows, keep_dropped)
        unknown = sorted(set(kinds) - set(PII_KINDS))
        if unknown:
            raise UsageError(f"ReplacePrivate: kind {unknown[0]!r} is unknown. Use some of {', '.join(PII_KINDS)}")
        self.kinds = tuple(kinds)

    def process(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with other texts."""
        changed, found = without_private(batch, self.kinds)
        for kind, count in sorted(found.counts().items()):
            self.stat_update(kind, value=count)
        return changed

    def count(self, batch: pa.RecordBatch) -> None:
        """Nothing is judged here."""


class Classify(BatchStep):
    """Give every text a `domain` and a `domain_score` by the fasttext model at `model`."""

    name = "classify"

    def __init__(self, model: str, *, rows: int = 1000, keep_dropped: bool = False) -> None:
        super().__init__(rows, keep_dropped)
        self.model = model
        self._predictor: DomainPredictor | None = None  # loaded in the worker: models cannot be pickled

    def process(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Both columns."""
        if self._predictor is None:
            self._predictor = DomainPredictor(self.model)
        return self._predictor(batch)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_predictor": None}


class Decontaminate(BatchStep):
    """Drop texts that hold items of the benchmark files: `verdict`, `benchmark` and `matched`."""

    name = "decontaminate"

    def __init__(
        self, benchmarks: Sequence[str], *, shingle_words: int = 13, rows: int = 1000, keep_dropped: bool = False
    ) -> None:
        super().__init__(rows, keep_dropped)
        self.benchmarks, self.shingle_words = tuple(benchmarks), shingle_words
        self._judge: ContaminationJudge | None = None  # made in the worker

    def process(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The three columns."""
        if self._judge is None:
            self._judge = ContaminationJudge([(path, path) for path in self.benchmarks], self.shingle_words)
        return self._judge(batch)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_judge": None}
