"""From one raw record to one document row, or to the reason why it cannot be one.

Whatever a reader finds goes through `to_document`, so every kind of source has the same rules: a text is a non-blank
string; every other field is taken as it comes; what Arrow cannot hold (lone surrogates) is replaced and counted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from schemas.document import document_id
from schemas.errors import InputError
from schemas.files import canonical_json
from schemas.recipe import SourceConfig

__all__ = ["Document", "Problem", "Record", "plain_value", "shown", "to_document", "without_surrogates"]

_SURROGATE = re.compile("[\ud800-\udfff]")
SHOWN = 200  # characters of a bad value that go into the set-aside file and into messages


@dataclass(frozen=True, slots=True)
class Record:
    """One raw record: its 1-based line or row, its fields by the names that the source gives them."""

    line: int
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Document:
    """One readable document. `replaced` counts the lone surrogates that became U+FFFD in any field."""

    id: str
    source_id: str | None
    text: str
    source: str
    origin: str
    license: str | None
    language: str | None
    source_domain: str | None
    replaced: int


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a record was set aside. `problem` is one of a small set of names, for counting; `todo` is for a person."""

    path: str
    line: int | None
    field: str
    problem: str
    received: str
    todo: str = ""

    def row(self) -> dict[str, Any]:
        """The record of set_aside/read.jsonl."""
        return {
            "path": shown(self.path),
            "line": self.line,
            "field": self.field,
            "problem": self.problem,
            "received": self.received,
        }

    def error(self) -> InputError:
        """The same as an error, for on_error: fail."""
        return InputError(
            f"{self.problem.replace('_', ' ')}, received {self.received}",
            path=self.path,
            line=self.line,
            field=self.field,
            todo=self.todo or "Mend the record, or set on_error: skip to set such records aside",
        )


def shown(value: object) -> str:
    """A value as one short line of text, safe to write as UTF-8."""
    text = value if isinstance(value, str) else repr(value)
    text = text if len(text) <= SHOWN else f"{text[:SHOWN]}… ({len(text)} characters)"
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def to_document(record: Record, config: SourceConfig, path: str, relative: str) -> Document | Problem:
    """The document of a record, or why there is none.

    `path` is how errors name the file; `relative` becomes the origin, with '#' and the line.
    """
    if config.text not in record.fields:
        keys = ", ".join(sorted(map(str, record.fields))[:20])
        todo = f"Name the key that holds the text in the source's 'text'; this record has: {keys}"
        return Problem(path, record.line, config.text, "missing_field", shown(f"keys: {keys}"), todo)
    text = record.fields[config.text]
    if text is None or (isinstance(text, str) and not text.strip()):
        todo = "A text holds at least one visible character. Mend the record, or set on_error: skip"
        return Problem(path, record.line, config.text, "empty_text", shown(repr(text)), todo)
    if not isinstance(text, str):
        todo = "A text is a string. Name another key in the source's 'text', mend the record, or set on_error: skip"
        return Problem(path, record.line, config.text, "wrong_type", shown(f"{type(text).__name__}: {text!r}"), todo)
    replaced = 0

    def clean(value: str | None) -> str | None:
        nonlocal replaced
        if value is None:
            return None
        whole, count = without_surrogates(value)
        replaced += count
        return whole

    text = clean(text) or ""
    return Document(
        id=document_id(text, config.name),
        source_id=clean(plain_value(record.fields.get(config.id) if config.id else None)),
        text=text,
        source=config.name,
        origin=clean(f"{relative}#{record.line}") or "",
        license=clean(plain_value(record.fields.get(config.license_field) if config.license_field else None))
        or config.license,
        language=clean(plain_value(record.fields.get(config.language_field) if config.language_field else None)),
        source_domain=clean(plain_value(record.fields.get(config.domain_field) if config.domain_field else None))
        or config.domain,
        replaced=replaced,
    )


def without_surrogates(text: str) -> tuple[str, int]:
    """`text` with every lone surrogate as U+FFFD, and how many there were. Pairs written as two become one."""
    if text.isascii():
        return text, 0
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        joined = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
        return _SURROGATE.subn("\ufffd", joined)
    return text, 0


def plain_value(value: Any) -> str | None:
    """A field other than the text: strings as they are, numbers as digits, lists and objects as JSON."""
    if value is None or isinstance(value, str):
        return value or None
    if isinstance(value, bool | int | float):
        return str(value)
    try:
        return canonical_json(value)
    except (TypeError, ValueError):
        return str(value)
