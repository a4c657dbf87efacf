"""Hashes of words by vector blocks: equal to plain Python whatever the text is and wherever it lies in its buffer."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filters.text.dedup.tables import tables
from filters.text.dedup.word_hashes import ROOM, hash_code_words, hash_words

WORD, FULL = 0x80000000, (1 << 64) - 1
TEXTS = st.text(st.sampled_from("abZ9_ \n\t\0\x1c-+.éßΩЖİ漢字\u2028\u00a0\u0301\ufffd😀𠀀"), max_size=200)


def step_of(value: int, chunk: int) -> int:
    value = ((value ^ chunk) * 0xD6E8FEB86659FD93) & FULL
    return value ^ value >> 32


def entry(point: int) -> int:
    """The table's entry of a character: controls are gaps, CJK ideographs above the table are words."""
    if point < 0x21:
        return 0
    return int(tables().points[point]) & 0xDFFFFFFF if point < 0x20000 else (point | WORD if point < 0x323B0 else 0)


def hash_of(points: list[int]) -> int:
    data = bytearray()
    for point in (entry(point) & 0x1FFFFF for point in points):
        if point < 0x80:
            data.append(point)
        elif point < 0x800:
            data += bytes([0xC0 | point >> 6, 0x80 | point & 63])
        else:
            data += bytes([0xE0, 0x80 | point >> 12 & 63, 0x80 | point >> 6 & 63, 0x80 | point & 63])
    value = 0x9AE16A3B2F90404F
    for at in range(0, max(len(data), 16), 8):
        value = step_of(value, int.from_bytes(data[at : at + 8], "little"))
    return value


def in_python(text: str, code: bool) -> list[int]:
    words: list[list[int]] = []
    inside = False
    for point in map(ord, text):
        if entry(point) & WORD:
            if not inside:
                words.append([])
            words[-1].append(point)
        elif code and entry(point) and words:
            words[-1].append(point)
        inside = bool(entry(point) & WORD)
    return [hash_of(word) for word in words]


def compiled(data: bytes, code: bool, before: bytes = b"") -> list[int]:
    """The hashes of `data` behind `before`, with work arrays that hold rubbish."""
    buffer = np.frombuffer(before + data, np.uint8)
    size = len(data) + ROOM
    low, dense = np.full(size, 0xAA, np.uint8), np.full(size, 0xAA, np.uint8)
    places, rare, out = np.full(size, 7, np.uint32), np.full(size, 7, np.uint32), np.empty(size, np.uint64)
    span, known = (len(before), len(before) + len(data)), (tables().masks, tables().points)
    if code:
        count = hash_code_words(buffer, *span, *known, low, dense, places, rare, out)
    else:
        count = hash_words(buffer, *span, *known, low, places, rare, out)
    return [int(value) for value in out[: int(count)]]


@given(TEXTS, st.binary(max_size=70), st.booleans())
@settings(max_examples=200)
def test_words_of_any_text_hash_as_in_python(text: str, before: bytes, code: bool) -> None:
    assert compiled(text.encode(), code, before) == in_python(text, code)


@pytest.mark.parametrize("letter", ["a", "Z", "é", "漢", "𠀀", "-", " "])
@pytest.mark.parametrize("length", [1, 8, 9, 16, 17, 62, 63, 64, 65, 127, 128, 129])
def test_words_at_the_ends_of_blocks_are_whole(letter: str, length: int) -> None:
    for text in (letter * length, "x" * length + f" {letter * 63} y", " " * length + letter * 65 + f".{letter}"):
        for code in (False, True):
            assert compiled(text.encode(), code) == in_python(text, code)


def test_a_word_of_a_megabyte_is_one_word() -> None:
    value = 0x9AE16A3B2F90404F
    for _ in range(1 << 17):
        value = step_of(value, int.from_bytes(b"a" * 8, "little"))
    assert compiled(b"A" * (1 << 20), False) == compiled(b"a" * (1 << 20), True) == [value]


@given(st.binary(max_size=200), st.binary(max_size=70), st.booleans())
@settings(max_examples=200)
def test_bytes_that_are_not_utf8_give_the_same_hashes_wherever_they_lie(data: bytes, before: bytes, code: bool) -> None:
    assert compiled(data, code, before) == compiled(data, code)
