"""Shard: packed training rows in Arrow IPC, and the index that says which rows exist.

A shard file (`*.arrow`) holds whole rows of one stage; `datasets.load_dataset("arrow", …)` reads it as it is.
Alignment: `loss_mask[i]` is true when token i itself is a target (predicted from the tokens before it in its
segment). Shifting to targets happens in the model, as with Hugging Face `labels`. The first token of a segment
has nothing before it and is never a target, whatever its mask says: writers store false there.
Rows are not padded: a row holds at most `context_tokens` tokens.

`segment_ids`: pretraining "<document id>@<epoch>.<piece>" (from 0); else the trajectory id, with "#<part>" where it
was split at user turns and "@<stage>" where that SFT stage (from 0) repeats it. `mask_reasons`: "trained"; "header",
"system", "user", "tool", "segment_start" (pretraining); or the mask reasons of an assistant message, joined by commas.
A file holds one or more record batches of about a million tokens; each segment's reasons are its own runs.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from schemas.errors import CheckError, InputError
from schemas.files import digest_of, read_json, write_json

__all__ = [
    "INDEX_NAME",
    "SHARD_VERSION",
    "ShardFile",
    "ShardIndex",
    "StageIndex",
    "parse_segment_id",
    "read_index",
    "shard_schema",
    "token_type",
    "write_index",
]

SHARD_VERSION = "1"
INDEX_NAME = "index.json"


def parse_segment_id(segment_id: str) -> tuple[str, int | None, int | None]:
    """(trajectory id, part, replaying stage) of an SFT segment's id ID, ID#2, ID@1 or ID#2@1."""
    rest, at, stage = segment_id.rpartition("@")
    rest, stage = (rest, stage) if at and stage.isdecimal() else (segment_id, "")
    name, hash_, part = rest.rpartition("#")
    name, part = (name, part) if hash_ and part.isdecimal() else (rest, "")
    return name, int(part) if part else None, int(stage) if stage else None


def token_type(vocab_size: int) -> pa.DataType:
    """uint16 while every id below `vocab_size` fits (up to 65,536 ids), else uint32."""
    return pa.uint16() if vocab_size <= 65_536 else pa.uint32()


def shard_schema(vocab_size: int, metadata: dict[str, str] | None = None) -> pa.Schema:
    """Arrow schema of a shard row.

    `metadata` (strings) adds tokenizer digest, stage, context length and recipe digest; version and alignment
    are always written.
    """
    fields = [
        pa.field("input_ids", pa.list_(token_type(vocab_size)), nullable=False),
        pa.field("loss_mask", pa.list_(pa.bool_()), nullable=False),
        pa.field("segment_lengths", pa.list_(pa.int32()), nullable=False),
        pa.field("segment_ids", pa.list_(pa.string()), nullable=False),
        # run-length pairs over input_ids: how many tokens, and why they are (not) trained: "trained" or a reason
        pa.field(
            "mask_reasons", pa.list_(pa.struct([("tokens", pa.int32()), ("reason", pa.string())])), nullable=False
        ),
    ]
    return pa.schema(
        fields,
        metadata={
            "datamix.record": "shard",
            "datamix.version": SHARD_VERSION,
            "datamix.alignment": "inputs",
            "datamix.vocab_size": str(vocab_size),
            **{f"datamix.{key}": value for key, value in (metadata or {}).items()},
        },
    )


@dataclass(slots=True)
class ShardFile:
    """One file of a stage. `path` is relative to the index; counts are of this file alone."""

    path: str
    sha256: str
    bytes: int
    rows: int
    tokens: int
    trained_tokens: int
    segments: int


@dataclass(slots=True)
class StageIndex:
    """One stage, in training order. `phase` is pretrain or sft. `report` holds what the packer and planner say."""

    name: str
    phase: str
    context_tokens: int
    files: list[ShardFile]
    report: dict[str, Any] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return sum(f.rows for f in self.files)

    @property
    def tokens(self) -> int:
        return sum(f.tokens for f in self.files)

    @property
    def trained_tokens(self) -> int:
        return sum(f.trained_tokens for f in self.files)


@dataclass(slots=True)
class ShardIndex:
    """All stages of a run in the order they are trained: `RUN/shards/index.json`."""

    vocab_size: int
    tokenizer_digest: str
    recipe_digest: str
    stages: list[StageIndex]
    version: str = SHARD_VERSION

    def digest(self) -> str:
        """SHA-256 over everything here: the loader's state names it, so that a changed set is noticed."""
        return digest_of(asdict(self))


def write_index(folder: str | Path, index: ShardIndex) -> Path:
    """Write `folder/index.json` atomically."""
    path = Path(folder) / INDEX_NAME
    write_json(path, asdict(index))
    return path


def read_index(folder: str | Path) -> ShardIndex:
    """Read `folder/index.json`.

    Raises InputError when it is missing or is not an index, CheckError when a newer datamix wrote it.
    """
    path = Path(folder) / INDEX_NAME
    try:
        raw = read_json(path)
    except FileNotFoundError:
        raise InputError("no shard index here", path=str(path), todo="Run the shards step first") from None
    except ValueError as error:
        raise InputError(f"not JSON ({error})", path=str(path), todo="Write the shards again") from None
    if not isinstance(raw, dict) or "stages" not in raw:
        raise InputError("not a shard index", path=str(path), todo="Write the shards again")
    try:
        if int(raw.get("version", "0")) > int(SHARD_VERSION):
            raise CheckError(f"{path}: shard version {raw['version']} is newer than {SHARD_VERSION}. Update datamix")
        return _index_of(raw)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        problem = f"not a shard index ({type(error).__name__}: {error})"
        raise InputError(problem, path=str(path), todo="Write the shards again") from None


def _index_of(raw: dict[str, Any]) -> ShardIndex:
    stages = [
        StageIndex(
            name=s["name"],
            phase=s["phase"],
            context_tokens=s["context_tokens"],
            files=[ShardFile(**f) for f in s["files"]],
            report=s.get("report", {}),
        )
        for s in raw["stages"]
    ]
    return ShardIndex(
        vocab_size=raw["vocab_size"],
        tokenizer_digest=raw["tokenizer_digest"],
        recipe_digest=raw["recipe_digest"],
        stages=stages,
        version=raw["version"],
    )
