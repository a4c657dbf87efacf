"""Documents into a pipeline and out of it: files of any of Beam's file systems to record batches, and back."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import apache_beam as beam
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from apache_beam.io.filesystems import FileSystems
from apache_beam.metrics.metric import Metrics

from pipelines.beam.functions import NAMESPACE
from pipelines.beam.storage import is_local, local_copy, matching, spool_folder, upload, write_spool
from pipelines.corpus.batches import alive, column_or_null, part_of
from pipelines.corpus.read.jsonl import read_jsonl
from pipelines.corpus.read.parquet import read_parquet
from pipelines.corpus.read.paths import find_files
from pipelines.corpus.read.records import Document, Problem, to_document
from pipelines.corpus.read.spill import merge_runs
from pipelines.corpus.tables import part_name, write_part
from schemas.document import DOCUMENT_SCHEMA, KEEP
from schemas.recipe import SourceConfig

__all__ = ["SET_ASIDE", "ReadDocuments", "WriteDocuments", "WriteSetAside"]

SET_ASIDE = "set_aside"

BATCH_ROWS = 1000
BATCH_BYTES = 16 << 20
_COLUMNS = [field.name for field in DOCUMENT_SCHEMA if field.name in Document.__dataclass_fields__]


class ReadDocuments(beam.PTransform[Any, Any]):
    """Read jsonl (plain, gzip, zstandard) or parquet: gives `documents`, batches of DOCUMENT_SCHEMA, and `set_aside`.

        documents, set_aside = pipeline | ReadDocuments("gs://bucket/data/*.jsonl.gz")

    `path` is a file, a folder or a pattern of any file system that Beam knows (a folder of another file system ends
    in '/'); a local one is looked up when the pipeline is built, another one when it runs. `source` names the corpus:
    it enters the ids. `text`, `id` and `domain` are the keys or columns to read. A bad record is an element of
    `set_aside`, a dict of path, line, field, problem and received (see `WriteSetAside`), and is counted (metric
    `read:PROBLEM` of the namespace "datamix"), or ends the pipeline with its place when `on_error` is "fail". A remote
    file is copied to the worker first (disk: one file a worker thread).
    """

    def __init__(
        self,
        path: str,
        *,
        source: str = "input",
        kind: str | None = None,
        text: str = "text",
        id: str | None = "id",
        domain: str | None = None,
        on_error: str = "skip",
    ) -> None:
        super().__init__()
        found = kind or ("parquet" if path.endswith(".parquet") else "jsonl")
        self.config = SourceConfig.model_validate(
            {"name": source, "kind": found, "path": path, "text": text, "id": id, "domain_field": domain}
        )
        self.path, self.fail = path, on_error == "fail"

    def expand(self, pbegin: Any) -> Any:
        """Pipeline to the outputs `documents` (RecordBatch) and `set_aside` (dict)."""
        if is_local(self.path):
            found = [(file.path, file.relative) for file in find_files(self.config)]
            files = pbegin | "Files" >> beam.Create(found, reshuffle=False)
        else:
            files = pbegin | "Path" >> beam.Create([self.path], reshuffle=False) | "Files" >> beam.FlatMap(matching)
        read = beam.ParDo(_Read(self.config, self.fail)).with_output_types(pa.RecordBatch)
        spread = files | "Spread" >> beam.Reshuffle()
        return spread | "Read" >> read.with_outputs(SET_ASIDE, main="documents")


class _Read(beam.DoFn):
    def __init__(self, config: SourceConfig, fail: bool) -> None:
        self.config, self.fail = config, fail

    def process(self, element: tuple[str, str]) -> Iterable[Any]:
        """The batches of one file, and its bad records as tagged rows."""
        path, relative = element
        with local_copy(path) as near:
            rows: list[Document] = []
            size = 0
            for found in self._records(str(near), path, relative):
                if isinstance(found, Problem):
                    if self.fail:
                        raise found.error()
                    Metrics.counter(NAMESPACE, f"read:{found.problem}").inc()
                    yield beam.pvalue.TaggedOutput(SET_ASIDE, found.row())
                    continue
                rows.append(found)
                size += len(found.text)
                if len(rows) == BATCH_ROWS or size >= BATCH_BYTES:
                    yield _batch(rows)
                    rows, size = [], 0
            if rows:
                yield _batch(rows)

    def _records(self, near: str, path: str, relative: str) -> Iterator[Document | Problem]:
        reader = read_jsonl if self.config.kind == "jsonl" else read_parquet
        for record in reader(near, self.config):
            if isinstance(record, Problem):
                yield replace(record, path=path)  # not that of a copy
            else:
                yield to_document(record, self.config, path, relative)


class WriteSetAside(beam.PTransform[Any, Any]):
    """Write the bad records of `ReadDocuments` as one file of JSON lines, sorted; gives its path.

    The same bytes as `set_aside/read.jsonl` of a run. An empty file says that there were none. Memory of one worker:
    all of them, at most 600 bytes each.
    """

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path

    def expand(self, rows: Any) -> Any:
        """PCollection of dict to PCollection of str."""
        nothing = rows.pipeline | "File" >> beam.Create([(0, None)], reshuffle=False)
        keyed = rows | "Key" >> beam.Map(lambda row: (0, row))
        return (
            (keyed, nothing)
            | "Together" >> beam.Flatten()
            | "Meet" >> beam.GroupByKey()
            | "Write" >> beam.MapTuple(partial(_write_rows, self.path)).with_output_types(str)
        )


def _write_rows(path: str, _key: int, given: Iterable[dict[str, Any] | None]) -> str:
    rows = [row for row in given if row is not None]
    rows.sort(key=lambda row: (row["path"], row["line"] is None, row["line"] or 0))
    with tempfile.TemporaryDirectory(prefix="datamix-aside-") as folder:
        finished = Path(folder, "set_aside.jsonl")
        finished.write_bytes(b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows))
        upload(finished, path)
    return path


def _batch(rows: Sequence[Document]) -> pa.RecordBatch:
    """Documents as one batch; what later steps find out is null."""
    columns = [
        pa.array([getattr(row, field.name) for row in rows], field.type)
        if field.name in _COLUMNS
        else pa.nulls(len(rows), field.type)
        for field in DOCUMENT_SCHEMA
    ]
    return pa.RecordBatch.from_arrays(columns, schema=DOCUMENT_SCHEMA)


@beam.typehints.with_input_types(pa.RecordBatch)
class WriteDocuments(beam.PTransform[Any, Any]):
    """Write batches as `folder`/kept/part-k.parquet and `folder`/dropped/part-k.parquet; gives the paths written.

    A document goes to the partition of its id and is sorted there by (id, origin), so equal documents give equal
    files, on every runner and in whatever batches they come; parts that an earlier run with more partitions left are
    removed. Batches go by the spool (see `Deduplicate`); places of
    runs cross the shuffle. Memory of a worker: ids and origins of one partition and 16 MB of text.
    """

    def __init__(self, folder: str, *, partitions: int = 8, spool: str | None = None) -> None:
        super().__init__()
        self.folder, self.partitions, self.spool = folder, partitions, spool

    def expand(self, batches: Any) -> Any:
        """PCollection of RecordBatch to PCollection of str."""
        places = spool_folder(batches.pipeline.options, self.spool)
        nothing = [((kind, part), None) for kind in ("kept", "dropped") for part in range(self.partitions)]
        runs = batches | "Spool" >> beam.ParDo(_SpoolRuns(places, self.partitions))
        every = batches.pipeline | "EveryPart" >> beam.Create(nothing, reshuffle=False)
        return (
            (runs, every)
            | "Together" >> beam.Flatten()
            | "Meet" >> beam.GroupByKey()
            | "Write" >> beam.ParDo(_WritePart(self.folder, self.partitions)).with_output_types(str)
        )


@dataclass(frozen=True, slots=True)
class _Run:
    """Batch `number` of the spool file `place`: rows of one part in order."""

    place: str
    number: int
    rows: int


class _SpoolRuns(beam.DoFn):
    def __init__(self, folder: str, partitions: int) -> None:
        self.folder, self.partitions = folder, partitions

    def process(self, batch: pa.RecordBatch) -> Iterable[tuple[tuple[str, int], _Run | None]]:
        """Sort a batch into runs of one part each, and say where they lie."""
        columns = [column_or_null(batch, field.name, field.type) for field in DOCUMENT_SCHEMA]
        named = dict(zip(DOCUMENT_SCHEMA.names, columns, strict=True))
        for name, standing in (("source", ""), ("origin", ""), ("verdict", KEEP)):
            named[name] = named[name].fill_null(standing)
        whole = pa.RecordBatch.from_arrays(list(named.values()), schema=DOCUMENT_SCHEMA)
        kinds = ["kept" if here else "dropped" for here in alive(whole).tolist()]
        parts = [part_of(i, self.partitions) for i in whole.column("id").to_pylist()]
        keys = pa.table({"kind": kinds, "part": parts, "id": whole.column("id"), "origin": whole.column("origin")})
        order = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.schema.names]).to_numpy()
        pairs = [(kinds[n], parts[n]) for n in order.tolist()]
        edges = [n for n in range(len(pairs)) if n == 0 or pairs[n] != pairs[n - 1]]
        ordered = whole.take(pa.array(order))
        ends = [*edges[1:], len(pairs)]
        runs = [ordered.slice(start, end - start) for start, end in zip(edges, ends, strict=True)]
        if runs:
            place = write_spool(self.folder, runs, DOCUMENT_SCHEMA)
            for number, (start, run) in enumerate(zip(edges, runs, strict=True)):
                yield pairs[start], _Run(place, number, run.num_rows)


class _WritePart(beam.DoFn):
    def __init__(self, folder: str, partitions: int) -> None:
        self.folder, self.partitions = folder, partitions

    def process(self, element: tuple[tuple[str, int], Iterable[_Run | None]]) -> Iterable[str]:
        """Merge the runs of one part into its file; with part 0, remove what a run with more parts left."""
        (kind, part), given = element
        if part == 0:
            self._remove_stale(kind)
        runs = sorted((run for run in given if run is not None), key=lambda run: (run.place, run.number))
        target = FileSystems.join(self.folder, kind, part_name(part))
        with tempfile.TemporaryDirectory(prefix="datamix-part-") as folder:
            finished = Path(folder, part_name(part))
            with ExitStack() as copies:
                near = {place: str(copies.enter_context(local_copy(place))) for place in {run.place for run in runs}}
                write_part(
                    finished,
                    DOCUMENT_SCHEMA,
                    merge_runs([(near[run.place], run.number, run.rows) for run in runs]),
                )
            upload(finished, target)
        yield target

    def _remove_stale(self, kind: str) -> None:
        """Delete part files beyond the last one: readers of the folder would take them for this run's."""
        ours = {part_name(part) for part in range(self.partitions)}
        (found,) = FileSystems.match([FileSystems.join(self.folder, kind, "part-*.parquet")])
        stale = [entry.path for entry in found.metadata_list if entry.path.rpartition("/")[2] not in ours]
        if stale:
            FileSystems.delete(stale)
