"""Documents on their way from the readers to the partitions: written once unsorted, read once in order.

Each task writes one Arrow IPC file of runs: batches that belong to one partition and are sorted by (id, origin). A
partition is then merged from all its runs by slices of memory-mapped files. Memory: SPILL_BYTES of text while
spilling, ids and origins of one partition plus MERGE_BYTES of text while merging.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, fields
from itertools import pairwise
from pathlib import Path
from types import TracebackType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.corpus.read.records import Document
from schemas.document import DOCUMENT_SCHEMA, partition_of
from schemas.files import atomic_path

__all__ = ["MERGE_BYTES", "SPILL_BYTES", "Run", "SpillWriter", "merge_runs"]

SPILL_BYTES = 32 << 20
MERGE_BYTES = 16 << 20
_ROW_BYTES = 300  # what a document costs beside its text, so that a million empty ones are bounded too

_COLUMNS = [field.name for field in fields(Document) if field.name != "replaced"]
SPILL_SCHEMA = pa.schema([DOCUMENT_SCHEMA.field(name) for name in _COLUMNS])
_ORDER = [("id", "ascending"), ("origin", "ascending")]

Run = tuple[str, int, int]  # path of a spill file, number of the batch in it, rows


class SpillWriter:
    """Collects documents and writes them as sorted runs; `close` makes the file whole and gives (partition, rows)."""

    def __init__(self, path: Path, partitions: int) -> None:
        self._partitions = partitions
        self._target = atomic_path(path)
        self._file = pa.OSFile(str(self._target.__enter__()), "wb")
        self._writer = pa.ipc.new_file(self._file, SPILL_SCHEMA)
        self._waiting: list[tuple[object, ...]] = []
        self._weight = 0
        self._runs: list[tuple[int, int]] = []

    def __enter__(self) -> SpillWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._flush()
            self._writer.close()
            self._file.close()
        finally:
            self._target.__exit__(kind, error, trace)

    @property
    def runs(self) -> list[tuple[int, int]]:
        """Partition and rows of each batch written, in file order; complete once the writer was left."""
        return self._runs

    def add(self, document: Document) -> None:
        """Take one document; every SPILL_BYTES the waiting ones are sorted and written."""
        self._waiting.append(astuple(document)[: len(_COLUMNS)])
        self._weight += len(document.text) + _ROW_BYTES
        if self._weight >= SPILL_BYTES:
            self._flush()

    def _flush(self) -> None:
        if not self._waiting:
            return
        columns = zip(*self._waiting, strict=True)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, SPILL_SCHEMA, strict=True)]
        self._waiting, self._weight = [], 0
        batch = pa.RecordBatch.from_arrays(arrays, schema=SPILL_SCHEMA)
        part = pa.array([partition_of(value, self._partitions) for value in batch.column("id").to_pylist()], pa.int64())
        keys = pa.table({"part": part, "id": batch.column("id"), "origin": batch.column("origin")})
        order = pc.sort_indices(keys, sort_keys=[("part", "ascending"), *_ORDER])
        batch, sorted_part = batch.take(order), part.take(order).to_numpy()
        starts = np.flatnonzero(np.diff(sorted_part, prepend=-1))
        for start, end in zip(starts, [*starts[1:], len(sorted_part)], strict=True):
            self._writer.write_batch(batch.slice(int(start), int(end - start)))
            self._runs.append((int(sorted_part[start]), int(end - start)))


def merge_runs(runs: list[Run]) -> Iterator[pa.RecordBatch]:
    """All rows of the runs of one partition, sorted by (id, origin), in DOCUMENT_SCHEMA, a bounded batch at a time."""
    if not runs:
        return
    files = {path: pa.ipc.open_file(pa.memory_map(path)) for path, _, _ in runs}
    batches = [files[path].get_batch(number) for path, number, _ in runs]
    ids = pa.chunked_array([batch.column("id") for batch in batches], pa.string())
    origins = pa.chunked_array([batch.column("origin") for batch in batches], pa.string())
    order = pc.sort_indices(pa.table({"id": ids, "origin": origins}), sort_keys=_ORDER).to_numpy()
    run_of = np.repeat(np.arange(len(batches)), [batch.num_rows for batch in batches])[order]
    sizes = np.concatenate([pc.binary_length(batch.column("text")).to_numpy() for batch in batches])[order] + _ROW_BYTES
    cuts = np.flatnonzero(np.diff(np.cumsum(sizes) // MERGE_BYTES, prepend=0))
    edges = np.unique(np.concatenate([[0], cuts, [len(order)]]))
    taken = np.zeros(len(batches), np.int64)
    for start, end in pairwise(edges):
        owners = run_of[start:end]
        counts = np.bincount(owners, minlength=len(batches))
        slices = [batches[r].slice(int(taken[r]), int(counts[r])) for r in np.flatnonzero(counts)]
        taken += counts
        together = pa.Table.from_batches(slices, batches[0].schema).combine_chunks()
        # The slices stand one after another; a stable sort of the owners says where each row of the order stands.
        position = np.empty(end - start, np.int64)
        position[np.argsort(owners, kind="stable")] = np.arange(end - start)
        yield from _complete(together.take(pa.array(position)))


def _complete(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """The rows with the columns that later steps fill, as nulls."""
    for field in DOCUMENT_SCHEMA:
        if field.name not in table.schema.names:
            table = table.append_column(field, pa.nulls(table.num_rows, field.type))
    yield from table.select(DOCUMENT_SCHEMA.names).cast(DOCUMENT_SCHEMA).to_batches()
