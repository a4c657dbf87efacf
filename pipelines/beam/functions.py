"""The functions that the transforms run on workers: each loads what it needs there, for models cannot be pickled."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack

import apache_beam as beam
import pyarrow as pa
from apache_beam.metrics.metric import Metrics

from filters.text.language import LanguageRule
from pipelines.beam.storage import local_copy
from pipelines.corpus.batch_judges import ContaminationJudge, DomainPredictor, judge_batch, without_private
from pipelines.corpus.batches import alive, only
from schemas.document import KEEP

__all__ = ["NAMESPACE", "CountDrops", "JudgeQuality", "Predict", "ReplaceIn", "Search"]

NAMESPACE = "datamix"
"""Of all metrics."""


class JudgeQuality(beam.DoFn):
    """Rule sets, and languages by a model, loaded once a worker."""

    def __init__(
        self, rules: Sequence[str], model: str | None, languages: Sequence[str], min_score: float, text: str
    ) -> None:
        self.rules, self.text = tuple(rules), text
        self.model, self.languages, self.min_score = model, tuple(languages), min_score
        self.language: LanguageRule | None = None

    def setup(self) -> None:
        """Load the language model; one of another file system is copied near first."""
        if self.model is not None and self.language is None:
            with local_copy(self.model, beside=("card.json",)) as path:
                self.language = LanguageRule.load(path, self.languages, self.min_score)

    def process(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """`verdict`, `quality`, and `language` where there is a model."""
        self.setup()
        yield judge_batch(batch, self.rules, self.text, self.language)


class ReplaceIn(beam.DoFn):
    """Placeholders for personal data and keys."""

    def __init__(self, kinds: Sequence[str], text: str) -> None:
        self.kinds, self.text = tuple(kinds), text

    def process(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """Counters `pii:KIND`."""
        changed, found = without_private(batch, self.kinds, self.text)
        for kind, count in found.counts().items():
            Metrics.counter(NAMESPACE, f"pii:{kind}").inc(count)
        yield changed


class CountDrops(beam.DoFn):
    """Counts the verdicts of `step`, and removes dropped rows unless they are kept."""

    def __init__(self, step: str, keep_dropped: bool) -> None:
        self.step, self.keep_dropped = step, keep_dropped

    def process(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """Counters `STEP:VERDICT`."""
        for entry in batch.column("verdict").value_counts().to_pylist():
            Metrics.counter(NAMESPACE, f"{self.step}:{entry['values'] or KEEP}").inc(entry["counts"])
        yield batch if self.keep_dropped else only(batch, alive(batch))


class Predict(beam.DoFn):
    """Domains by a model, loaded once a worker."""

    def __init__(self, model: str, text: str) -> None:
        self.model, self.text = model, text
        self.predictor: DomainPredictor | None = None

    def setup(self) -> None:
        """Load the model; a model of another file system is copied near first, with its card."""
        with local_copy(self.model, beside=("card.json",)) as path:
            self.predictor = DomainPredictor(path, self.text)

    def process(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """Both columns."""
        if self.predictor is None:
            self.setup()
        if self.predictor is not None:
            yield self.predictor(batch)


class Search(beam.DoFn):
    """Benchmark items, indexed once a worker."""

    def __init__(self, benchmarks: Sequence[str], shingle_words: int, text: str) -> None:
        self.benchmarks, self.shingle_words, self.text = benchmarks, shingle_words, text
        self.judge: ContaminationJudge | None = None

    def process(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """The three columns; the index is made for the first batch."""
        if self.judge is None:
            with ExitStack() as copies:
                files = [(str(copies.enter_context(local_copy(path))), path) for path in self.benchmarks]
                self.judge = ContaminationJudge(files, self.shingle_words, self.text)
        yield self.judge(batch)
