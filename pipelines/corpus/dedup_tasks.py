"""The tasks of dedup: one file of documents at a time becomes sketches, and its candidates become shingle sets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from filters.text.dedup.sketch import Normalised, distinct, normalise, scheme_tag, sketch
from filters.text.dedup.tables import profile_of_domain
from filters.text.dedup.verify import ShingleSets
from pipelines.corpus.dedup_files import HashFile, SketchWriter, write_shingles
from pipelines.corpus.plain import plain_records
from pipelines.corpus.read.records import Problem, without_surrogates
from pipelines.corpus.tables import iterate_documents, read_verdicts
from schemas.errors import InputError
from schemas.files import atomic_path

__all__ = ["REFERENCE", "DedupBatch", "DedupTask", "shingle_task", "sketch_task"]

REFERENCE = "reference"  # what the source of reference documents is called
_BATCH_ROWS = 4096
_BATCH_CHARACTERS = 16 << 20  # of reference texts held at once
_GROUP_HASHES = 4 << 20  # of candidates held at once: 32 MB


@dataclass(frozen=True, slots=True)
class DedupTask:
    """One file of documents to sketch or to shingle: partition `part` of the run, or a reference file."""

    run: str
    part: int
    reference: str | None
    folder: str
    shingle_words: int
    permutations: int

    def sketches(self) -> Path:
        """Where the sketches go."""
        return Path(self.folder, f"sketches-{self._name()}.arrow")

    def hashes(self) -> Path:
        """Where the shingle hashes of all documents go, their low 32 bits in the order of the sketches."""
        return Path(self.folder, f"hashes-{self._name()}.u32")

    def wanted(self) -> Path:
        """Which sketches are candidates: for each, where its hashes begin and end (numpy array)."""
        return Path(self.folder, f"candidates-{self._name()}.npy")

    def shingles(self) -> Path:
        """Where the shingle sets of the candidates go."""
        return Path(self.folder, f"shingles-{self._name()}.arrow")

    def batches(self) -> Iterator[DedupBatch]:
        """The documents of the file, in order, text included."""
        return _batches(self)

    def _name(self) -> str:
        return f"{'part' if self.reference is None else REFERENCE}-{self.part:05d}"


@dataclass(frozen=True, slots=True)
class DedupBatch:
    """Documents of one batch that take part; all of the same length."""

    rows: npt.NDArray[np.int64]
    ids: pa.Array
    texts: pa.Array
    sources: pa.Array
    qualities: pa.Array
    profiles: npt.NDArray[np.uint8]
    source_ids: pa.Array | None = None
    normalised: Normalised | None = None
    exact: npt.NDArray[np.uint8] | None = None  # other exact hashes than the texts' own


def _batches(task: DedupTask) -> Iterator[DedupBatch]:
    """The documents of a task, in order, text included."""
    if task.reference is not None:
        yield from _reference_batches(task.reference)
        return
    quality = read_verdicts(task.run, "quality", task.part, ["quality"]).column("quality")
    columns = ["id", "text", "source", "source_domain"]
    for first, batch, alive in iterate_documents(task.run, task.part, columns, after=("quality",), rows=_BATCH_ROWS):
        rows = np.flatnonzero(alive)
        if not len(rows):
            continue
        chosen = batch if len(rows) == batch.num_rows else batch.filter(pa.array(alive))
        domains = chosen.column("source_domain").to_pylist()
        yield DedupBatch(
            rows=rows + first,
            ids=chosen.column("id"),
            texts=chosen.column("text"),
            sources=chosen.column("source"),
            qualities=quality.take(pa.array(rows + first)).combine_chunks(),
            profiles=np.array([profile_of_domain(domain) for domain in domains], np.uint8),
        )


def _reference_batches(path: str) -> Iterator[DedupBatch]:
    """Records of a reference file: `text` (a string), `id` when there is one, else path#row."""
    texts: list[str] = []
    ids: list[str] = []
    domains: list[str | None] = []
    first = weight = 0

    def batch() -> DedupBatch:
        return DedupBatch(
            rows=np.arange(first, first + len(texts), dtype=np.int64),
            ids=pa.array(ids, pa.string()),
            texts=pa.array(texts, pa.large_string()),
            sources=pa.array([REFERENCE] * len(texts), pa.string()),
            qualities=pa.nulls(len(texts), pa.float32()),
            profiles=np.array([profile_of_domain(domain) for domain in domains], np.uint8),
        )

    for record in plain_records(path):
        if isinstance(record, Problem):
            raise record.error()
        text = record.fields.get("text")
        if not isinstance(text, str):
            raise InputError(
                f"a reference record needs a string here, received {type(text).__name__}",
                path=path,
                line=record.line,
                field="text",
                todo="Give dedup.against a jsonl or parquet file with a column 'text'",
            )
        texts.append(without_surrogates(text)[0])
        ids.append(str(record.fields.get("id") or f"{path}#{record.line}"))
        domain = record.fields.get("source_domain") or record.fields.get("domain")
        domains.append(domain if isinstance(domain, str) else None)
        weight += len(text)
        if len(texts) == _BATCH_ROWS or weight >= _BATCH_CHARACTERS:
            yield batch()
            first += len(texts)
            texts, ids, domains, weight = [], [], [], 0
    if texts:
        yield batch()


def sketch_task(task: DedupTask) -> dict[str, Any]:
    """Sketch the documents of one file. Memory: one row group of text, and the sketches of the file."""
    writer = SketchWriter(scheme_tag(task.permutations, task.shingle_words))
    with atomic_path(task.hashes()) as temporary, open(temporary, "wb") as sink:
        for batch in task.batches():
            found = sketch(
                batch.normalised or normalise(batch.texts),
                batch.profiles,
                shingle_words=task.shingle_words,
                permutations=task.permutations,
                exact=batch.exact,
            )
            writer.add(batch.rows, batch.ids, batch.sources, batch.qualities, found, batch.source_ids)
            if found.hashes is not None:
                sink.write(found.hashes.astype(np.uint32).data)
    return {"documents": writer.write(task.sketches())}


def _groups(spans: npt.NDArray[np.int64]) -> Iterator[npt.NDArray[np.int64]]:
    """Cut (row, begin, end) into groups of _BATCH_ROWS rows and _GROUP_HASHES hashes at most, but one row at least."""
    total = np.cumsum(spans[:, 2] - spans[:, 1])
    first = 0
    while first < len(spans):
        before = int(total[first - 1]) if first else 0
        last = int(np.searchsorted(total, before + _GROUP_HASHES, "right"))
        last = min(max(last, first + 1), first + _BATCH_ROWS)
        yield spans[first:last]
        first = last


def shingle_task(task: DedupTask) -> dict[str, Any]:
    """Write the shingle sets of the candidates of one file. Memory: _GROUP_HASHES of them, or one document's."""
    wanted = np.load(task.wanted(), allow_pickle=False)
    with HashFile(task.hashes(), int(wanted[-1, 2])) as hashes:

        def batches() -> Iterator[tuple[npt.NDArray[np.int64], ShingleSets]]:
            for spans in _groups(wanted[:-1]):
                sets = [distinct(hashes.read(start, end)).astype(np.uint64) for _, start, end in spans.tolist()]
                yield np.ascontiguousarray(spans[:, 0]), ShingleSets.of(sets)

        return {"documents": write_shingles(task.shingles(), batches())}
