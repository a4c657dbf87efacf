"""Rows of packed shards by number, from memory-mapped Arrow files that are checked when they are opened."""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from schemas.errors import CheckError, InputError
from schemas.files import sha256_file
from schemas.shard import SHARD_VERSION, ShardFile, StageIndex

__all__ = ["Row", "StageReader"]


@dataclass(frozen=True, slots=True)
class Row:
    """One packed row. `name` is "file:row" as `datamix show` takes it; lengths sum to the tokens.

    `input_ids` int64 and `targets` bool have shape (tokens,): targets are the tokens that are predicted and trained.
    """

    name: str
    input_ids: np.ndarray[Any, np.dtype[np.int64]]
    targets: np.ndarray[Any, np.dtype[np.bool_]]
    segment_lengths: list[int]
    segment_ids: pa.ListScalar

    def segment_name(self, position: int) -> str:
        """The record id of the segment at `position` (read only when somebody asks)."""
        return str(self.segment_ids.values[position].as_py())


class StageReader:
    """All rows of one stage. Opening maps every file and checks its size and row count against the index."""

    def __init__(self, folder: str | Path, stage: StageIndex, vocab_size: int, verify: bool = False) -> None:
        """`folder` is where index.json lies. `verify` also reads every byte and compares SHA-256.

        Raises CheckError that names the file which is missing, cut, changed or of a newer version.
        """
        self.stage = stage
        self._names: list[str] = []
        self._files: list[_OpenFile] = []
        self._starts = [0]
        for entry in stage.files:
            self._files.append(_open(Path(folder) / entry.path, entry, vocab_size, verify))
            self._names.append(entry.path)
            self._starts.append(self._starts[-1] + entry.rows)

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, number: int) -> Row:
        """Row `number` in file order. Raises CheckError when its columns disagree in length."""
        if not 0 <= number < len(self):
            raise IndexError(f"stage {self.stage.name} has {len(self)} rows, not row {number}")
        position = bisect.bisect_right(self._starts, number) - 1
        inside = number - self._starts[position]
        return self._files[position].row(inside, f"{self._names[position]}:{inside}")


class _OpenFile:
    """One mapped Arrow file: record batches by number, nothing read until a row is asked for."""

    def __init__(self, reader: pa.RecordBatchFileReader) -> None:
        self._batches = [reader.get_batch(i) for i in range(reader.num_record_batches)]
        self._starts = [0]
        for batch in self._batches:
            self._starts.append(self._starts[-1] + batch.num_rows)

    @property
    def rows(self) -> int:
        return self._starts[-1]

    def row(self, number: int, name: str) -> Row:
        position = bisect.bisect_right(self._starts, number) - 1
        batch, index = self._batches[position], number - self._starts[position]
        ids = batch.column("input_ids")[index].values.to_numpy(zero_copy_only=True).astype(np.int64)
        targets = _unpacked(batch.column("loss_mask")[index].values)
        lengths = batch.column("segment_lengths")[index].values.to_numpy(zero_copy_only=True)
        if len(ids) != len(targets) or len(ids) != lengths.sum() or (lengths < 1).any():
            raise CheckError(
                f"{name}: {len(ids)} input_ids, {len(targets)} loss_mask values and segment_lengths that sum to "
                f"{lengths.sum()}: they must be equal. Write the shards again"
            )
        targets[np.cumsum(lengths) - lengths] = False  # nothing stands before the first token of a segment
        return Row(name, ids, targets, lengths.tolist(), batch.column("segment_ids")[index])


def _unpacked(mask: pa.BooleanArray) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """A fresh array of the bits (12 times as fast as pyarrow's own conversion)."""
    start, bits = mask.offset, mask.buffers()[1]
    if not len(mask):
        return np.zeros(0, dtype=np.bool_)
    packed = np.frombuffer(bits, dtype=np.uint8)[start // 8 : (start + len(mask) + 7) // 8]
    return np.unpackbits(packed, bitorder="little")[start % 8 : start % 8 + len(mask)].view(np.bool_)


def _open(path: Path, entry: ShardFile, vocab_size: int, verify: bool) -> _OpenFile:
    todo = "Restore the file or write the shards again"
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        raise CheckError(f"{path}: the shard is missing. {todo}") from None
    if size != entry.bytes:
        raise CheckError(f"{path}: {size} bytes, the index says {entry.bytes}. {todo}")
    if verify and sha256_file(path) != entry.sha256:
        raise CheckError(f"{path}: its SHA-256 is not that of the index: bytes were changed. {todo}")
    try:
        reader = pa.ipc.open_file(pa.memory_map(str(path)))
        metadata = {key.decode(): value.decode() for key, value in (reader.schema.metadata or {}).items()}
        opened = _OpenFile(reader)
    except (pa.ArrowInvalid, pa.ArrowKeyError, OSError, UnicodeDecodeError) as error:
        raise CheckError(f"{path}: not an Arrow IPC file ({error}). {todo}") from None
    if opened.rows != entry.rows:
        raise CheckError(f"{path}: {opened.rows} rows, the index says {entry.rows}. {todo}")
    if metadata.get("datamix.record") != "shard":
        raise InputError("not a datamix shard", path=str(path), field="datamix.record", todo=todo)
    version = metadata.get("datamix.version", "")
    if not version.isdigit() or int(version) > int(SHARD_VERSION):
        raise CheckError(f"{path}: shard version {version!r} is newer than {SHARD_VERSION}. Update datamix")
    if metadata.get("datamix.vocab_size") != str(vocab_size):
        raise CheckError(
            f"{path}: written for a vocabulary of {metadata.get('datamix.vocab_size')}, the index says {vocab_size}: "
            f"two runs' shards are mixed. {todo}"
        )
    return opened
