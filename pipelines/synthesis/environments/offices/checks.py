"""The verdict: what changed in an office, which sub-goals are met, and what was touched without need."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from pipelines.synthesis.environments.answers import answers_of
from pipelines.synthesis.environments.offices.documents import (
    UnreadableDocumentError,
    read_calendar,
    read_mail,
    read_sheets,
)
from pipelines.synthesis.environments.offices.world import DRAFTS, Atom, Final, World

__all__ = ["Verdict", "final_state", "judge"]

SHOWN = 4  # faults told of each sort
Rows = Mapping[str, list[tuple[Any, ...]]]


@dataclass(frozen=True, slots=True)
class Verdict:
    """`met` of `total` sub-goals; `unmet` and `touched` say what is wrong. `shares` is the share met of each goal."""

    met: int
    total: int
    unmet: list[str]
    touched: list[str]
    shares: tuple[float, ...]

    @property
    def success(self) -> bool:
        """All met and nothing else touched."""
        return self.met == self.total and not self.touched

    @property
    def reward(self) -> float:
        """Mean over the goals of the share of their sub-goals met, less a sub-goal of all for every thing touched
        without need; not below 0.

        Every thing asked for weighs the same: a hundred papers filed are no answer to the one mail beside them. What
        is touched weighs like a sub-goal of any, for it belongs to no goal.
        """
        if self.success:
            return 1.0
        return max(0.0, sum(self.shares) / len(self.shares) - len(self.touched) / self.total)

    def told(self) -> str:
        """One line for people."""
        text = f"final state: {self.met} of {self.total} sub-goals, {len(self.touched)} other changes"
        for name, faults in (("wrong", self.unmet), ("touched", self.touched)):
            if faults:
                more = f" and {len(faults) - SHOWN} more" if len(faults) > SHOWN else ""
                text += f"; {name}: " + "; ".join(faults[:SHOWN]) + more
        return text


def final_state(world: World, files: Mapping[str, bytes], folders: Iterable[str], rows: Rows, answer: str) -> Final:
    """Compare an office with what it was. Only files whose bytes differ are looked into."""
    changed: dict[Atom, tuple[Any, Any]] = {}
    for folder in world.folders ^ set(folders):
        changed["folder", folder] = (folder in world.folders or None, folder not in world.folders or None)
    for path in sorted(world.files.keys() | files.keys()):
        before, after = world.files.get(path), files.get(path)
        if before != after:
            changed.update(_file_atoms(path, before, after))
    for name, table in world.tables.items():
        old, new = ({str(row[0]): row for row in part} for part in (table.rows, rows.get(name, [])))
        for key in old.keys() | new.keys():
            if old.get(key) != new.get(key):
                changed["row", name, key] = (old.get(key), new.get(key))
    drafts = [
        (path, *read_mail(files[path]))
        for path in sorted(files)
        if path.startswith(f"{DRAFTS}/") and path not in world.files
    ]
    return Final(changed, drafts, answers_of(answer))


def _file_atoms(path: str, before: bytes | None, after: bytes | None) -> dict[Atom, tuple[Any, Any]]:
    """The atoms of a file whose bytes differ: cells or events where both can be read, else the whole file."""
    whole: dict[Atom, tuple[Any, Any]] = {("file", path): (before, after)}
    if before is None or after is None:
        return whole
    old: dict[Atom, Any]
    new: dict[Atom, Any]
    try:
        if path.endswith(".xlsx"):
            old, new = (_cells(path, data) for data in (before, after))
        elif path.endswith(".ics"):
            old, new = (_events(path, data) for data in (before, after))
        else:
            return whole
    except UnreadableDocumentError:
        return whole
    return {
        atom: (old.get(atom), new.get(atom))
        for atom in sorted(old.keys() | new.keys())
        if old.get(atom) != new.get(atom)
    }


def _cells(path: str, data: bytes) -> dict[Atom, Any]:
    pages = read_sheets(data)
    cells: dict[Atom, Any] = {("page", path, title): True for title in pages}
    for title, (grid, _, _) in pages.items():
        cells.update({("cell", path, title, place): value for place, value in grid.items()})
    return cells


def _events(path: str, data: bytes) -> dict[Atom, Any]:
    owner, events = read_calendar(data)
    return {("owner", path): owner, **{("event", path, event.uid): event for event in events}}


def judge(world: World, final: Final) -> Verdict:
    """Judge every sub-goal of every goal, then whatever changed besides."""
    met, total, unmet, shares = 0, 0, [], []
    owned: set[Atom] = set()
    for goal in world.goals:
        before = met
        for want in goal.wants:
            problem, atoms = want.judge(final)
            owned |= atoms
            total += 1
            met += not problem
            if problem:
                unmet.append(f"{want.label}: {problem}")
        shares.append((met - before) / len(goal.wants))
    owned |= {
        ("folder", str(parent)) for atom in owned if atom[0] == "file" for parent in PurePosixPath(atom[1]).parents
    }
    touched = sorted(" ".join(atom) for atom in final.changed if atom not in owned)
    return Verdict(met, total, unmet, touched, tuple(shares))
