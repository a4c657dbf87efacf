"""Decisions about one batch at a time, over record batches of anybody's pipeline, for any engine.

They are those of the recipe's steps quality, classify and decontaminate: the same functions of filters.text. Rows that
an earlier decision has dropped are passed by.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from filters.text.classify import DomainModel
from filters.text.decontaminate import CONTAMINATED, Unit, build_benchmarks, item_units
from filters.text.language import LanguageRule
from filters.text.pii import Replaced, replace_private
from filters.text.quality import judge
from pipelines.corpus.batches import alive, attached, column_or_null, text_of
from pipelines.corpus.plain import plain_records
from pipelines.corpus.read.records import Problem
from schemas.document import KEEP
from schemas.errors import InputError

__all__ = ["ContaminationJudge", "DomainPredictor", "judge_batch", "without_private"]


def judge_batch(
    batch: pa.RecordBatch, rules: Sequence[str], text: str = "text", language: LanguageRule | None = None
) -> pa.RecordBatch:
    """`batch` with `verdict` and `quality` set by the rule sets, for its rows that are still there.

    With a language rule `language` is set too, where a text was judged by it.
    """
    here = alive(batch)
    found = judge(text_of(batch, text).filter(pa.array(here)), rules, language=language)
    columns = {"verdict": found.verdict, "quality": found.quality}
    if language is not None:
        claimed = column_or_null(batch, "language", pa.string()).filter(pa.array(here))
        columns["language"] = pc.coalesce(found.language, claimed)
    return attached(batch, columns, here)


def without_private(batch: pa.RecordBatch, kinds: Sequence[str], text: str = "text") -> tuple[pa.RecordBatch, Replaced]:
    """`batch` with placeholders in the texts of its rows that are still there, and what was replaced in them."""
    here = alive(batch)
    texts = text_of(batch, text)
    found = replace_private(texts.filter(pa.array(here)), kinds)
    return attached(batch, {text: found.texts.cast(texts.type)}, here), found


class DomainPredictor:
    """A loaded model over batches: `domain` and `domain_score` for the rows that are still there."""

    def __init__(self, model: str | Path, text: str = "text") -> None:
        self._model = DomainModel.load(model)
        self._text = text

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """`batch` with both columns set."""
        here = alive(batch)
        found = self._model.predict(text_of(batch, self._text).filter(pa.array(here)))
        columns = {
            "domain": pa.array([domain for domain, _ in found], pa.string()),
            "domain_score": pa.array([score for _, score in found], pa.float32()),
        }
        return attached(batch, columns, here)


class ContaminationJudge:
    """Benchmark items over batches: `verdict`, `benchmark` and `matched` of the rows that hold one.

    `files` are pairs of a path to read and the name to give it. Raises InputError for a record that cannot be read
    and for a file without an item long enough to be searched for.
    """

    def __init__(self, files: Sequence[tuple[str, str]], shingle_words: int = 13, text: str = "text") -> None:
        units: list[Unit] = []
        for path, name in files:
            before = len(units)
            for record in plain_records(path):
                if isinstance(record, Problem):
                    raise record.error()
                units += item_units(record.fields, name, f"{name}#{record.line}")[0]
            if len(units) == before:
                raise InputError(
                    "no record has a text of 8 words or more: nothing could ever be found",
                    path=name,
                    todo="Give a jsonl or parquet file whose records hold the benchmark's texts",
                )
        self._benchmarks = build_benchmarks(units, shingle_words)
        self._text = text

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """`batch` with the three columns set."""
        here = alive(batch)
        texts = text_of(batch, self._text).filter(pa.array(here))
        found = self._benchmarks.search(texts)
        columns = {
            "verdict": [CONTAMINATED if n in found else KEEP for n in range(len(texts))],
            "benchmark": [found[n].item if n in found else None for n in range(len(texts))],
            "matched": [found[n].matched if n in found else None for n in range(len(texts))],
        }
        return attached(batch, {name: pa.array(values, pa.string()) for name, values in columns.items()}, here)
