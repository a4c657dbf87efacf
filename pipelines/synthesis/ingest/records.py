"""What readers take and give: places in files, records set aside, the reader interface."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import orjson

from schemas.trajectory import Trajectory

__all__ = ["Notes", "Place", "Reader", "RecordError", "Session", "SetAside", "parse_json", "shorten"]

_SHOWN = 160


def shorten(value: Any, limit: int = _SHOWN) -> str:
    """A value as one short line for a message: long text is cut and its length stated."""
    if isinstance(value, dict):
        text = "object with keys " + ", ".join(str(key) for key in list(value)[:12])
    elif isinstance(value, list):
        text = f"array of {len(value)}"
    else:
        text = value if isinstance(value, str) else repr(value)
    if len(text) <= limit:
        return text
    return f"{text[:limit]}… ({len(text)} characters)"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record stands: the file as it was named, and the record inside it ('line 3', '[12]', "key '7'", '')."""

    path: str
    record: str = ""

    def __str__(self) -> str:
        return f"{self.path}:{self.record}" if self.record else self.path

    def inside(self, record: str) -> Place:
        """The place of a part of this record."""
        return Place(self.path, f"{self.record} {record}".strip())


@dataclass(frozen=True, slots=True)
class SetAside:
    """A file, record or line that gives no trajectory (or less of one), and why.

    `format` is the reader that refused it, None when none recognised it.
    """

    path: str
    record: str
    field: str
    problem: str
    received: str
    format: str | None = None

    def to_row(self) -> dict[str, Any]:
        """A JSON-able row."""
        return asdict(self)


class RecordError(Exception):
    """Raised by a reader for a record that it cannot read; becomes a SetAside."""

    def __init__(self, field: str, problem: str, received: Any = "") -> None:
        super().__init__(f"{field}: {problem}" if field else problem)
        self.field, self.problem, self.received = field, problem, shorten(received)

    def at(self, place: Place, format_name: str | None) -> SetAside:
        """The row for this error at `place`."""
        return SetAside(place.path, place.record, self.field, self.problem, self.received, format_name)


class Notes:
    """Repairs made to one record, counted: equal ones become one line with a count."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, text: str, times: int = 1) -> None:
        """Count `text` once more."""
        if times > 0:
            self._counts[text] += times

    def include(self, others: Notes) -> None:
        """Add the notes of `others` with their counts."""
        self._counts.update(others._counts)

    def lines(self) -> list[str]:
        """'text' or 'text: N', in the order of first mention."""
        return [text if count == 1 else f"{text}: {count}" for text, count in self._counts.items()]


@dataclass(frozen=True, slots=True)
class Session:
    """A file whose lines together are one run: (1-based line number, parsed value) of every line that is JSON."""

    lines: list[tuple[int, Any]]

    def share(self, known: Any) -> float:
        """The share of lines for which `known(value)` is true (0 for no lines)."""
        return sum(1 for _, value in self.lines if known(value)) / len(self.lines) if self.lines else 0.0


class Reader(Protocol):
    """One format. A reader object serves one file (it may remember what it saw earlier in that file)."""

    name: str

    def matches(self, value: Any) -> float:
        """How surely `value` (a parsed JSON value, or a Session of lines) is of this format: 0 no … 1 certain."""

    def read(self, value: Any, place: Place) -> Iterator[Trajectory | SetAside]:
        """The trajectories of one value. Raises RecordError when the value cannot be read."""


def parse_json(data: bytes) -> tuple[Any, list[str]]:
    """(value, repairs) of one JSON text. Raises ValueError saying where the text stops being JSON.

    orjson refuses what some writers emit (NaN, Infinity, lone surrogates, bytes that are not UTF-8): those are read
    by the standard library, replaced by null or U+FFFD, and named in `repairs`. A byte order mark is no repair.
    """
    data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        return orjson.loads(data), []
    except orjson.JSONDecodeError as refusal:
        repairs: list[str] = []
        text = data.decode("utf-8", "replace")
        if "\ufffd" in text and b"\xef\xbf\xbd" not in data:
            repairs.append("bytes that are not UTF-8 replaced by U+FFFD")
        try:
            value = json.loads(text, parse_constant=lambda name: repairs.append(f"{name} read as null"))
        except (ValueError, RecursionError):
            raise refusal from None
        return _clean(value, repairs), repairs


def _clean(value: Any, repairs: list[str]) -> Any:
    """Replace lone surrogates, which no UTF-8 file can hold, by U+FFFD."""
    if isinstance(value, str):
        if value.isascii():
            return value
        clean = value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        if clean != value:
            repairs.append("lone surrogates replaced by U+FFFD")
        return clean
    if isinstance(value, list):
        return [_clean(item, repairs) for item in value]
    if isinstance(value, dict):
        return {_clean(key, repairs): _clean(item, repairs) for key, item in value.items()}
    return value
