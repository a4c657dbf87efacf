"""Plain files that a recipe names outside of `sources`: reference sets of dedup, benchmarks of decontamination.

They are JSON Lines (plain, gzip, zstandard) or Parquet, told apart by their first bytes; any column may be there.
"""

from __future__ import annotations

import glob
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.corpus.read.jsonl import read_jsonl
from pipelines.corpus.read.paths import SUFFIXES
from pipelines.corpus.read.records import Problem, Record
from schemas.errors import InputError, UsageError
from schemas.recipe import SourceConfig

__all__ = ["plain_files", "plain_records"]

_SUFFIXES = (*SUFFIXES["jsonl"], *SUFFIXES["parquet"])


def plain_files(pattern: str, field: str) -> list[Path]:
    """The files that a path, folder or pattern means, sorted. Raises UsageError naming the recipe's `field`.

    In a folder every file below it with a known suffix is taken, hidden ones not.
    """
    place = Path(pattern).expanduser()
    if place.is_file():
        return [place]
    if place.is_dir():
        found = [p for p in place.rglob("*") if p.name.endswith(_SUFFIXES) and not p.name.startswith(".")]
    else:
        found = [Path(p) for p in glob.glob(str(place), recursive=True)]  # noqa: PTH207  (Path.glob refuses '**.x')
    files = sorted(p for p in found if p.is_file())
    if not files:
        raise UsageError(
            f"{field}: {pattern!r} names no file. Give a file, a folder or a pattern such as data/*.jsonl "
            f"(files: *{', *'.join(_SUFFIXES)})"
        )
    return files


def plain_records(path: str | Path) -> Iterator[Record | Problem]:
    """Every record of a JSON Lines or Parquet file, in order, or what is wrong with it. Memory: one batch of rows."""
    with open(path, "rb") as handle:
        magic = handle.read(4)
    if magic == b"PAR1":
        yield from _parquet(str(path))
    else:
        yield from read_jsonl(str(path), SourceConfig(name="plain", kind="jsonl", path=str(path)))


def _parquet(path: str) -> Iterator[Record]:
    row = 0
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(1024):
                values: list[dict[str, Any]] = batch.to_pylist()
                for fields in values:
                    row += 1
                    yield Record(row, fields)
    except (pa.ArrowException, OSError) as error:
        raise InputError(
            f"cannot be read as Parquet ({str(error)[:200]})", path=path, line=row + 1, todo="Give a whole file"
        ) from None
