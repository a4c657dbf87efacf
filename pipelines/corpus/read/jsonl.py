"""JSON Lines, plain or compressed with gzip or zstandard (told apart by their first bytes, not by the name).

A record ends at \\n and nowhere else: U+2028, U+2029, U+0085 and \\r inside a record are text. A byte-order mark at the
start, blank lines, \\r\\n ends and a missing last line end are ordinary. Memory: one record and one block.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import orjson

from pipelines.compressed import DamagedError, read_blocks
from pipelines.corpus.read.records import Problem, Record, shown
from schemas.recipe import SourceConfig

__all__ = ["parse_line", "read_jsonl"]

_BOM = b"\xef\xbb\xbf"


def read_jsonl(path: str, config: SourceConfig) -> Iterator[Record | Problem]:
    """Every record of the file at `path` in file order, or what is wrong with it. Of `config` only `id` is used.

    A file that ends in the middle of its compressed data gives what could be read and then one Problem with the
    number of lines read. Raises OSError when the file cannot be opened.
    """
    number = 0
    try:
        for number, line in _lines(path):
            found = parse_line(path, number, line, config.id)
            if found is not None:
                yield found
    except DamagedError as error:
        yield Problem(
            path,
            number + 1,
            "",
            "truncated_file",
            f"{error}; {number} lines read",
            "Fetch the file again; with on_error: skip the lines before are used",
        )


def parse_line(path: str, number: int, line: bytes, id_key: str | None) -> Record | Problem | None:
    """The record of one line, or what is wrong with it; None for a blank line. `id_key` names the key of the id."""
    try:
        fields: Any = orjson.loads(line)
        if isinstance(fields, dict) and isinstance(fields.get(id_key), float):
            fields = json.loads(line)  # orjson rounds integers of more than 64 bits, and an id must stay as it was
    except orjson.JSONDecodeError:
        if not line.strip():
            return None
        try:  # slower, but takes lone surrogates, NaN and long integers
            fields = json.loads(line.decode("utf-8"))
        except UnicodeDecodeError as error:
            received = shown(f"byte 0x{line[error.start]:02x} at byte {error.start + 1} of the line")
            return Problem(path, number, "", "not_utf8", received, "Convert the file to UTF-8")
        except (ValueError, RecursionError) as error:
            todo = "Each line must hold one whole JSON object"
            return Problem(path, number, "", "bad_json", shown(f"{error}: {line.decode('utf-8', 'replace')}"), todo)
    if not isinstance(fields, dict):
        todo = "Each line must hold one whole JSON object"
        return Problem(path, number, "", "not_an_object", shown(f"{type(fields).__name__}: {fields!r}"), todo)
    return Record(number, fields)


def _lines(path: str) -> Iterator[tuple[int, bytes]]:
    """1-based number and bytes of each line, split at \\n. Raises DamagedError after the last whole line."""
    number = 0
    pieces: list[bytes] = []  # of a record that no block has ended yet
    for block in read_blocks(path):
        lines = block.split(b"\n")
        if len(lines) == 1:
            pieces.append(block)
            continue
        lines[0] = b"".join([*pieces, lines[0]])
        pieces = [lines.pop()]
        for line in lines:
            number += 1
            yield number, line.removeprefix(_BOM) if number == 1 else line
    rest = b"".join(pieces)
    if rest:
        yield number + 1, rest.removeprefix(_BOM) if number == 0 else rest
