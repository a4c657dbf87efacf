"""What an office is before and after the work: files, tables, goals, and the builder that the kinds of task share.

The state is seen as atoms, the smallest things that a goal or a stray hand can change:

    ("folder", path)  ("file", path)  ("cell", path, page, "B4")  ("event", path, uid)  ("row", table, key)

A goal lists `Want`s, its sub-goals: each says which values some atoms must have in the end. What changed and belongs to
no want was touched without need.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import PurePosixPath
from typing import Any

import xxhash

from pipelines.synthesis.environments.offices.words import AREAS, Company, Names, Person

__all__ = ["ANSWERS", "DRAFTS", "Atom", "Builder", "Final", "Goal", "Table", "Want", "World", "size_between"]

Atom = tuple[str, ...]
DRAFTS = "Drafts"  # where drafted mail goes
ANSWERS = "Answer"  # how the lines of the final answer begin


@dataclass(frozen=True, slots=True)
class Final:
    """The end of a run: `changed` maps atoms to (value before, value after), None for what is not there.

    `drafts` are (path, headers, body) of mail drafted; `answers` the numbered answer lines of the last turn.
    """

    changed: Mapping[Atom, tuple[Any, Any]]
    drafts: Sequence[tuple[str, Mapping[str, str], str]]
    answers: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class Want:
    """A sub-goal: the values that atoms must have (None: gone), or a test of the end for what has no single right form.

    A test gives (what is wrong, "" when met; the atoms that it accounts for).
    """

    label: str
    expects: Mapping[Atom, Any] = field(default_factory=dict)
    test: Callable[[Final], tuple[str, set[Atom]]] | None = None

    def judge(self, final: Final) -> tuple[str, set[Atom]]:
        """(what is wrong or "", atoms that belong to this sub-goal)."""
        if self.test is not None:
            return self.test(final)
        for atom, wanted in self.expects.items():
            if atom not in final.changed:
                return f"{_named(atom)} is unchanged", set(self.expects)
            after = final.changed[atom][1]
            if not same_value(after, wanted):
                return f"{_named(atom)} is {_shown(after)}, not {_shown(wanted)}", set(self.expects)
        return "", set(self.expects)


def same_value(given: Any, wanted: Any) -> bool:
    """Equal, numbers to half a cent (cells and columns hold floats)."""
    if isinstance(given, int | float) and isinstance(wanted, int | float):
        return abs(given - wanted) < 0.005
    if isinstance(given, tuple) and isinstance(wanted, tuple):
        return len(given) == len(wanted) and all(map(same_value, given, wanted))
    return bool(given == wanted)


def _named(atom: Atom) -> str:
    return " ".join(atom)


def _shown(value: Any) -> str:
    if value is None:
        return "absent"
    if isinstance(value, bytes):
        return f"a file of {len(value)} bytes"
    text = str(value)
    return text if len(text) <= 60 else text[:59] + "…"


@dataclass(frozen=True, slots=True)
class Goal:
    """One piece of work: what is asked, its sub-goals, the tools it needs, and `plan`, what its teacher knows."""

    kind: str
    text: str
    wants: tuple[Want, ...]
    tools: frozenset[str]
    plan: Any


@dataclass(frozen=True, slots=True)
class Table:
    """A database table: its CREATE statement, whose first column is the key, and its rows."""

    ddl: str
    rows: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True, slots=True)
class World:
    """An office before the work. Never changed: one world may serve several runs."""

    system: str
    instruction: str
    files: Mapping[str, bytes]
    folders: frozenset[str]
    tables: Mapping[str, Table]
    goals: tuple[Goal, ...]
    user: str = ""  # the name of whom the assistant works for

    def digest(self) -> str:
        """128-bit xxh3 of files, folders and tables, as 32 hex digits."""
        state = xxhash.xxh3_128()
        for path in sorted(self.files):
            state.update(f"{path}\0{len(self.files[path])}\0".encode())
            state.update(self.files[path])
        state.update("\0".join(sorted(self.folders)).encode())
        for name in sorted(self.tables):
            state.update(f"{name}{self.tables[name].ddl}{self.tables[name].rows!r}".encode())
        return state.hexdigest()


def size_between(budget: float, fixed: float, each: float, low: int, high: int) -> int:
    """How many items a budget of tokens pays for, within bounds."""
    return max(low, min(high, round((budget - fixed) / each)))


class Builder:
    """Makes one world. `detail` (0 to 1) grows with the difficulty: longer documents, more cases of a rule."""

    def __init__(self, generator: random.Random, difficulty: float) -> None:
        self.random = generator
        self.detail = (difficulty - 1) / 9
        self.names = Names(generator)
        self.firm: Company = self.names.company()
        self.year = generator.randint(2019, 2031)
        self.user: Person = self.names.person(self.firm.domain)
        self.staff: list[Person] = [self.names.person(self.firm.domain) for _ in range(6 + round(8 * self.detail))]
        self.files: dict[str, bytes] = {}
        self.folders: set[str] = set()
        self.tables: dict[str, Table] = {}
        self.questions = 0  # answer lines asked for so far
        self._areas = generator.sample(AREAS, len(AREAS))

    def area(self) -> str:
        """A department folder of its own for a goal."""
        name = self._areas.pop()
        self.folder(name)
        return name

    def folder(self, path: str) -> str:
        """Note a folder and those above it."""
        place = PurePosixPath(path)
        self.folders.update(str(part) for part in (place, *place.parents) if str(part) != ".")
        return path

    def add(self, path: str, data: str | bytes) -> str:
        """A new file. Raises ValueError when there is one of that path."""
        if path in self.files:
            raise ValueError(f"{path} is there already")
        self.folder(str(PurePosixPath(path).parent))
        self.files[path] = data.encode() if isinstance(data, str) else data
        return path

    def table(self, name: str, columns: str, rows: Sequence[tuple[Any, ...]]) -> str:
        """A table; gives its name, made unique."""
        unique = name if name not in self.tables else f"{name}_{len(self.tables)}"
        self.tables[unique] = Table(f"CREATE TABLE {unique} ({columns})", tuple(rows))
        return unique

    def day(self, month: int | None = None) -> date:
        """A day of the task's year."""
        first = date(self.year, month or self.random.randint(1, 12), 1)
        return first + timedelta(days=self.random.randrange(28))

    def lines(self, low: int, high: int) -> int:
        """A length of a document: around what the detail gives between `low` and `high`."""
        middle = low + (high - low) * self.detail
        return max(low, round(middle * self.random.uniform(0.7, 1.3)))

    def cents(self, low: int, high: int) -> int:
        """An amount in cents between whole units, often a round one."""
        value = self.random.randint(low * 100, high * 100)
        return value - value % self.random.choice((1, 5, 10, 50, 100))

    def question(self) -> int:
        """The number of a further answer line."""
        self.questions += 1
        return self.questions
