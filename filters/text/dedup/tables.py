"""What a byte or a character means to a profile: part of a word, a mark that is kept, or a gap.

text  words are runs of `\\w` (letters, digits, underscore) of the lower-cased text, as in Python's `re`; numbers
      stay, so two sums with different figures differ.
code  the same words, and every other visible character belongs to the word before it: `a + b` and `a - b` have
      different shingles, while the number of words, hence the scale of the similarity, is that of `text`.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["CODE", "PROFILES", "TEXT", "Tables", "profile_of_domain", "tables"]

TEXT, CODE = 0, 1
PROFILES = ("text", "code")
POINTS = 0x20000  # code points above are words when they are CJK ideographs (up to 0x323AF), else gaps
WORD_FLAG = np.uint32(1 << 31)
MARK_FLAG = np.uint32(1 << 30)
NFC_FLAG = np.uint32(1 << 29)
HASH_SEED = 0x646D6978  # fixed, for signatures are stored and compared between runs

Words = npt.NDArray[np.uint64]


def profile_of_domain(domain: str | None) -> int:
    """The profile for documents whose source says `domain`: CODE for "code", TEXT for everything else."""
    return CODE if domain == "code" else TEXT


@dataclass(frozen=True, slots=True)
class Tables:
    """Look-up tables of both profiles (row 0 text, row 1 code where there are two rows).

    `hashes` (2, 256) uint64: random value of an ASCII byte, 0 for a gap; upper case holds its lower-case value.
    `words` (2, 256) and `kept` (2, 256) uint64: all ones for bytes of words, of words or marks.
    `points` (0x20000,) uint32: lower-case code point with WORD_FLAG or MARK_FLAG on top, 0 for white space; NFC_FLAG
    is set where Unicode composition may change the character or join it to the one before.
    """

    hashes: npt.NDArray[np.uint64]
    words: npt.NDArray[np.uint64]
    kept: npt.NDArray[np.uint64]
    points: npt.NDArray[np.uint32]


@cache
def tables() -> Tables:
    """The tables, made once a process (about 30 ms)."""
    points = np.zeros(POINTS, np.uint32)
    for point in range(POINTS):
        if 0xD800 <= point < 0xE000:
            continue  # surrogates: never in valid UTF-8
        character = chr(point)
        if character.isalnum() or character == "_":
            points[point] = ord(character.lower()[0]) | int(WORD_FLAG)
        elif not character.isspace():
            points[point] = point | int(MARK_FLAG)
    for point in _unstable_points():
        points[point] |= NFC_FLAG
    generator: Any = np.random.Generator(np.random.PCG64(HASH_SEED))
    values = generator.integers(1, 2**63, 128, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    hashes = np.zeros((2, 256), np.uint64)
    words = np.zeros((2, 256), np.uint64)
    kept = np.zeros((2, 256), np.uint64)
    ones = np.uint64(2**64 - 1)
    for byte in range(128):
        entry = int(points[byte])
        lower = values[entry & 0x1FFFFF] if entry else np.uint64(0)
        if entry & int(WORD_FLAG):
            hashes[:, byte], words[:, byte], kept[:, byte] = lower, ones, ones
        elif entry & int(MARK_FLAG) and byte >= 0x20:  # control characters are gaps in both profiles
            hashes[CODE, byte], kept[CODE, byte] = lower, ones
    return Tables(hashes, words, kept, points)


def _unstable_points() -> set[int]:
    """Code points below POINTS whose NFC quick check is not "yes" (Unicode Standard Annex 15, section 9)."""
    found = set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))  # Hangul vowels and finals compose by rule
    for point in range(0x80, POINTS):
        if 0xD800 <= point < 0xE000:
            continue
        character = chr(point)
        if unicodedata.combining(character) or unicodedata.normalize("NFC", character) != character:
            found.add(point)
        parts = unicodedata.decomposition(character)
        if parts and not parts.startswith("<"):
            found.update(int(part, 16) for part in parts.split()[1:])
    return found
