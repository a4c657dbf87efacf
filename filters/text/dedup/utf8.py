"""UTF-8 inside compiled loops: one character at a time, whatever the bytes are."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"
from __future__ import annotations

import numpy as np

from filters.text.dedup.compiled import inlined

__all__ = ["class_of", "decode"]


@inlined
def decode(data, at, end):
    """(code point, bytes) of the UTF-8 sequence at `at`; broken sequences give (0xFFFD, 1)."""
    one = np.uint64(1)
    lead = np.uint32(data[at])
    left = end - at
    if lead >= 0xC2 and lead < 0xE0 and left > one:
        return ((lead & np.uint32(0x1F)) << np.uint32(6)) | (np.uint32(data[at + one]) & np.uint32(0x3F)), np.uint64(2)
    if lead >= 0xE0 and lead < 0xF0 and left > np.uint64(2):
        point = (lead & np.uint32(0x0F)) << np.uint32(12)
        point |= (np.uint32(data[at + one]) & np.uint32(0x3F)) << np.uint32(6)
        return point | (np.uint32(data[at + np.uint64(2)]) & np.uint32(0x3F)), np.uint64(3)
    if lead >= 0xF0 and lead < 0xF5 and left > np.uint64(3):
        point = (lead & np.uint32(0x07)) << np.uint32(18)
        point |= (np.uint32(data[at + one]) & np.uint32(0x3F)) << np.uint32(12)
        point |= (np.uint32(data[at + np.uint64(2)]) & np.uint32(0x3F)) << np.uint32(6)
        return point | (np.uint32(data[at + np.uint64(3)]) & np.uint32(0x3F)), np.uint64(4)
    return np.uint32(0xFFFD), one


@inlined
def class_of(point, points):
    """The entry of `points` for a code point: CJK ideographs above the table are words, the rest gaps."""
    if point < np.uint32(0x20000):
        return points[point] & np.uint32(0xDFFFFFFF)
    if point < np.uint32(0x323B0):
        return point | np.uint32(0x80000000)
    return np.uint32(0)
