"""Two passes over batches with a decision between them that must see the whole corpus.

First pass: each batch is written to the spool as it stands, and a small table about its rows (ids, signatures,
counts) goes on with the batch's place. The tables of all batches meet at one worker, which decides. Second pass: each
batch is read from the spool by its place and gets its columns. So the text never crosses a shuffle; it costs one
write and one read of Arrow IPC (no compression, no parsing), and a worker holds one batch of it at a time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import pyarrow as pa

from pipelines.beam.storage import read_spool, write_spool
from pipelines.corpus.batches import alive, only
from pipelines.corpus.batchwise import Place, Whole

__all__ = ["Reference", "TwoPass"]


@dataclass(frozen=True)
class Reference:
    """Batches that take part in the decision and get nothing attached, with how they are summarised."""

    batches: Any
    whole: Whole


class TwoPass(beam.PTransform[Any, Any]):
    """Applies a `Whole`; gives all batches with their new columns, in no order."""

    def __init__(self, whole: Whole, spool: str, reference: Reference | None = None) -> None:
        super().__init__()
        self.whole, self.spool, self.reference = whole, spool, reference

    def expand(self, batches: Any) -> Any:
        """PCollection of RecordBatch to the same."""
        summaries = batches | "Spool" >> beam.ParDo(_Spool(self.whole, self.spool))
        if self.reference is not None:
            old = self.reference.batches | "SpoolReference" >> beam.ParDo(_Spool(self.reference.whole, self.spool))
            summaries = (summaries, old) | "WithReference" >> beam.Flatten()
        return (
            summaries
            | "Meet" >> beam.GroupByKey()
            | "Decide" >> beam.ParDo(_Decide(self.whole))
            | "Spread" >> beam.Reshuffle()
            | "Attach" >> beam.ParDo(_Attach(self.whole)).with_output_types(pa.RecordBatch)
        )


class _Spool(beam.DoFn):
    def __init__(self, whole: Whole, folder: str) -> None:
        self.whole, self.folder = whole, folder

    def process(self, batch: pa.RecordBatch) -> Iterable[tuple[int, tuple[Place, pa.RecordBatch]]]:
        """Write the batch, say where it lies and what it holds."""
        if batch.num_rows:
            place = write_spool(self.folder, [batch], batch.schema)
            yield 0, (place, self.whole.summarise(only(batch, alive(batch))))


class _Decide(beam.DoFn):
    def __init__(self, whole: Whole) -> None:
        self.whole = whole

    def process(self, element: tuple[int, Iterable[tuple[Place, pa.RecordBatch]]]) -> Any:
        """All summaries at once."""
        yield from self.whole.decide(sorted(element[1], key=lambda item: item[0]), read_spool)


class _Attach(beam.DoFn):
    def __init__(self, whole: Whole) -> None:
        self.whole = whole

    def process(self, element: tuple[Place, pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        """Read the batch again and set its columns."""
        place, columns = element
        for batch in read_spool(place):
            yield self.whole.attach(batch, columns)
