"""What a target is, and what it could not say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from schemas.trajectory import Message, Trajectory

__all__ = ["LeftOut", "Losses", "Writer", "trained", "weight_of"]


class LeftOut(Exception):  # noqa: N818 - not an error of the program: the row is counted and named
    """Raised by a writer for a trajectory that the target cannot hold at all; `reason` is counted."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(slots=True)
class Losses:
    """What was changed or left behind so that a target could hold the rest, counted and printed."""

    counts: Counter[str] = field(default_factory=Counter)

    def add(self, text: str, times: int = 1) -> None:
        """Count a loss."""
        if times:
            self.counts[text] += times


class Writer(Protocol):
    """One target. `kind` is the file that it is written to."""

    name: str
    kind: Literal["jsonl", "parquet"]
    needs_tokenizer: bool

    def rows(self, trajectories: list[Trajectory], losses: Losses) -> Iterator[list[dict[str, Any]] | LeftOut]:
        """For each trajectory in order its rows (several where a chat template splits it), or why there is none."""

    def schema(self) -> Any:
        """The Arrow schema of a parquet target (None for jsonl)."""


def trained(message: Message) -> bool:
    """Whether a turn is trained: its flag; without one, every assistant turn that is the model's own words."""
    if message.role != "assistant":
        return False
    if message.train is None:
        return message.author is None
    return message.train


def weight_of(message: Message) -> float:
    """The loss weight of a turn: 0 when it is not trained."""
    if not trained(message):
        return 0.0
    return 1.0 if message.weight is None else float(message.weight)
