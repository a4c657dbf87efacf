"""Opening files and cutting them into JSON values, by content and never by name.

Plain, gzip and zstd files are read as one stream of bytes. A stream is one of: lines (each a JSON value), an array,
an object, YAML, Parquet, a zip (Inspect's .eval), or plain text. Arrays and maps are cut into elements without
parsing the whole, so memory holds one element at a time; a single top-level object that is no map of records is
parsed whole (it is one trajectory or one evaluation log).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Literal, cast

from pipelines.compressed import BlockStream, DamagedError
from pipelines.synthesis.ingest.records import parse_json

__all__ = ["Kind", "elements", "open_stream", "pairs", "read_lines", "sniff"]

Kind = Literal["empty", "lines", "array", "object", "yaml", "parquet", "zip", "text"]

HEAD_BYTES = 1 << 16
_CHUNK = 1 << 20
_ZIP, _PARQUET = b"PK\x03\x04", b"PAR1"
_BOM = b"\xef\xbb\xbf"
_YAML_KEY = re.compile(rb"^(history|trajectory|messages):[ \t]*\r?$", re.M)
# Up to and including the next bracket that is outside a string. Objects and arrays without brackets inside are passed
# over in one go, so a step of the loop in `_value` is one nesting, not one brace. Possessive: no backtracking.
_PLAIN = rb'(?:[^"\[\]{}]++|"[^"\\]*+(?:\\.[^"\\]*+)*+")*+'
_TO_BRACKET = re.compile(
    rb"(?:" + _PLAIN + rb"(?:\{" + _PLAIN + rb"\}|\[" + _PLAIN + rb"\]))*+" + _PLAIN + rb"([\[\]{}])", re.S
)
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.S)
_SCALAR = re.compile(rb"[^,\]}\s]+")
_SPACE = b" \t\r\n"


def open_stream(path: str) -> IO[bytes]:
    """The decompressed bytes of a file; a read after the damage of a cut file raises EOFError."""
    return cast("IO[bytes]", BlockStream(path))


def read_up_to(stream: IO[bytes], size: int) -> bytes:
    """`size` bytes, or fewer at the end (streams of decompressors may return short) or before damage."""
    pieces: list[bytes] = []
    have = 0
    while have < size:
        try:
            piece = stream.read(size - have)
        except DamagedError:
            if not pieces:
                raise
            break
        if not piece:
            break
        pieces.append(piece)
        have += len(piece)
    return b"".join(pieces)


def sniff(path: str) -> Kind:
    """What a file is, from its first bytes; a first line longer than these is followed to its end, not held."""
    with open_stream(path) as stream:
        head = read_up_to(stream, HEAD_BYTES)
        kind = _kind_of(head)
        if kind is not None:
            return kind
        last, more = head[-1:], False
        while True:
            try:
                chunk = read_up_to(stream, _CHUNK)
            except DamagedError:  # whoever reads the records meets it
                break
            line, newline, rest = chunk.partition(b"\n")
            last = (last + line).rstrip()[-1:] or last
            if newline:
                more = bool(rest.strip()) or _goes_on(stream)
            if newline or not chunk:
                break
    opening, closing = head.removeprefix(_BOM).lstrip()[:1], {b"{": b"}", b"[": b"]"}
    if more and last == closing[opening]:
        return "lines"
    return "array" if opening == b"[" else "object"


def _goes_on(stream: IO[bytes]) -> bool:
    try:
        return bool(read_up_to(stream, HEAD_BYTES).strip())
    except DamagedError:
        return True


def _kind_of(head: bytes) -> Kind | None:
    """What the first bytes say; None when they are one line of JSON whose end is not among them."""
    if head.startswith(_PARQUET):
        return "parquet"
    if head.startswith(_ZIP):
        return "zip"
    body = head.removeprefix(_BOM).lstrip()
    if not body:
        return "empty"
    first, newline, rest = body.partition(b"\n")
    if body[:1] not in (b"[", b"{") or b"\x00" in head:
        if _parses(first) and _opens(rest):
            return "lines"
        return "yaml" if _YAML_KEY.search(head) else "text"
    if not newline and len(head) == HEAD_BYTES:
        return None
    single: Kind = "array" if body[:1] == b"[" else "object"
    if _parses(first):
        return "lines" if rest.strip() else single
    second = rest.lstrip().partition(b"\n")[0]
    if len(first.strip()) > 1 and second[:1] == b"{" and _parses(second):
        return "lines"  # the first line is broken, the second is a whole value
    return single


def _opens(text: bytes) -> bool:
    return text.lstrip()[:1] in (b"{", b"[")


def _parses(text: bytes) -> bool:
    try:
        parse_json(text)
    except ValueError:
        return False
    return True


def read_lines(stream: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """(1-based number, bytes without the newline) of every line that is not blank."""
    number, pending = 0, b""
    while True:
        chunk = stream.read(_CHUNK)
        if not chunk:
            break
        lines = (pending + chunk).split(b"\n")
        pending = lines.pop()
        for line in lines:
            number += 1
            if number == 1:
                line = line.removeprefix(_BOM)
            if line and not line.isspace():
                yield number, line
    if pending and not pending.isspace():
        yield number + 1, pending.removeprefix(_BOM) if number == 0 else pending


@dataclass(slots=True)
class _Window:
    """The part of a stream that is in memory."""

    stream: IO[bytes]
    data: bytes = b""
    at: int = 0
    ended: bool = False

    def more(self, keep_from: int) -> int:
        """Drop what is before `keep_from`, read on (as much again as is held); returns the new position of it."""
        held = self.data[keep_from:]
        piece = read_up_to(self.stream, max(_CHUNK, len(held)))
        self.ended = not piece
        self.data, self.at = held + piece, self.at - keep_from
        return 0

    def skip(self, allowed: bytes) -> bytes:
        """Move past bytes of `allowed`; the next byte, or b'' at the end."""
        while True:
            while self.at < len(self.data) and self.data[self.at] in allowed:
                self.at += 1
            if self.at < len(self.data):
                return self.data[self.at : self.at + 1]
            if self.ended:
                return b""
            self.more(self.at)


def _value(window: _Window) -> bytes:
    """The bytes of the JSON value that starts at the window's position. Raises ValueError when it is cut."""
    opening = window.data[window.at : window.at + 1]
    start = window.at
    if opening in (b"{", b"["):
        depth, scan = 1, start + 1
        while True:
            match = _TO_BRACKET.match(window.data, scan)
            if match is None:
                if window.ended:
                    raise ValueError("the text ends inside a value")
                scan -= start
                window.at = start
                start = window.more(start)
                continue
            scan = match.end()
            depth += 1 if match.group(1) in b"[{" else -1
            if depth == 0:
                window.at = scan
                return window.data[start:scan]
    pattern = _STRING if opening == b'"' else _SCALAR
    while True:
        match = pattern.match(window.data, start)
        if match is not None and (match.end() < len(window.data) or window.ended):
            window.at = match.end()
            return match.group()
        if window.ended:
            raise ValueError("the text ends inside a value")
        window.at = start
        start = window.more(start)


def elements(stream: IO[bytes]) -> Iterator[bytes]:
    """The elements of a top-level JSON array, one at a time as bytes.

    Raises ValueError when the array is cut or what follows an element is neither ',' nor ']'.
    """
    window = _Window(stream)
    if window.skip(_SPACE + _BOM) != b"[":
        raise ValueError("no '[' at the start")
    window.at += 1
    if window.skip(_SPACE) == b"]":
        return
    while True:
        window.skip(_SPACE)
        yield _value(window)
        following = window.skip(_SPACE)
        if following == b"]":
            return
        if following != b",":
            raise ValueError("the array is not closed" if not following else f"{following!r} after an element")
        window.at += 1


def pairs(stream: IO[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """The (key text, value) pairs of a top-level JSON object as bytes; errors as in `elements`."""
    window = _Window(stream)
    if window.skip(_SPACE + _BOM) != b"{":
        raise ValueError("no '{' at the start")
    window.at += 1
    if window.skip(_SPACE) == b"}":
        return
    while True:
        if window.skip(_SPACE) != b'"':
            raise ValueError("a key is missing")
        key = _value(window)
        if window.skip(_SPACE) != b":":
            raise ValueError("no ':' after a key")
        window.at += 1
        window.skip(_SPACE)
        yield key, _value(window)
        following = window.skip(_SPACE)
        if following == b"}":
            return
        if following != b",":
            raise ValueError("the object is not closed" if not following else f"{following!r} after a value")
        window.at += 1
