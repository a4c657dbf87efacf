"""Shards against their index and their own promises, row by row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from datamix.checks.result import CheckResult
from schemas.errors import DatamixError
from schemas.files import sha256_file
from schemas.progress import Progress
from schemas.shard import SHARD_VERSION, ShardFile, StageIndex, read_index, shard_schema

__all__ = ["check_shard_file", "check_shards"]


def check_shards(folder: Path, prefix: str, result: CheckResult, progress: Progress) -> None:
    """Every file of the index: bytes, counts, and each row; files that no index names.

    `prefix` is how faults name `folder` ("shards/" in a run). Reads every byte once; memory: one record batch.
    """
    try:
        index = read_index(folder)
    except DatamixError as error:
        result.fault(f"{prefix}index.json", str(error))
        return
    known = {file.path for stage in index.stages for file in stage.files}
    for path in sorted(folder.rglob("*.arrow")):
        name = path.relative_to(folder).as_posix()
        if name not in known:
            result.fault(prefix + name, "is not in the index")
    summary: dict[str, Any] = {}
    for stage in index.stages:
        with progress.task(f"checking {stage.name}", len(stage.files)) as advance:
            for file in stage.files:
                _check_indexed(folder, prefix, stage, file, index.vocab_size, result)
                advance(1)
        summary[stage.name] = {"rows": stage.rows, "tokens": stage.tokens, "trained_tokens": stage.trained_tokens}
    result.summary["stages"] = summary


def _check_indexed(
    folder: Path, prefix: str, stage: StageIndex, file: ShardFile, vocabulary: int, result: CheckResult
) -> None:
    path, name = folder / file.path, prefix + file.path
    if not path.is_file():
        result.fault(name, "is missing")
        return
    if sha256_file(path) != file.sha256:
        result.fault(name, "its bytes differ from the index's SHA-256")
        return
    found = _check_rows(path, name, result, vocabulary=vocabulary, context=stage.context_tokens)
    if found is not None:
        for key, counted in found.items():
            result.equal(name, key, counted, getattr(file, key))


def check_shard_file(path: Path, result: CheckResult) -> None:
    """One shard file on its own: its metadata says the vocabulary and the context."""
    found = _check_rows(path, path.name, result)
    if found is not None:
        result.summary |= found


def _check_rows(
    path: Path, name: str, result: CheckResult, *, vocabulary: int | None = None, context: int | None = None
) -> dict[str, int] | None:
    """Read every row; returns counts, or None when the file cannot be read."""
    counts = {"rows": 0, "tokens": 0, "trained_tokens": 0, "segments": 0}
    try:
        with pa.memory_map(str(path)) as source, pa.ipc.open_file(source) as reader:
            metadata = {k.decode(): v.decode() for k, v in (reader.schema.metadata or {}).items()}
            said = _metadata_fault(metadata, vocabulary, context)
            if said is None and not reader.schema.equals(shard_schema(int(metadata["datamix.vocab_size"]))):
                said = "its columns are not those of a shard"
            if said is not None:
                result.fault(name, said)
                return None
            size, room = int(metadata["datamix.vocab_size"]), context or int(metadata.get("datamix.context_tokens", 0))
            for number in range(reader.num_record_batches):
                _check_batch(reader.get_batch(number), size, room, name, counts, result)
    except (OSError, pa.ArrowException, ValueError) as error:
        result.fault(name, f"cannot be read as an Arrow file ({error})")
        return None
    return counts


def _metadata_fault(metadata: dict[str, str], vocabulary: int | None, context: int | None) -> str | None:
    if metadata.get("datamix.record") != "shard":
        return "is not a datamix shard (metadata datamix.record)"
    if metadata.get("datamix.version") != SHARD_VERSION:
        return f"has shard version {metadata.get('datamix.version')}, this datamix reads {SHARD_VERSION}"
    if not metadata.get("datamix.vocab_size", "").isdigit():
        return "does not say its vocabulary (metadata datamix.vocab_size)"
    if vocabulary is not None and int(metadata["datamix.vocab_size"]) != vocabulary:
        return f"is of a vocabulary of {metadata['datamix.vocab_size']}, the index of {vocabulary}"
    said = metadata.get("datamix.context_tokens")
    if context is not None and said is not None and said != str(context):
        return f"is of a context of {said} tokens, the index of {context}"
    return None


def _check_batch(
    batch: pa.RecordBatch, vocabulary: int, room: int, name: str, counts: dict[str, int], result: CheckResult
) -> None:
    for position in range(batch.num_rows):
        row = {field: batch.column(field)[position].values for field in batch.schema.names}
        ids = row["input_ids"].to_numpy(zero_copy_only=False)
        mask = row["loss_mask"].to_numpy(zero_copy_only=False).astype(bool)
        lengths = row["segment_lengths"].to_numpy(zero_copy_only=False)
        problem = _row_fault(ids, mask, lengths, row["segment_ids"], row["mask_reasons"], vocabulary, room)
        if problem:
            result.fault(name, f"row {counts['rows']}: {problem}")
        counts["rows"] += 1
        counts["tokens"] += len(ids)
        counts["trained_tokens"] += int(mask.sum())
        counts["segments"] += len(lengths)


def _row_fault(
    ids: Any, mask: Any, lengths: Any, segment_ids: pa.Array, reasons: pa.StructArray, vocabulary: int, room: int
) -> str | None:
    """What is wrong with one row, or None."""
    if len(ids) == 0:
        return "holds no token"
    if room and len(ids) > room:
        return f"holds {len(ids)} tokens, the context is {room}"
    if int(ids.max()) >= vocabulary:
        return f"token {int(ids.argmax())} has id {int(ids.max())}, the vocabulary has {vocabulary}"
    if len(mask) != len(ids):
        return f"{len(mask)} mask values for {len(ids)} tokens"
    if (lengths < 1).any() or int(lengths.sum()) != len(ids):
        return f"segment lengths sum to {int(lengths.sum())}, the row has {len(ids)} tokens"
    if len(segment_ids) != len(lengths) or segment_ids.null_count:
        return f"{len(segment_ids)} segment ids for {len(lengths)} segments"
    if mask[np.cumsum(lengths) - lengths].any():
        return "the first token of a segment is marked as trained"
    runs = reasons.field("tokens").to_numpy(zero_copy_only=False)
    if (runs < 1).any() or int(runs.sum()) != len(ids):
        return f"mask reasons cover {int(runs.sum())} of {len(ids)} tokens"
    trained = np.repeat(np.array([r == "trained" for r in reasons.field("reason").to_pylist()], bool), runs)
    if not np.array_equal(trained, mask):
        token = int(np.flatnonzero(trained != mask)[0])
        said = "trained" if trained[token] else "masked"
        return f"token {token}: its mask is {bool(mask[token])}, its reason says {said}"
    return None
