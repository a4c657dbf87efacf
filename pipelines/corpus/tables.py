"""The corpus half of a run folder: where its tables lie, and how every step reads and writes them.

`documents/part-k` holds the text. A step that judges documents writes `verdicts/STEP/part-k` with one row for every
row of `documents/part-k`, in the same order, so no join by id is ever needed and no text is copied. Files are Parquet
with fixed settings and row groups cut by bytes: equal rows give equal files, however they arrived in batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from schemas.document import KEEP
from schemas.errors import CheckError
from schemas.files import atomic_path

__all__ = [
    "JUDGES",
    "ROW_GROUP_BYTES",
    "ROW_GROUP_ROWS",
    "VERDICT_SCHEMAS",
    "alive_rows",
    "corpus_part",
    "count_verdicts",
    "documents_part",
    "iterate_batches",
    "iterate_documents",
    "part_name",
    "read_verdicts",
    "verdict_part",
    "write_part",
]

ROW_GROUP_BYTES = 64 << 20  # text bytes in a row group: what a reader or writer has to hold at once
ROW_GROUP_ROWS = 131_072

VERDICT_SCHEMAS: dict[str, pa.Schema] = {
    "quality": pa.schema(
        [
            ("id", pa.string()),
            ("verdict", pa.string()),
            ("quality", pa.float32()),
            ("language", pa.string()),  # by the language model; null when not judged
        ]
    ),
    "dedup": pa.schema(
        [
            ("id", pa.string()),
            ("verdict", pa.string()),  # null: dropped by an earlier step, not judged here
            ("cluster", pa.string()),  # id of the keeper of its cluster; null when alone
            ("similarity", pa.float32()),  # measured Jaccard similarity with `duplicate_of`
            ("duplicate_of", pa.string()),
        ]
    ),
    "classify": pa.schema([("id", pa.string()), ("domain", pa.string()), ("domain_score", pa.float32())]),
    "decontaminate": pa.schema(
        [("id", pa.string()), ("verdict", pa.string()), ("benchmark", pa.string()), ("matched", pa.string())]
    ),
}
JUDGES = tuple(step for step, schema in VERDICT_SCHEMAS.items() if "verdict" in schema.names)
"""Steps that can drop a document, in the order in which they run."""


def part_name(part: int) -> str:
    """File name of one partition."""
    return f"part-{part:05d}.parquet"


def documents_part(run: str | Path, part: int) -> Path:
    """Where the documents of one partition lie: DOCUMENT_SCHEMA, sorted by (id, origin)."""
    return Path(run) / "documents" / part_name(part)


def verdict_part(run: str | Path, step: str, part: int) -> Path:
    """Where `step` writes one row for each row of `documents_part(run, part)`, by VERDICT_SCHEMAS[step]."""
    return Path(run) / "verdicts" / step / part_name(part)


def corpus_part(run: str | Path, kind: str, part: int) -> Path:
    """Where the joined documents lie; `kind` is 'kept' or 'dropped'."""
    return Path(run) / "corpus" / kind / part_name(part)


def iterate_batches(
    path: str | Path, columns: Sequence[str] | None = None, *, rows: int = 4096
) -> Iterator[pa.RecordBatch]:
    """The rows of a Parquet file as record batches of at most `rows` rows, never across a row group.

    Holds one row group (ROW_GROUP_BYTES of text, for files of ours) at a time. Raises CheckError when the file is
    missing or is not whole.
    """
    try:
        with pq.ParquetFile(path) as file:
            for group in range(file.num_row_groups):
                yield from file.iter_batches(rows, [group], list(columns) if columns is not None else None)
    except FileNotFoundError:
        raise CheckError(f"{path}: missing. Run the step that writes it again") from None
    except (pa.ArrowInvalid, OSError) as error:
        raise CheckError(f"{path}: cannot be read as Parquet ({error}). Run the step that writes it again") from None


def iterate_documents(
    run: str | Path, part: int, columns: Sequence[str] | None = None, *, after: Sequence[str] = (), rows: int = 4096
) -> Iterator[tuple[int, pa.RecordBatch, npt.NDArray[np.bool_]]]:
    """Batches of `documents_part`, each with the row number of its first row and a mask of the rows still alive.

    Alive means: kept by every step in `after`, for example ("quality", "dedup"). All rows are given, the dead ones
    too, so what is written from them stays row-aligned.
    """
    alive = alive_rows(run, part, after) if after else None
    first = 0
    for batch in iterate_batches(documents_part(run, part), columns, rows=rows):
        mask = np.ones(batch.num_rows, bool) if alive is None else alive[first : first + batch.num_rows]
        yield first, batch, mask
        first += batch.num_rows
    if alive is not None and first != len(alive):
        raise CheckError(
            f"{documents_part(run, part)} has {first} rows, the verdicts of {' and '.join(after)} have {len(alive)}. "
            "They are of different runs: run again from the step read"
        )


def read_verdicts(run: str | Path, step: str, part: int, columns: Sequence[str] | None = None) -> pa.Table:
    """The verdict table of one step and partition. Memory: some bytes a document, no text."""
    wanted = list(columns) if columns is not None else VERDICT_SCHEMAS[step].names
    batches = list(iterate_batches(verdict_part(run, step, part), wanted, rows=ROW_GROUP_ROWS))
    schema = pa.schema([VERDICT_SCHEMAS[step].field(name) for name in wanted])
    return pa.Table.from_batches([batch.cast(schema) for batch in batches], schema).combine_chunks()


def alive_rows(run: str | Path, part: int, after: Sequence[str]) -> npt.NDArray[np.bool_]:
    """For every row of `documents_part`: did each step in `after` keep it? Shape (rows,)."""
    alive: npt.NDArray[np.bool_] | None = None
    for step in after:
        verdicts = read_verdicts(run, step, part, ["verdict"]).column("verdict")
        kept = pc.fill_null(pc.equal(verdicts, KEEP), False).to_numpy(zero_copy_only=False)
        if alive is not None and len(alive) != len(kept):
            raise CheckError(
                f"{verdict_part(run, step, part)} has {len(kept)} rows, an earlier step has {len(alive)}. "
                "They are of different runs: run again from the step read"
            )
        alive = kept if alive is None else alive & kept
    if alive is None:
        raise ValueError("alive_rows needs at least one step")
    return alive


def count_verdicts(verdicts: pa.Array | pa.ChunkedArray) -> dict[str, int]:
    """How often each verdict occurs, sorted by name; nulls (not judged) are left out."""
    counted = pc.value_counts(verdicts.drop_null())
    return dict(sorted((item["values"].as_py(), item["counts"].as_py()) for item in counted))


def write_part(path: str | Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
    """Write record batches as one Parquet file, atomically; returns the number of rows.

    Rows are regrouped so that a row group ends once it holds ROW_GROUP_BYTES of text or ROW_GROUP_ROWS rows: the
    bytes of the file depend on the rows and not on how they were batched. A file without rows is a valid file.
    """
    rows = 0
    with atomic_path(path) as temporary, pq.ParquetWriter(temporary, schema, **_settings(schema)) as writer:
        for table in _row_groups(schema, batches):
            writer.write_table(table, row_group_size=max(1, table.num_rows))
            rows += table.num_rows
    return rows


def _settings(schema: pa.Schema) -> dict[str, Any]:
    """Everything that decides a file's bytes. Texts are not dictionary-encoded and have no minimum and maximum."""
    short = [field.name for field in schema if not pa.types.is_large_string(field.type) and field.name != "id"]
    return {
        "compression": "zstd",
        "compression_level": 3,
        "use_dictionary": [name for name in short if pa.types.is_string(schema.field(name).type)],
        "write_statistics": short,
        "data_page_size": 1 << 20,
        "version": "2.6",
        "data_page_version": "1.0",
        "store_schema": True,
    }


def _row_groups(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Cut a stream of batches into tables of one contiguous chunk, by bytes of text and by rows."""
    waiting: list[pa.RecordBatch] = []
    weight = count = 0
    for batch in batches:
        start = 0
        sizes = _row_bytes(batch)
        while start < batch.num_rows:
            total = weight + np.cumsum(sizes[start : start + ROW_GROUP_ROWS - count])
            full = int(np.searchsorted(total, ROW_GROUP_BYTES)) + 1  # the row that fills the group belongs to it
            taken = min(full, len(total))
            waiting.append(batch.slice(start, taken).cast(schema))
            weight, count, start = int(total[taken - 1]), count + taken, start + taken
            if weight >= ROW_GROUP_BYTES or count >= ROW_GROUP_ROWS:
                yield pa.Table.from_batches(waiting, schema).combine_chunks()
                waiting, weight, count = [], 0, 0
    if waiting:
        yield pa.Table.from_batches(waiting, schema).combine_chunks()


def _row_bytes(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Bytes of the text column of each row (0 where a table has none). Shape (rows,)."""
    if "text" not in batch.schema.names:
        return np.zeros(batch.num_rows, np.int64)
    lengths = pc.binary_length(batch.column("text"))
    return np.asarray(pc.fill_null(lengths, 0).to_numpy(zero_copy_only=False), np.int64)
