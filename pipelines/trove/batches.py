"""Record batches in a datatrove pipeline, beside datatrove's own Documents.

A step of this package takes whatever comes: RecordBatches go through as they are; Documents are put together into
batches of `rows` and come out as Documents again, in order, with what the step found in their metadata.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from datatrove.data import Document
from datatrove.pipeline.base import PipelineStep

from pipelines.corpus.batches import alive, only
from schemas.document import KEEP

__all__ = ["FOUND", "METADATA", "BatchStep", "documents_of", "to_batches"]

METADATA = "metadata"  # column of a batch made of Documents: their metadata as JSON
FOUND = (
    *("verdict", "quality", "language", "domain", "domain_score", "cluster", "similarity", "duplicate_of"),
    *("tokens", "split", "epochs"),
)
"""Columns that steps set; they are metadata of a Document."""
_TYPES = {
    **dict.fromkeys(("quality", "domain_score", "similarity"), pa.float32()),
    "tokens": pa.int64(),
    "epochs": pa.int32(),
}
_GIVEN = (*FOUND, "source_domain", "origin", "source")


def to_batches(data: Iterable[Any] | None, rows: int) -> Iterator[pa.RecordBatch]:
    """What flows in a pipeline as record batches: batches as they are, Documents joined, `rows` at a time."""
    waiting: list[Document] = []
    for item in data or ():
        if isinstance(item, pa.RecordBatch):
            if waiting:
                yield _joined(waiting)
                waiting = []
            yield item
        else:
            waiting.append(item)
            if len(waiting) == rows:
                yield _joined(waiting)
                waiting = []
    if waiting:
        yield _joined(waiting)


def _joined(documents: list[Document]) -> pa.RecordBatch:
    columns: dict[str, pa.Array] = {
        "id": pa.array([str(d.id) for d in documents], pa.string()),
        "text": pa.array([d.text for d in documents], pa.large_string()),
        METADATA: pa.array([json.dumps(d.metadata, default=str) for d in documents], pa.string()),
    }
    for name in _GIVEN:
        values = [d.metadata.get(name) for d in documents]
        if any(value is not None for value in values):
            kind = _TYPES.get(name, pa.string())
            plain = [None if v is None or kind != pa.string() else str(v) for v in values]
            columns[name] = pa.array(plain if kind == pa.string() else values, kind)
    return pa.record_batch(columns)


def documents_of(batch: pa.RecordBatch) -> Iterator[Document]:
    """The rows of a batch as Documents; columns other than id, text and metadata become metadata."""
    for row in batch.to_pylist():
        text, name = row.pop("text"), row.pop("id")
        metadata = json.loads(row.pop(METADATA, None) or "{}")
        metadata.update({key: value for key, value in row.items() if value is not None})
        yield Document(text=text, id=name, metadata=metadata)


class BatchStep(PipelineStep):  # type: ignore[misc]
    """A step that looks at one batch at a time: subclasses say what becomes of it."""

    type = "datamix"

    def __init__(self, rows: int = 1000, keep_dropped: bool = False) -> None:
        super().__init__()
        self.rows, self.keep_dropped = rows, keep_dropped

    def process(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """`batch` with new columns."""
        raise NotImplementedError

    def run(self, data: Any, rank: int = 0, world_size: int = 1) -> Iterator[Any]:
        """See `PipelineStep.run`; dropped rows are counted by reason, and given on only with `keep_dropped`."""
        for batch in to_batches(data, self.rows):
            with self.track_time("batch"):
                done = self.process(batch)
                self.count(done)
            yield from self.given(done)

    def count(self, batch: pa.RecordBatch) -> None:
        """Statistics by verdict."""
        if "verdict" in batch.schema.names:
            for entry in batch.column("verdict").value_counts().to_pylist():
                self.stat_update(entry["values"] or KEEP, value=entry["counts"])

    def given(self, batch: pa.RecordBatch) -> Iterator[Any]:
        """What goes on: the batch, or its Documents where it was made of Documents."""
        batch = batch if self.keep_dropped else only(batch, alive(batch))
        if METADATA in batch.schema.names:
            yield from documents_of(batch)
        elif batch.num_rows:
            yield batch
