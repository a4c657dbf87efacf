"""Our own trajectory rows, from Parquet or as lines of JSON: taken as they are, masks and ids included."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pipelines.synthesis.ingest.records import Place, RecordError, SetAside
from schemas.trajectory import TRAJECTORY_SCHEMA, Trajectory

__all__ = ["Canonical"]

_KEYS = frozenset(TRAJECTORY_SCHEMA.names)
_ROLES = ("system", "user", "assistant", "tool")


class Canonical:
    """Rows of TRAJECTORY_SCHEMA."""

    name = "datamix"

    def matches(self, value: Any) -> float:
        """Every column of the schema."""
        return 1.0 if isinstance(value, dict) and value.keys() >= _KEYS else 0.0

    def read(self, value: Any, place: Place) -> Iterator[Trajectory | SetAside]:
        """The row."""
        for name in ("id", "source", "family"):
            if not isinstance(value.get(name), str):
                raise RecordError(name, "must be a string", value.get(name))
        found = Trajectory.from_row(value)
        if not found.messages:
            raise RecordError("messages", "the run has no messages")
        for index, message in enumerate(found.messages):
            if message.role not in _ROLES:
                raise RecordError(f"messages[{index}].role", "must be one of " + ", ".join(_ROLES), message.role)
        yield found
