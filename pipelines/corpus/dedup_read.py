"""Documents of one input file as dedup takes them: Arrow texts as they lie in Parquet, records one by one elsewhere.

What `pipelines.corpus.read.records.to_document` does to a record is done here to whole columns; a batch that needs
more (bytes that are not UTF-8) goes through it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from filters.text.dedup.sketch import document_digests, hexadecimal, normalise
from filters.text.dedup.tables import CODE, TEXT, profile_of_domain
from pipelines.corpus.dedup_tasks import DedupBatch
from pipelines.corpus.read.parquet import read_parquet
from pipelines.corpus.read.records import Document, Problem, Record, plain_value, to_document
from pipelines.corpus.read.step import ReadTask, read_records
from schemas.recipe import SourceConfig

__all__ = ["Rejected", "file_batches"]

BATCH_BYTES = 4 << 20  # of text in a batch, as far as a file's sizes tell
_MOST_ROWS = 1024


@dataclass(frozen=True, slots=True)
class Rejected:
    """A record that cannot be used."""

    problem: Problem


def file_batches(task: ReadTask, alone: bool = False) -> Iterator[DedupBatch | Rejected]:
    """The documents and problems of the one file of `task`, in its order. Memory: one batch.

    `alone` says that the run has no other source: then ids tell the same texts apart as exact hashes do.
    """
    if task.config.kind == "parquet":
        yield from _parquet_batches(task, alone)
        return
    yield from _collected(task, read_records(task), alone)


def _collected(task: ReadTask, found: Iterator[Document | Problem], alone: bool) -> Iterator[DedupBatch | Rejected]:
    """Documents in batches of at most BATCH_BYTES."""
    waiting: list[tuple[int, Document]] = []
    weight = 0
    for one in found:
        if isinstance(one, Problem):
            yield Rejected(one)
            continue
        waiting.append((int(one.origin.rpartition("#")[2]), one))
        weight += len(one.text)
        if weight >= BATCH_BYTES or len(waiting) == _MOST_ROWS:
            yield _of_documents(task.config, waiting, alone)
            waiting, weight = [], 0
    if waiting:
        yield _of_documents(task.config, waiting, alone)


def _of_documents(config: SourceConfig, documents: list[tuple[int, Document]], alone: bool) -> DedupBatch:
    profiles = np.array([profile_of_domain(document.source_domain) for _, document in documents], np.uint8)
    return DedupBatch(
        rows=np.array([line for line, _ in documents], np.int64),
        ids=pa.array([document.id for _, document in documents], pa.string()),
        texts=pa.array([document.text for _, document in documents], pa.large_string()),
        sources=_repeated(config.name, len(documents)),
        qualities=pa.nulls(len(documents), pa.float32()),
        profiles=profiles,
        source_ids=pa.array([document.source_id for _, document in documents], pa.string()),
        exact=_digests([document.id for _, document in documents]) if alone else None,
    )


def _digests(ids: list[str]) -> Any:
    return np.frombuffer(bytes.fromhex("".join(ids)), np.uint8).reshape(-1, 16)


def _repeated(value: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, pa.string()), count)


def _parquet_batches(task: ReadTask, alone: bool) -> Iterator[DedupBatch | Rejected]:
    """Rows of a Parquet file; a damaged file gives the rows before the damage and one problem, as `read_parquet`."""
    config, file = task.config, task.files[0]
    names = [config.text, config.id, config.domain_field]
    done = 0
    try:
        with pq.ParquetFile(file.path, pre_buffer=False) as opened:
            columns = sorted({name for name in names if name is not None} & set(opened.schema_arrow.names))
            for group in range(opened.num_row_groups):
                rows = _rows_at_once(opened.metadata.row_group(group))
                for batch in opened.iter_batches(rows, [group], columns, use_threads=False):
                    yield from _of_batch(task, batch, done, alone)
                    done += batch.num_rows
    except (pa.ArrowException, OSError):  # said by the reader that says it for every step, from the row it is at
        yield from _after(task, done, alone)


def _rows_at_once(group: Any) -> int:
    return int(np.clip(BATCH_BYTES * group.num_rows // max(1, group.total_byte_size), 1, _MOST_ROWS))


def _after(task: ReadTask, done: int, alone: bool) -> Iterator[DedupBatch | Rejected]:
    """What the record reader makes of the file behind row `done`."""
    config, file = task.config, task.files[0]
    records = (one for one in read_parquet(file.path, config) if not isinstance(one, Record) or one.line > done)
    yield from _collected(task, (_document(task, record) for record in records), alone)


def _document(task: ReadTask, record: Record | Problem) -> Document | Problem:
    file = task.files[0]
    return to_document(record, task.config, file.path, file.relative) if isinstance(record, Record) else record


def _of_batch(task: ReadTask, batch: pa.RecordBatch, before: int, alone: bool) -> Iterator[DedupBatch | Rejected]:
    """One record batch whose first row follows row number `before`."""
    config = task.config
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    texts = columns[config.text]
    ids = columns.get(config.id) if config.id else None
    domains = columns.get(config.domain_field) if config.domain_field else None
    if pa.types.is_dictionary(texts.type) or pa.types.is_string_view(texts.type):
        texts = texts.cast(pa.large_string())
    if not (_whole(texts) and _whole(ids) and _whole(domains)):
        rows = zip(*(_decoded(column) for column in columns.values()), strict=True)
        records = (Record(before + n + 1, dict(zip(columns, row, strict=True))) for n, row in enumerate(rows))
        yield from _collected(task, (_document(task, record) for record in records), alone)
        return
    normalised = normalise(texts)
    usable = normalised.ends > normalised.starts
    for row in np.flatnonzero(~usable).tolist():
        problem = _document(task, Record(before + row + 1, {config.text: texts[row].as_py()}))
        if isinstance(problem, Problem):
            yield Rejected(problem)
    rows_used = np.flatnonzero(usable)
    if not len(rows_used):
        return
    if len(rows_used) < batch.num_rows:
        normalised = normalised.taken(rows_used)
    chosen = pa.array(rows_used)
    digests = document_digests(normalised, config.name)
    yield DedupBatch(
        rows=rows_used + before + 1,
        ids=hexadecimal(digests),
        texts=texts,
        sources=_repeated(config.name, len(rows_used)),
        qualities=pa.nulls(len(rows_used), pa.float32()),
        profiles=_profiles(domains, len(texts))[rows_used],
        source_ids=_source_ids(ids, len(texts)).take(chosen),
        normalised=normalised,
        exact=digests if alone else None,
    )


def _whole(column: pa.Array | None) -> bool:
    """Whether a column of strings holds valid UTF-8 (Arrow does not look at what a file holds)."""
    if column is None or not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return True
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _decoded(column: pa.Array) -> list[Any]:
    try:
        values: list[Any] = column.to_pylist()
    except UnicodeDecodeError:
        binary = column.cast(pa.large_binary()).to_pylist()
        values = [None if value is None else value.decode("utf-8", "surrogateescape") for value in binary]
    return values


def _profiles(domains: pa.Array | None, count: int) -> Any:
    if domains is None or not (pa.types.is_string(domains.type) or pa.types.is_large_string(domains.type)):
        values = [None] * count if domains is None else domains.to_pylist()
        return np.array([profile_of_domain(v if isinstance(v, str) else None) for v in values], np.uint8)
    is_code = pc.fill_null(pc.equal(domains, "code"), False).to_numpy(zero_copy_only=False)
    return np.where(is_code, CODE, TEXT).astype(np.uint8)


def _source_ids(ids: pa.Array | None, count: int) -> pa.Array:
    """Ids as the input calls them: strings as they are (an empty one is none), other values as records have them."""
    if ids is None:
        return pa.nulls(count, pa.string())
    if pa.types.is_string(ids.type) or pa.types.is_large_string(ids.type):
        return pc.if_else(pc.equal(ids, ""), pa.scalar(None, ids.type), ids).cast(pa.string())
    return pa.array([plain_value(value) for value in ids.to_pylist()], pa.string())
