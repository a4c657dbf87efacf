"""What dedup keeps between its stages: sketches of all documents, shingle sets of the candidates. No text.

Both are Arrow IPC files with the scheme in their metadata. A file that is cut short, of another scheme, or that has
not the rows its task reported is refused by name: a part is never taken for the whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from filters.text.dedup.sketch import Sketches
from filters.text.dedup.verify import ShingleSets, jaccard_pairs
from schemas.errors import CheckError
from schemas.files import atomic_path

__all__ = ["HashFile", "ShingleStore", "SketchTable", "SketchWriter", "read_sketches", "write_shingles"]

_BATCH_ROWS = 65_536


def _sketch_schema(scheme: dict[str, str]) -> pa.Schema:
    return pa.schema(
        [
            ("row", pa.int64()),  # position in the file that the documents lie in
            ("id", pa.string()),
            ("source_id", pa.string()),  # null but where verdicts alone are written
            ("source", pa.string()),
            ("quality", pa.float32()),
            ("exact", pa.binary(16)),
            ("bytes", pa.int64()),
            ("shingles", pa.int64()),
            ("signature", pa.binary(4 * int(scheme["permutations"]))),
        ],
        metadata=scheme,
    )


class SketchWriter:
    """Collects batches of sketches and writes them as one file."""

    def __init__(self, scheme: dict[str, str]) -> None:
        self._schema = _sketch_schema(scheme)
        self._batches: list[pa.RecordBatch] = []

    def add(
        self,
        rows: npt.NDArray[np.int64],
        ids: pa.Array,
        sources: pa.Array,
        qualities: pa.Array,
        found: Sketches,
        source_ids: pa.Array | None = None,
    ) -> None:
        """One batch: everything has the same number of rows."""
        self._batches.append(
            pa.record_batch(
                [
                    pa.array(rows, pa.int64()),
                    ids.cast(pa.string()),
                    pa.nulls(len(ids), pa.string()) if source_ids is None else source_ids.cast(pa.string()),
                    sources.cast(pa.string()),
                    qualities.cast(pa.float32()),
                    _fixed(found.exact, 16),
                    pa.array(found.sizes, pa.int64()),
                    pa.array(found.shingles, pa.int64()),
                    _fixed(found.signatures.view(np.uint8), 4 * found.signatures.shape[1]),
                ],
                schema=self._schema,
            )
        )

    def write(self, path: Path) -> int:
        """Write the file atomically; returns its rows."""
        table = pa.Table.from_batches(self._batches, self._schema)
        with (
            atomic_path(path) as temporary,
            pa.OSFile(str(temporary), "wb") as sink,
            pa.ipc.new_file(sink, self._schema) as writer,
        ):
            writer.write_table(table, max_chunksize=_BATCH_ROWS)
        return int(table.num_rows)


def _fixed(values: npt.NDArray[np.uint8], width: int) -> pa.Array:
    """A fixed-size binary column over the bytes of an array."""
    return pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(width), len(values), [None, pa.py_buffer(np.ascontiguousarray(values))]
    )


@dataclass(frozen=True, slots=True)
class SketchTable:
    """The sketches of all files together, in the order of the files. Every array has shape (n, …)."""

    parts: npt.NDArray[np.int64]  # which file
    rows: npt.NDArray[np.int64]  # which row of it
    ids: pa.Array
    source_ids: pa.Array
    sources: pa.Array
    qualities: npt.NDArray[np.float32]
    sketches: Sketches


def read_sketches(paths: Sequence[Path], counts: Sequence[int], scheme: dict[str, str]) -> SketchTable:
    """Read sketch files whole; file p has counts[p] rows. Memory: about 4 * permutations + 120 bytes a document.

    Raises CheckError naming the file when it is missing, cut short, of another scheme, or has other rows.
    """
    tables = [_read(path, count, scheme) for path, count in zip(paths, counts, strict=True)]
    whole = pa.concat_tables([table for table, _ in tables]) if tables else _sketch_schema(scheme).empty_table()
    width = int(scheme["permutations"])
    rows = whole.num_rows

    def numbers(name: str) -> npt.NDArray[np.int64]:
        return np.asarray(whole.column(name).to_numpy(), np.int64)

    return SketchTable(
        parts=np.repeat(np.arange(len(tables), dtype=np.int64), [table.num_rows for table, _ in tables]),
        rows=numbers("row"),
        ids=_one(whole.column("id")),
        source_ids=_one(whole.column("source_id")),
        sources=_one(whole.column("source")),
        qualities=np.asarray(whole.column("quality").fill_null(0).to_numpy(), np.float32),
        sketches=Sketches(
            exact=_bytes_of(whole.column("exact"), 16).reshape(rows, 16),
            signatures=_bytes_of(whole.column("signature"), 4 * width).view(np.uint32).reshape(rows, width),
            shingles=numbers("shingles"),
            sizes=numbers("bytes"),
        ),
    )


def _read(path: Path, count: int, scheme: dict[str, str]) -> tuple[pa.Table, pa.MemoryMappedFile]:
    try:
        source = pa.memory_map(str(path))
        table = pa.ipc.open_file(source).read_all()
    except (pa.ArrowInvalid, OSError) as error:
        raise CheckError(f"{path}: missing or cut short ({error}). Run the step dedup again") from None
    found = {key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()}
    if found != scheme:
        raise CheckError(
            f"{path}: signatures of scheme {found}, expected {scheme}. They cannot be mixed: run the step dedup again"
        )
    if table.num_rows != count:
        raise CheckError(f"{path}: {table.num_rows} rows, its task wrote {count}. Run the step dedup again")
    return table, source


def _one(column: pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks()
    return pa.concat_arrays(whole.chunks) if isinstance(whole, pa.ChunkedArray) else whole


def _bytes_of(column: pa.ChunkedArray, width: int) -> npt.NDArray[np.uint8]:
    """The bytes of a fixed-size binary column, copied once, shape (rows * width,)."""
    out = np.empty(len(column) * width, np.uint8)
    at = 0
    for chunk in column.chunks:
        size = len(chunk) * width
        if size:
            start = chunk.offset * width
            out[at : at + size] = np.frombuffer(chunk.buffers()[1], np.uint8)[start : start + size]
        at += size
    return out


class HashFile:
    """The low halves of shingle hashes in a file, read a span at a time: no memory grows with the text.

    32 bits tell the shingles of two documents apart well enough: of two sets of n shingles that differ in a tenth,
    about n**2 / 4e11 look common and are not: that changes a similarity by less than 3e-6 for a million words.
    """

    def __init__(self, path: Path, count: int) -> None:
        """Raises CheckError when the file has not exactly `count` hashes."""
        size = path.stat().st_size if path.is_file() else -1
        if size != 4 * count:
            raise CheckError(f"{path}: {size} bytes, expected {4 * count}: cut short. Run the step dedup again")
        self._file = path.open("rb", buffering=0)

    def __enter__(self) -> HashFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self, start: int, end: int) -> npt.NDArray[np.uint32]:
        """The hashes start..end of the file, as an array of its own."""
        out = np.empty(end - start, np.uint32)
        self._file.seek(4 * start)
        view, done = out.view(np.uint8).data, 0
        while done < len(view):
            done += self._file.readinto(view[done:])
        return out


_SHINGLES = pa.schema([("row", pa.int64()), ("shingles", pa.large_list(pa.field("item", pa.uint64(), nullable=False)))])


def write_shingles(path: Path, batches: Iterator[tuple[npt.NDArray[np.int64], ShingleSets]]) -> int:
    """Write (row numbers, sets) batch by batch, atomically; returns the number of sets."""
    count = 0
    with (
        atomic_path(path) as temporary,
        pa.OSFile(str(temporary), "wb") as sink,
        pa.ipc.new_file(sink, _SHINGLES) as writer,
    ):
        for rows, sets in batches:
            column = pa.LargeListArray.from_arrays(pa.array(sets.bounds), pa.array(sets.flat, pa.uint64()))
            writer.write_batch(pa.record_batch([pa.array(rows), column.cast(_SHINGLES.field(1).type)], _SHINGLES))
            count += len(rows)
    return count


class ShingleStore:
    """Memory-mapped shingle files: measures pairs of documents, one pair of record batches at a time."""

    def __init__(self) -> None:
        self._sets: list[ShingleSets] = []
        self._keep: list[pa.MemoryMappedFile] = []
        self._members: list[npt.NDArray[np.int64]] = []

    def add(self, path: Path, members: npt.NDArray[np.int64]) -> None:
        """Open one file; its sets belong to the documents `members`, in order. Raises CheckError when it has others."""
        try:
            source = pa.memory_map(str(path))
            reader = pa.ipc.open_file(source)
            batches = [reader.get_batch(index) for index in range(reader.num_record_batches)]
        except (pa.ArrowInvalid, OSError) as error:
            raise CheckError(f"{path}: missing or cut short ({error}). Run the step dedup again") from None
        self._keep.append(source)
        at = 0
        for batch in batches:
            column = batch.column(1)
            self._sets.append(ShingleSets(column.values.to_numpy(), column.offsets.to_numpy()))
            self._members.append(members[at : at + batch.num_rows])
            at += batch.num_rows
        if at != len(members):
            raise CheckError(f"{path}: {at} shingle sets, expected {len(members)}. Run the step dedup again")

    def similarities(self, pairs: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Exact Jaccard similarity of pairs (m, 2) of documents that were added. Shape (m,)."""
        members = np.concatenate(self._members) if self._members else np.empty(0, np.int64)
        chunk_of = np.repeat(np.arange(len(self._members)), [len(one) for one in self._members])
        index_of = np.concatenate([np.arange(len(one)) for one in self._members]) if self._members else members
        order = np.argsort(members, kind="stable")
        where = order[np.searchsorted(members[order], pairs)]
        chunks, indexes = chunk_of[where], index_of[where]
        out = np.empty(len(pairs), np.float64)
        groups = chunks[:, 0] * max(1, len(self._sets)) + chunks[:, 1]
        by_group = np.argsort(groups, kind="stable")
        edges = np.flatnonzero(np.diff(groups[by_group])) + 1
        for group in np.split(by_group, edges):
            if len(group):
                left, right = chunks[group[0]]
                out[group] = jaccard_pairs(self._sets[left], indexes[group, 0], self._sets[right], indexes[group, 1])
        return out
