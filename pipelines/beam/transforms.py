"""Composite transforms for anyone's Beam pipeline, over PCollections of pyarrow RecordBatches.

Batches have the columns `id` and `text`; every other column passes through. A transform judges the rows that are still
there and writes what it found into columns (`verdict`, `quality`, `cluster`, `domain`, …). Rows that it drops are
removed and counted (metrics of the namespace "datamix"); with `keep_dropped=True` they stay, with the reason in
`verdict`, and later transforms pass them by. Decisions are those of a recipe's steps: the same pure functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.metrics.metric import Metrics

from pipelines.beam.storage import local_copy, spool_folder
from pipelines.beam.twopass import Reference, TwoPass
from pipelines.corpus.batch_judges import ContaminationJudge, DomainPredictor, judge_batch
from pipelines.corpus.batches import alive, only
from pipelines.corpus.batchwise import DedupWhole, MixtureWhole
from schemas.document import KEEP

__all__ = ["NAMESPACE", "Classify", "Decontaminate", "Deduplicate", "FilterQuality", "Kept", "Reweight"]

NAMESPACE = "datamix"
Batches = beam.PTransform[Any, Any]


class FilterQuality(Batches):
    """Judge texts by rule sets (gopher, gopher-repetition, c4, fineweb, code, formula); sets `verdict`, `quality`.

    No shuffle: stays inside the fused stage. Cost: 8 MB of text a CPU second with all rule sets.
    """

    def __init__(
        self, rules: Sequence[str] = ("gopher", "code", "formula"), *, text: str = "text", keep_dropped: bool = False
    ) -> None:
        super().__init__()
        self.rules, self.text, self.keep_dropped = tuple(rules), text, keep_dropped

    def expand(self, batches: Any) -> Any:
        """PCollection of RecordBatch to the same."""
        rules, text = self.rules, self.text
        judged = batches | "Judge" >> beam.Map(lambda b: judge_batch(b, rules, text)).with_output_types(pa.RecordBatch)
        return judged | "Count" >> _CountDrops("quality", self.keep_dropped)


class Deduplicate(Batches):
    """Exact and near duplicates; sets `verdict`, `cluster`, `similarity` and `duplicate_of`.

    Of a cluster the row of best `quality` stays, then the longest, then the one of smallest id; a column
    `source_domain` with the value "code" keeps punctuation apart. Rows of `reference` (another PCollection of batches)
    come first: they are never removed nor given out, and name themselves in `duplicate_of`.

    Ids, signatures (700 bytes a document) and places cross one shuffle, to one worker that decides. The text of a
    foreign PCollection exists nowhere but in the batches, so each batch is written once to `spool` (default: the
    pipeline's temp_location, else a local temporary folder) and read again for the result, candidates twice. `spool`
    must be seen by all workers. `partitions` is that of a recipe whose decisions are to be met in every detail.
    """

    def __init__(
        self,
        threshold: float = 0.8,
        *,
        shingle_words: int = 5,
        permutations: int = 128,
        partitions: int = 1,
        text: str = "text",
        id: str = "id",
        reference: Any = None,
        spool: str | None = None,
        keep_dropped: bool = False,
    ) -> None:
        super().__init__()
        self.settings = {
            "threshold": threshold,
            "shingle_words": shingle_words,
            "permutations": permutations,
            "partitions": partitions,
            "text": text,
            "id": id,
        }
        self.reference, self.spool, self.keep_dropped = reference, spool, keep_dropped

    def expand(self, batches: Any) -> Any:
        """PCollection of RecordBatch to the same."""
        folder = spool_folder(batches.pipeline.options, self.spool)
        whole = DedupWhole(**self.settings)  # type: ignore[arg-type]
        old = Reference(self.reference, DedupWhole(**self.settings, fixed=True)) if self.reference else None  # type: ignore[arg-type]
        found = batches | "TwoPass" >> TwoPass(whole, folder, old)
        return found | "Count" >> _CountDrops("dedup", self.keep_dropped)


class Classify(Batches):
    """Give every row a `domain` and a `domain_score` by a fasttext model (path on any of Beam's file systems).

    The model is loaded once a worker; its card.json beside it says how texts are prepared. No shuffle.
    """

    def __init__(self, model: str, *, text: str = "text") -> None:
        super().__init__()
        self.model, self.text = model, text

    def expand(self, batches: Any) -> Any:
        """PCollection of RecordBatch to the same."""
        return batches | "Predict" >> beam.ParDo(_Predict(self.model, self.text)).with_output_types(pa.RecordBatch)


class Decontaminate(Batches):
    """Drop rows that hold items of benchmark files; sets `verdict`, `benchmark` and `matched`. No shuffle.

    Every worker reads the files (jsonl or parquet, on any of Beam's file systems) and holds their index.
    """

    def __init__(
        self, benchmarks: Sequence[str], *, shingle_words: int = 13, text: str = "text", keep_dropped: bool = False
    ) -> None:
        super().__init__()
        self.benchmarks, self.shingle_words, self.text = tuple(benchmarks), shingle_words, text
        self.keep_dropped = keep_dropped

    def expand(self, batches: Any) -> Any:
        """PCollection of RecordBatch to the same."""
        search = beam.ParDo(_Search(self.benchmarks, self.shingle_words, self.text))
        found = batches | "Search" >> search.with_output_types(pa.RecordBatch)
        return found | "Count" >> _CountDrops("decontaminate", self.keep_dropped)


class Reweight(Batches):
    """Choose rows for a mixture by domain; sets `tokens`, `split` (train, heldout, unused) and `epochs`.

    `shares` are of tokens by `domain`; empty means in proportion to the supply. Tokens come from the column `tokens`,
    or are counted by the Hugging Face tokenizer folder `tokenizer` (one end-of-text token a document included). Ids,
    domains and counts cross the shuffle; the text goes by the spool, as in `Deduplicate`.
    """

    def __init__(
        self,
        shares: Mapping[str, float],
        budget_tokens: int,
        *,
        max_epochs: float = 4,
        heldout_share: float = 0.01,
        heldout_documents: int = 4,
        seed: int = 0,
        tokenizer: str | None = None,
        spool: str | None = None,
    ) -> None:
        super().__init__()
        from filters.text.mixing import MixtureWish

        self.wish = MixtureWish(dict(shares), budget_tokens, max_epochs, heldout_share, heldout_documents, seed)
        self.tokenizer, self.spool = tokenizer, spool

    def expand(self, batches: Any) -> Any:
        """PCollection of RecordBatch to the same."""
        folder = spool_folder(batches.pipeline.options, self.spool)
        count = _TokenCount(self.tokenizer) if self.tokenizer else None
        return batches | "TwoPass" >> TwoPass(MixtureWhole(self.wish, count), folder)


class Kept(Batches):
    """Only the rows that are still there."""

    def expand(self, batches: Any) -> Any:
        """PCollection of RecordBatch to the same."""
        return batches | "Keep" >> beam.Map(lambda b: only(b, alive(b))).with_output_types(pa.RecordBatch)


class _CountDrops(Batches):
    """Counts rows in, kept and dropped by reason, and removes the dropped ones unless they are kept."""

    def __init__(self, step: str, keep_dropped: bool) -> None:
        super().__init__()
        self.step, self.keep_dropped = step, keep_dropped

    def expand(self, batches: Any) -> Any:
        """PCollection of RecordBatch to the same."""
        return batches | beam.ParDo(_Count(self.step, self.keep_dropped)).with_output_types(pa.RecordBatch)


class _Count(beam.DoFn):
    def __init__(self, step: str, keep_dropped: bool) -> None:
        self.step, self.keep_dropped = step, keep_dropped

    def process(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """Counters `STEP:VERDICT`."""
        for entry in batch.column("verdict").value_counts().to_pylist():
            Metrics.counter(NAMESPACE, f"{self.step}:{entry['values'] or KEEP}").inc(entry["counts"])
        yield batch if self.keep_dropped else only(batch, alive(batch))


class _Predict(beam.DoFn):
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


class _Search(beam.DoFn):
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


class _TokenCount:
    """Tokens of texts by a tokenizer folder, loaded when first used in a worker."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._tokenizer: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {"folder": self.folder, "_tokenizer": None}

    def __call__(self, texts: list[str]) -> list[int]:
        from pipelines.corpus.reweight import END_OF_TEXT_TOKENS
        from pipelines.synthesis.tokens import load_tokenizer

        if self._tokenizer is None:
            self._tokenizer = load_tokenizer(self.folder)
        return [count + END_OF_TEXT_TOKENS for count in self._tokenizer.count_batch(texts)]
