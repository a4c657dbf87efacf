"""What a check found: problems, each with the file that it is about, and a summary of what was counted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["CheckResult", "Fault"]


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is off. `path` is relative to what was checked."""

    path: str
    problem: str


@dataclass(slots=True)
class CheckResult:
    """Faults and counts, gathered by the checks in turn."""

    target: str
    kind: str
    faults: list[Fault] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Nothing is off."""
        return not self.faults

    def fault(self, path: str, problem: str) -> None:
        """Note a fault once."""
        found = Fault(path, problem)
        if found not in self.faults:
            self.faults.append(found)

    def equal(self, path: str, what: str, found: Any, expected: Any) -> None:
        """Note a fault unless the recounted `found` equals what was `expected`."""
        if found != expected:
            self.fault(path, f"{what}: counted {found}, expected {expected}")

    def damaged(self) -> set[str]:
        """Paths with a fault: recounting from them would only repeat it."""
        return {fault.path for fault in self.faults}

    def to_json(self) -> dict[str, Any]:
        """For --json."""
        return {
            "target": self.target,
            "kind": self.kind,
            "ok": self.ok,
            "faults": [{"path": fault.path, "problem": fault.problem} for fault in self.faults],
            "summary": self.summary,
        }
