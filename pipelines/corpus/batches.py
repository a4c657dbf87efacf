"""Record batches of documents: which rows are still there, and how columns are set.

Every transform of this package takes and gives pyarrow RecordBatches with a column `text` and a column `id`; other
columns pass through untouched. `verdict` says what became of a row: null or KEEP for one that is still there, else the
reason it was dropped.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from schemas.document import KEEP, partition_of
from schemas.errors import InputError

__all__ = ["alive", "attached", "column_or_null", "only", "part_of", "scattered", "text_of", "with_columns"]


def alive(batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """Rows that no transform has dropped. Shape (rows,)."""
    if "verdict" not in batch.schema.names:
        return np.ones(batch.num_rows, bool)
    kept = pc.fill_null(pc.equal(batch.column("verdict").cast(pa.string()), KEEP), True)
    return np.asarray(kept.to_numpy(zero_copy_only=False), bool)


def only(batch: pa.RecordBatch, rows: npt.NDArray[np.bool_]) -> pa.RecordBatch:
    """The rows of a mask (the batch itself when that is all)."""
    return batch if rows.all() else batch.filter(pa.array(rows))


def text_of(batch: pa.RecordBatch, column: str) -> pa.Array:
    """A column of strings. Raises InputError naming the columns there are."""
    if column not in batch.schema.names:
        raise InputError(
            f"a batch has no such column; it has: {', '.join(batch.schema.names)}",
            field=column,
            todo="Give batches with the columns 'id' and 'text', or rename them before",
        )
    found = batch.column(column)
    if not (pa.types.is_string(found.type) or pa.types.is_large_string(found.type)):
        raise InputError(f"the column is {found.type}, not string or large_string", field=column, todo="Cast it before")
    return found


def column_or_null(batch: pa.RecordBatch, column: str, kind: pa.DataType) -> pa.Array:
    """A column as `kind`, nulls where there is none."""
    if column in batch.schema.names:
        return batch.column(column).cast(kind)
    return pa.nulls(batch.num_rows, kind)


def with_columns(batch: pa.RecordBatch, columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """`batch` with columns set: in place where they are, else at the end."""
    names, arrays = list(batch.schema.names), list(batch.columns)
    for name, array in columns.items():
        if name in names:
            arrays[names.index(name)] = array
        else:
            names.append(name)
            arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, names=names)


def scattered(before: pa.Array, rows: npt.NDArray[np.int64], values: pa.Array) -> pa.Array:
    """`before` with `values` at `rows`. Both have one type."""
    chosen = np.arange(len(before), dtype=np.int64)
    chosen[rows] = np.arange(len(before), len(before) + len(values))
    return pa.concat_arrays([before, values]).take(pa.array(chosen))


def part_of(record_id: str, partitions: int) -> int:
    """`schemas.document.partition_of` for ids of ours; ids of other forms go by their hash."""
    if partitions == 1:
        return 0
    try:
        return partition_of(record_id, partitions)
    except ValueError:
        return partition_of(xxhash.xxh3_128_hexdigest(record_id.encode("utf-8", "surrogatepass")), partitions)


def attached(batch: pa.RecordBatch, columns: dict[str, pa.Array], here: npt.NDArray[np.bool_]) -> pa.RecordBatch:
    """Set columns in the rows `here`; other rows keep what they have."""
    rows = np.flatnonzero(here)
    return with_columns(
        batch,
        {name: scattered(column_or_null(batch, name, values.type), rows, values) for name, values in columns.items()},
    )
