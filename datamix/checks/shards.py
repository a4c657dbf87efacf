"""Shards against their index and their own promises, row by row (`pipelines.curriculum.inspect` does the looking)."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from datamix.checks.result import CheckResult
from pipelines.curriculum import inspect
from schemas.errors import DatamixError
from schemas.progress import Progress
from schemas.shard import read_index

__all__ = ["check_shard_file", "check_shards"]


def check_shards(folder: Path, prefix: str, result: CheckResult, progress: Progress) -> None:
    """Every file of the index: bytes, counts, and each row; files that no index names.

    `prefix` is how faults name `folder` ("shards/" in a run). A run's tokenizer lies beside its shards.
    """
    tokenizer = folder.parent / "tokenizer"
    with progress.task("checking shards", None):
        faults = inspect.check_shards(folder, tokenizer if tokenizer.is_dir() else None)
    for fault in faults:
        path, _, problem = fault.partition(": ")
        result.fault(path.replace(f"{folder}/", prefix, 1), problem)
    if not faults:
        result.summary["stages"] = {
            stage.name: {"rows": stage.rows, "tokens": stage.tokens, "trained_tokens": stage.trained_tokens}
            for stage in read_index(folder).stages
        }


def check_shard_file(path: Path, result: CheckResult) -> None:
    """One shard file on its own: its metadata says the vocabulary and the context."""
    counts = {"rows": 0, "tokens": 0, "trained_tokens": 0, "segments": 0}
    try:
        reader = inspect.open_shard(path)
        metadata = {key.decode(): value.decode() for key, value in reader.schema.metadata.items()}
        vocabulary, context = int(metadata["datamix.vocab_size"]), int(metadata["datamix.context_tokens"])
        for number in range(sum(reader.get_batch(i).num_rows for i in range(reader.num_record_batches))):
            row = inspect.read_row(path, number)
            for problem in inspect.check_row(row, vocab_size=vocabulary, context_tokens=context):
                result.fault(path.name, f"row {number}: {problem}")
            counts["rows"] += 1
            counts["tokens"] += len(row.ids)
            counts["trained_tokens"] += int(row.mask.sum())
            counts["segments"] += len(row.segments)
    except (DatamixError, OSError, pa.ArrowException, KeyError, ValueError) as error:
        result.fault(path.name, f"cannot be read as a shard ({error})")
        return
    result.summary |= counts
