"""Parquet files: the columns a source names, a batch at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.corpus.read.records import Problem, Record
from schemas.errors import InputError
from schemas.recipe import SourceConfig

__all__ = ["check_parquet", "read_parquet"]

_ROWS = 256  # a batch of long documents stays small


def check_parquet(path: str, config: SourceConfig) -> Problem | None:
    """Look at the schema only: raises InputError when a column that the source names is missing or is no text.

    Returns a Problem when the file cannot be read as Parquet at all (cut short, another format).
    """
    try:
        schema = pq.read_schema(path)
    except (pa.ArrowException, OSError) as error:
        return _unreadable(path, error)
    columns = ", ".join(f"{field.name} ({field.type})" for field in schema)
    wanted = {"text": config.text, "domain_field": config.domain_field, "language_field": config.language_field}
    for key in ("id", "license_field"):
        if key in config.model_fields_set:
            wanted[key] = getattr(config, key)
    for key, name in wanted.items():
        if name is not None and name not in schema.names:
            raise InputError(
                f"source '{config.name}' names this column in '{key}', the file has: {columns}",
                path=path,
                field=name,
                todo=f"Set '{key}' to one of these columns",
            )
    found = schema.field(config.text).type
    if not _is_text(found):
        raise InputError(
            f"the column is {found}, a text column is string or large_string. The file has: {columns}",
            path=path,
            field=config.text,
            todo="Set 'text' to a column of text",
        )
    return None


def read_parquet(path: str, config: SourceConfig) -> Iterator[Record | Problem]:
    """Every row of the file in order. Memory: one batch of rows and the page it comes from.

    A file that is damaged inside gives the rows before the damage and then one Problem.
    """
    names = [config.text, config.id, config.domain_field, config.license_field, config.language_field]
    row = 0
    try:
        with pq.ParquetFile(path, buffer_size=_BUFFER, pre_buffer=False) as file:
            columns = sorted({name for name in names if name is not None} & set(file.schema_arrow.names))
            for group in range(file.num_row_groups):  # one by one: damage in one loses nothing of those before
                for batch in file.iter_batches(_ROWS, [group], columns):
                    lists = [_values(column) for column in batch.columns]
                    for values in zip(*lists, strict=True):
                        row += 1
                        yield Record(row, dict(zip(columns, values, strict=True)))
    except (pa.ArrowException, OSError) as error:
        problem = _unreadable(path, error)
        yield Problem(path, row + 1, "", "truncated_file" if row else problem.problem, problem.received, problem.todo)


_BUFFER = 1 << 20


def _values(column: pa.Array) -> list[Any]:
    """Python values; text that is not UTF-8 (Arrow does not check) becomes text with U+D800-U+DFFF escapes."""
    try:
        values: list[Any] = column.to_pylist()
    except UnicodeDecodeError:
        binary = column.cast(pa.large_binary()).to_pylist()
        values = [None if value is None else value.decode("utf-8", "surrogateescape") for value in binary]
    return values


def _is_text(found: pa.DataType) -> bool:
    if pa.types.is_dictionary(found):
        found = found.value_type
    return bool(pa.types.is_string(found) or pa.types.is_large_string(found) or pa.types.is_string_view(found))


def _unreadable(path: str, error: Exception) -> Problem:
    received = str(error).replace("\n", " ")[:200]
    return Problem(path, None, "", "unreadable_file", received, "Give a whole Parquet file, or fetch it again")
