"""What the classifier sees of a text: words, marks and shapes, made from bytes in one compiled pass.

A domain shows in what a text says and in how it is written, not in the names of packages. So identifiers become their
shape (`xdot`, `xsnake`, `xcamel`), figures `xnum`, line breaks `xline` or `xind`; words are lower-cased; every
operator, bracket and TeX command is a token of its own. Of long texts the beginning, the middle and the end are read.

The result is one line of text: no newline, no NUL, and no word that fastText could take for a label, because a word
with an underscore becomes `xsnake`.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,assignment"
from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import types

from filters.text.dedup.compiled import bare, inlined
from filters.text.dedup.sketch import string_buffers
from filters.text.dedup.tables import tables
from filters.text.dedup.utf8 import class_of, decode

__all__ = ["DEFAULT_BYTES", "feature_lines"]

DEFAULT_BYTES = 3000  # read of one document: half from its beginning, a quarter from its middle, a quarter from its end
_GROWTH = 8  # bytes that one input byte can become: "\n" is " xline " and a letter with spaces around is 3

U8, U32, U64, I64 = types.uint8, types.uint32, types.uint64, types.int64
RO8 = types.Array(U8, 1, "C", readonly=True)
ROI64 = types.Array(I64, 1, "C", readonly=True)
RO32 = types.Array(U32, 1, "C", readonly=True)
W8 = types.Array(U8, 1, "C")
WI64 = types.Array(I64, 1, "C")

_SHAPES = b"xnum  xsnakexcamelxdot  xline xind  "  # six bytes each, blanks are not written
NUMBER, SNAKE, CAMEL, DOTTED, LINE, INDENT = range(6)


@inlined
def _is_letter(byte):
    """A-Z, a-z or underscore."""
    return ((byte | np.uint8(0x20)) >= 97) & ((byte | np.uint8(0x20)) <= 122) | (byte == 95)


@inlined
def _is_digit(byte):
    return (byte >= 48) & (byte <= 57)


@bare(I64(W8, I64, RO8, I64))
def _put_shape(out, used, shapes, shape):
    """Append one of the shape words and a space."""
    for index in range(shape * 6, shape * 6 + 6):
        if shapes[index] != 0x20:
            out[used] = shapes[index]
            used += 1
    out[used] = np.uint8(0x20)
    return used + 1


@bare(I64(RO8, I64, I64, RO32))
def _word_end(data, at, stop, points):
    """Where the run of letters, digits, underscores and other word characters that starts at `at` ends."""
    while at < stop:
        byte = data[at]
        if byte < 0x80:
            if not (_is_letter(byte) or _is_digit(byte)):
                break
            at += 1
        else:
            point, size = decode(data, np.uint64(at), np.uint64(stop))
            if not class_of(point, points) & np.uint32(0x80000000):
                break
            at += np.int64(size)
    return at


@bare(I64(RO8, I64, I64, RO32, RO8, W8, I64))
def _put_word(data, at, stop, points, shapes, out, used):
    """Append the word or identifier at `at` in its form; returns (its bytes << 40 | bytes used)."""
    end = _word_end(data, at, stop, points)
    dotted = False
    while end + 1 < stop and data[end] == 46 and _is_letter(data[end + 1]):
        end = _word_end(data, end + 1, stop, points)
        dotted = True
    if dotted:
        return ((end - at) << 40) | _put_shape(out, used, shapes, DOTTED)
    snake = False
    upper = 0
    lower = 0
    for index in range(at, end):
        byte = data[index]
        snake |= byte == 95
        upper += (index > at) & (byte >= 65) & (byte <= 90)
        lower += (byte >= 97) & (byte <= 122)
    if snake:
        return ((end - at) << 40) | _put_shape(out, used, shapes, SNAKE)
    if upper > 0 and lower > 0:
        return ((end - at) << 40) | _put_shape(out, used, shapes, CAMEL)
    for index in range(at, end):
        byte = data[index]
        out[used] = byte | np.uint8(0x20) if (byte >= 65) & (byte <= 90) else byte
        used += 1
    out[used] = np.uint8(0x20)
    return ((end - at) << 40) | (used + 1)


@bare(I64(RO8, I64, I64))
def _mark_size(data, at, stop):
    """Bytes of the ASCII mark at `at`: a TeX command, an operator of two or three characters, or one character."""
    first = data[at]
    second = data[at + 1] if at + 1 < stop else np.uint8(0)
    third = data[at + 2] if at + 2 < stop else np.uint8(0)
    if first == 92 and _is_letter(second):
        end = at + 1
        while end < stop and _is_letter(data[end]) and data[end] != 95:
            end += 1
        return max(2, end - at)
    if first == second and first == third and (first == 62 or first == 46):  # >>> ...
        return 3
    if first == second and (first == 58 or first == 61 or first == 47):  # :: == //
        return 2
    if second == 62 and (first == 45 or first == 61):  # -> =>
        return 2
    if second == 61 and (first == 33 or first == 60 or first == 62 or first == 58):  # != <= >= :=
        return 2
    if (first == 47 and second == 42) or (first == 42 and second == 47):  # /* */
        return 2
    return 1


@bare(I64(RO8, I64, I64, RO32, RO8, W8, I64))
def _put_span(data, at, stop, points, shapes, out, used):
    """Append the tokens of data[at:stop]; returns the bytes used."""
    while at < stop:
        byte = data[at]
        if _is_letter(byte):
            packed = _put_word(data, at, stop, points, shapes, out, used)
            at += packed >> 40
            used = packed & 0xFFFFFFFFFF
        elif byte == 10:
            at += 1
            begin = at
            while at < stop and (data[at] == 32 or data[at] == 9 or data[at] == 13):
                at += 1
            used = _put_shape(out, used, shapes, INDENT if at > begin else LINE)
        elif byte <= 0x20 or byte == 0x7F:
            at += 1
        elif _is_digit(byte):
            while at < stop and (_is_digit(data[at]) or data[at] == 46 or data[at] == 44):
                at += 1
            used = _put_shape(out, used, shapes, NUMBER)
        elif byte < 0x80:
            size = _mark_size(data, at, stop)
            for index in range(at, at + size):
                out[used] = data[index]
                used += 1
            out[used] = np.uint8(0x20)
            used += 1
            at += size
        else:
            point, size = decode(data, np.uint64(at), np.uint64(stop))
            entry = class_of(point, points)
            if entry & np.uint32(0x80000000):
                packed = _put_word(data, at, stop, points, shapes, out, used)
                at += packed >> 40
                used = packed & 0xFFFFFFFFFF
            else:
                if entry != 0 and point != np.uint32(0xFFFD):
                    for index in range(at, at + np.int64(size)):
                        out[used] = data[index]
                        used += 1
                    out[used] = np.uint8(0x20)
                    used += 1
                at += np.int64(size)
    return used


@bare(I64(RO8, ROI64, I64, RO32, RO8, W8, WI64))
def _feature_batch(data, offsets, limit, points, shapes, out, bounds):
    """Feature lines of all documents, one after another; line i is out[bounds[i]:bounds[i + 1]]."""
    used = 0
    for row in range(offsets.shape[0] - 1):
        start, end = offsets[row], offsets[row + 1]
        if end - start <= limit:
            used = _put_span(data, start, end, points, shapes, out, used)
        else:
            half, quarter = limit // 2, limit // 4
            middle = (start + end) // 2
            for begin, stop in ((start, start + half), (middle, middle + quarter), (end - quarter, end)):
                while begin < stop and data[begin] & 0xC0 == 0x80:
                    begin += 1
                used = _put_span(data, begin, stop, points, shapes, out, used)
        bounds[row + 1] = used
    return used


def feature_lines(texts: pa.Array, limit: int = DEFAULT_BYTES) -> list[str]:
    """One line of features for each text, in order; an empty text gives an empty line.

    `limit` is the most bytes of one text that are read. Cost: about 5 ms a MB read. Raises TypeError when `texts` is
    not a string array.
    """
    data, offsets = string_buffers(texts)
    sizes: npt.NDArray[np.int64] = np.minimum(np.diff(offsets), limit)
    out = np.empty(int(sizes.sum()) * _GROWTH + 16, np.uint8)
    bounds = np.zeros(len(offsets), np.int64)
    shapes = np.frombuffer(_SHAPES, np.uint8)
    _feature_batch(data, offsets, limit, tables().points, shapes, out, bounds)
    line = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(texts), [None, pa.py_buffer(bounds), pa.py_buffer(out)]
    )
    return [value.decode("utf-8", "replace") for value in line.to_pylist()]
