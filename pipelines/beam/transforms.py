"""Composite transforms for anyone's Beam pipeline, over PCollections of pyarrow RecordBatches.

Batches have the columns `id` and `text`; every other column passes through. A transform judges the rows that are still
there and writes what it found into columns (`verdict`, `quality`, `cluster`, `domain`, …). Rows that it drops are
removed and counted (metrics of the namespace "datamix"); with `keep_dropped=True` they stay, with the reason in
`verdict`, and later transforms pass them by. Decisions are those of a recipe's steps: the same pure functions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import apache_beam as beam
import pyarrow as pa

from filters.text.dedup.decide import GIANT_CLUSTER
from filters.text.pii import PII_KINDS
from pipelines.beam.functions import CountDrops, JudgeQuality, Predict, ReplaceIn, Search
from pipelines.beam.storage import spool_folder
from pipelines.beam.twopass import Reference, TwoPass
from pipelines.corpus.batches import alive, only
from pipelines.corpus.batchwise import DedupWhole, MixtureWhole
from pipelines.corpus.token_counts import TokenCount
from schemas.errors import UsageError

__all__ = ["Classify", "Decontaminate", "Deduplicate", "FilterQuality", "Kept", "ReplacePrivate", "Reweight"]


@beam.typehints.with_input_types(pa.RecordBatch)
@beam.typehints.with_output_types(pa.RecordBatch)
class Batches(beam.PTransform[Any, Any]):
    """Batches in, batches out: anything else is refused when the pipeline is built."""


class FilterQuality(Batches):
    """Judge texts by rule sets (gopher, gopher-repetition, c4, fineweb, code, formula); sets `verdict`, `quality`.

    With `language_model` (a fasttext .bin on any of Beam's file systems) prose must have one of its labels `languages`
    with a score of `min_language_score`, and `language` is set. No shuffle: stays inside the fused stage. Cost: 8 MB
    of text a CPU second with all rule sets.
    """

    def __init__(
        self,
        rules: Sequence[str] = ("gopher", "code", "formula"),
        *,
        language_model: str | None = None,
        languages: Sequence[str] = (),
        min_language_score: float = 0.65,
        text: str = "text",
        keep_dropped: bool = False,
    ) -> None:
        super().__init__()
        if (language_model is None) != (not languages):
            raise UsageError("FilterQuality: language_model and languages go together. Give both or neither")
        self.judge = JudgeQuality(rules, language_model, languages, min_language_score, text)
        self.keep_dropped = keep_dropped

    def expand(self, batches: Any) -> Any:
        """PCollection of RecordBatch to the same."""
        judged = batches | "Judge" >> beam.ParDo(self.judge).with_output_types(pa.RecordBatch)
        return judged | "Count" >> _CountDrops("quality", self.keep_dropped)


class ReplacePrivate(Batches):
    """Replace e-mail addresses, public IP addresses, phone numbers and keys in `text` by placeholders.

    `kinds` are some of email, ip, phone, key. Only rows that are still there are changed, so apply it after the last
    decision; counters are `pii:KIND`. No shuffle. Cost: 10 MB of text a CPU second.
    """

    def __init__(self, kinds: Sequence[str] = PII_KINDS, *, text: str = "text") -> None:
        super().__init__()
        unknown = sorted(set(kinds) - set(PII_KINDS))
        if unknown:
            raise UsageError(f"ReplacePrivate: kind {unknown[0]!r} is unknown. Use some of {', '.join(PII_KINDS)}")
        self.kinds, self.text = tuple(kinds), text

    def expand(self, batches: Any) -> Any:
        """PCollection of RecordBatch to the same."""
        return batches | "Replace" >> beam.ParDo(ReplaceIn(self.kinds, self.text)).with_output_types(pa.RecordBatch)


class Deduplicate(Batches):
    """Exact and near duplicates; sets `verdict`, `cluster`, `similarity` and `duplicate_of`.

    Of a cluster the row of best `quality` stays, then the longest, then the one of smallest id; a column
    `source_domain` with the value "code" keeps punctuation apart. Rows of `reference` (another PCollection of batches)
    come first: they are never removed nor given out, and name themselves in `duplicate_of`. In a cluster of more than
    `largest_cluster` rows similarity by way of others removes nothing.

    Ids, signatures and places cross one shuffle, to one worker that decides (about 2 KB a document). The text of a
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
        largest_cluster: int = GIANT_CLUSTER,
    ) -> None:
        super().__init__()
        self.settings = {
            "threshold": threshold,
            "shingle_words": shingle_words,
            "permutations": permutations,
            "largest_cluster": largest_cluster,
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
        return batches | "Predict" >> beam.ParDo(Predict(self.model, self.text)).with_output_types(pa.RecordBatch)


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
        search = beam.ParDo(Search(self.benchmarks, self.shingle_words, self.text))
        found = batches | "Search" >> search.with_output_types(pa.RecordBatch)
        return found | "Count" >> _CountDrops("decontaminate", self.keep_dropped)


class Reweight(Batches):
    """Choose rows for a mixture by domain; sets `tokens`, `split` (train, heldout, unused) and `epochs`.

    `shares` are of tokens by `domain`; empty means in proportion to the supply. Tokens come from the column `tokens`,
    or are counted by the Hugging Face tokenizer folder `tokenizer` (one end-of-text token a document included). `more`
    are other fields of `filters.text.mixing.MixtureWish`: method ("temperature", "unimax"), source_shares, …. Ids,
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
        **more: Any,
    ) -> None:
        super().__init__()
        from filters.text.mixing import MixtureWish

        self.wish = MixtureWish(dict(shares), budget_tokens, max_epochs, heldout_share, heldout_documents, seed, **more)
        self.tokenizer, self.spool = tokenizer, spool

    def expand(self, batches: Any) -> Any:
        """PCollection of RecordBatch to the same."""
        folder = spool_folder(batches.pipeline.options, self.spool)
        count = TokenCount(self.tokenizer) if self.tokenizer else None
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
        return batches | "Rows" >> beam.ParDo(CountDrops(self.step, self.keep_dropped)).with_output_types(
            pa.RecordBatch
        )
