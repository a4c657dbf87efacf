"""Trajectory: one agent run or conversation, the same record for every source.

Arguments and tools stay JSON strings in source order: as Arrow structs, absent keys would come back as
nulls in training text. The Python classes are plain dataclasses (no validation at construction: readers
and environments decide what is well formed); `TRAJECTORY_SCHEMA` is the Parquet file format.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import xxhash

from schemas.files import canonical_json

__all__ = [
    "TRAJECTORY_SCHEMA",
    "TRAJECTORY_VERSION",
    "Message",
    "Outcome",
    "Stats",
    "Task",
    "ToolCall",
    "Trajectory",
    "trajectory_id",
]

TRAJECTORY_VERSION = "1"

_CALL = pa.struct([("id", pa.string()), ("name", pa.string()), ("arguments", pa.string())])
_MESSAGE = pa.struct(
    [
        ("role", pa.string()),
        ("content", pa.string()),
        ("reasoning", pa.string()),
        ("tool_calls", pa.list_(_CALL)),
        ("tool_call_id", pa.string()),
        ("name", pa.string()),
        ("error", pa.bool_()),
        ("signal", pa.string()),
        ("stop", pa.string()),
        ("author", pa.string()),
        ("train", pa.bool_()),
        ("weight", pa.float32()),
        ("label", pa.string()),
        ("mask_reasons", pa.list_(pa.string())),
    ]
)
TRAJECTORY_SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("family", pa.string(), nullable=False),
        pa.field("origin", pa.string()),
        pa.field("license", pa.string()),
        pa.field(
            "task",
            pa.struct(
                [("id", pa.string()), ("instruction", pa.string()), ("seed", pa.int64()), ("difficulty", pa.float64())]
            ),
        ),
        pa.field("tools", pa.string()),
        pa.field("messages", pa.list_(_MESSAGE)),
        pa.field(
            "outcome", pa.struct([("success", pa.bool_()), ("reward", pa.float64()), ("verified_by", pa.string())])
        ),
        pa.field(
            "stats",
            pa.struct(
                [("turns", pa.int64()), ("tokens", pa.int64()), ("errors", pa.int64()), ("recoveries", pa.int64())]
            ),
        ),
        pa.field("notes", pa.list_(pa.string())),
        pa.field("flags", pa.list_(pa.string())),
        pa.field("extra", pa.string()),
    ],
    metadata={"datamix.record": "trajectory", "datamix.version": TRAJECTORY_VERSION},
)


@dataclass(slots=True)
class ToolCall:
    """One call: `arguments` is the JSON text as the model wrote it (it may be invalid JSON: a mistake to mask)."""

    id: str
    name: str
    arguments: str


@dataclass(slots=True)
class Message:
    """One turn.

    role: system, user, assistant or tool. `error` and `signal` are what the source's structure said of a tool
    result (exit code, is_error, …): None means that the source said nothing. `stop` is the source's finish
    reason; `author` is set when an assistant turn is not the model's words (demo, copied, harness).
    `train`, `label`, `mask_reasons` ("R2:exit_code") are set by filters.trajectory.
    """

    role: str
    content: str = ""
    reasoning: str | None = None
    tool_calls: list[ToolCall] = field(default_factory=list)
    tool_call_id: str | None = None
    name: str | None = None
    error: bool | None = None
    signal: str | None = None
    stop: str | None = None
    author: str | None = None
    train: bool | None = None
    weight: float | None = None
    label: str | None = None
    mask_reasons: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Task:
    """What was asked. `difficulty` is the family's own scale (1 easy … 10 hard); None when unknown."""

    id: str | None = None
    instruction: str = ""
    seed: int | None = None
    difficulty: float | None = None


@dataclass(slots=True)
class Outcome:
    """How it ended. `success` None means unknown, never success."""

    success: bool | None = None
    reward: float | None = None
    verified_by: str | None = None


@dataclass(slots=True)
class Stats:
    """Counts: assistant turns, tokens (None until rendered), turns with an error, errors recovered from."""

    turns: int = 0
    tokens: int | None = None
    errors: int = 0
    recoveries: int = 0


@dataclass(slots=True)
class Trajectory:
    """One record. `notes` are repairs made while reading; `flags` are set by rules; `extra` is a JSON string."""

    id: str
    source: str
    family: str
    messages: list[Message]
    task: Task = field(default_factory=Task)
    tools: str = "[]"
    outcome: Outcome = field(default_factory=Outcome)
    stats: Stats = field(default_factory=Stats)
    origin: str | None = None
    license: str | None = None
    notes: list[str] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)
    extra: str | None = None

    def to_row(self) -> dict[str, Any]:
        """The dict that `pyarrow.Table.from_pylist(…, TRAJECTORY_SCHEMA)` takes. Lists of strings are shared."""
        row = _plain(self)
        row["messages"] = [
            {**_plain(message), "tool_calls": [_plain(call) for call in message.tool_calls]}
            for message in self.messages
        ]
        for name in ("task", "outcome", "stats"):
            row[name] = _plain(row[name])
        return row

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Trajectory:
        """The inverse of `to_row` for rows of `TRAJECTORY_SCHEMA` (nulls become the field's empty value)."""
        messages = []
        for raw in row["messages"] or []:
            values = dict(raw)
            values["content"] = values["content"] or ""
            values["tool_calls"] = [ToolCall(**call) for call in values["tool_calls"] or []]
            values["mask_reasons"] = list(values["mask_reasons"] or [])
            messages.append(Message(**values))
        return cls(
            id=row["id"],
            source=row["source"],
            family=row["family"],
            messages=messages,
            task=Task(**row["task"]) if row["task"] else Task(),
            tools=row["tools"] or "[]",
            outcome=Outcome(**row["outcome"]) if row["outcome"] else Outcome(),
            stats=Stats(**row["stats"]) if row["stats"] else Stats(),
            origin=row["origin"],
            license=row["license"],
            notes=list(row["notes"] or []),
            flags=list(row["flags"] or []),
            extra=row["extra"],
        )


def _plain(record: Any) -> dict[str, Any]:
    """The fields of a slotted dataclass, one level deep (dataclasses.asdict copies every value: ten times the time)."""
    return {name: getattr(record, name) for name in record.__slots__}


def trajectory_id(source: str, task_id: str | None, messages: list[Message]) -> str:
    """128-bit xxh3 over source, task id and what was said and done (not masks or labels), as 32 hex digits."""
    said = [[m.role, m.content, m.reasoning, [[c.name, c.arguments] for c in m.tool_calls], m.name] for m in messages]
    payload = canonical_json([source, task_id, said])
    return xxhash.xxh3_128_hexdigest(payload.encode("utf-8", "surrogatepass"))
