"""Writing shards in the formats of other trainers, file by file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.curriculum.export.rows import documents_of, labels_of, lengths_of, positions_of, rolled_mask
from pipelines.curriculum.inspect import Row, iter_rows, open_shard
from pipelines.curriculum.token_files import token_dtype
from pipelines.synthesis.tokens import TextTokenizer
from schemas.errors import CheckError, UsageError
from schemas.files import atomic_path
from schemas.shard import ShardIndex, StageIndex, read_index

__all__ = ["FORMATS", "export_shards"]

GROUP_TOKENS = 4_194_304  # tokens of a Parquet row group: what is held while writing

INTS = pa.list_(pa.int32())
TRL_SCHEMA = pa.schema([("input_ids", INTS), ("labels", INTS), ("position_ids", INTS), ("seq_lengths", INTS)])
MEGATRON_SCHEMA = pa.schema([("input_ids", INTS), ("loss_mask", pa.list_(pa.int8())), ("seq_start_id", INTS)])

Columns = dict[str, Any]


def _trl(row: Row) -> Columns:
    return {
        "input_ids": row.ids.astype(np.int32),
        "labels": labels_of(row),
        "position_ids": positions_of(row),
        "seq_lengths": lengths_of(row),
    }


def _megatron(row: Row) -> Columns:
    return {
        "input_ids": row.ids.astype(np.int32),
        "loss_mask": rolled_mask(row),
        "seq_start_id": [segment.start for segment in row.segments],
    }


def _write_parquet(rows: Iterator[Row], path: Path, schema: pa.Schema, columns: Callable[[Row], Columns]) -> None:
    with atomic_path(path) as temporary, pq.ParquetWriter(temporary, schema, compression="zstd") as out:
        waiting: list[Columns] = []
        held = 0
        for row in rows:
            waiting.append(columns(row))
            held += len(row.ids)
            if held >= GROUP_TOKENS:
                out.write_table(_table(waiting, schema))
                waiting, held = [], 0
        out.write_table(_table(waiting, schema))


def _table(rows: Sequence[Columns], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_arrays(
        [pa.array([row[field.name] for row in rows], field.type) for field in schema], schema=schema
    )


def _write_olmo(rows: Iterator[Row], path: Path, tokenizer: TextTokenizer, vocab_size: int) -> list[Path]:
    dtype = token_dtype(vocab_size)
    mask_path = path.with_name(path.stem + ".label_mask.npy")
    with (
        atomic_path(path) as ids_file,
        atomic_path(mask_path) as mask_file,
        open(ids_file, "wb") as ids_out,
        open(mask_file, "wb") as mask_out,
    ):
        for row in rows:
            ids, mask = documents_of(row, tokenizer.end_of_text_id, dtype)
            ids_out.write(ids.tobytes())
            mask_out.write(mask.astype(np.bool_).tobytes())
    return [path, mask_path]


FORMATS = ("trl", "megatron", "olmo-core")


def export_shards(
    folder: str | Path, out: str | Path, to: str, tokenizer: TextTokenizer, *, stage: str | None = None
) -> dict[str, Any]:
    """Write the stages of a shard folder (or one of them) under `out`, one file for each shard file.

    Returns {"files": [...], "rows", "tokens", "trained_tokens"}. Raises UsageError for an unknown format or stage,
    CheckError when the shards were made with another tokenizer.
    """
    if to not in FORMATS:
        raise UsageError(f"--to {to!r} is unknown for shards. Use one of: {', '.join(FORMATS)}")
    index = read_index(folder)
    if index.tokenizer_digest != tokenizer.digest:
        raise CheckError(f"{folder}: made with another tokenizer than {tokenizer.folder}. Give the run's own")
    stages = [s for s in index.stages if stage in (None, s.name)]
    if not stages:
        raise UsageError(f"no stage {stage!r} in {folder}. It has: {', '.join(s.name for s in index.stages)}")
    files = [path for one in stages for path in _export_stage(Path(folder), Path(out), to, tokenizer, index, one)]
    return {
        "files": [str(path) for path in files],
        "rows": sum(s.rows for s in stages),
        "tokens": sum(s.tokens for s in stages),
        "trained_tokens": sum(s.trained_tokens for s in stages),
    }


def _export_stage(
    folder: Path, out: Path, to: str, tokenizer: TextTokenizer, index: ShardIndex, stage: StageIndex
) -> Iterator[Path]:
    for file in stage.files:
        rows = iter_rows(open_shard(folder / file.path))
        target = out / stage.name / Path(file.path).stem
        if to == "olmo-core":
            yield from _write_olmo(rows, target.with_suffix(".npy"), tokenizer, index.vocab_size)
            continue
        path = target.with_suffix(".parquet" if to == "trl" else ".idx.parquet")
        _write_parquet(rows, path, *((TRL_SCHEMA, _trl) if to == "trl" else (MEGATRON_SCHEMA, _megatron)))
        yield path
