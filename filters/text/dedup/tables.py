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


def profile_of_domain(domain: str | None) -> int:
    """The profile for documents whose source says `domain`: CODE for "code", TEXT for everything else."""
    return CODE if domain == "code" else TEXT


@dataclass(frozen=True, slots=True)
class Tables:
    """Look-up tables of the kernels.

    `masks` (9,) uint64: masks[n] has the low n bytes set.
    `points` (0x20000,) uint32: lower-case code point with WORD_FLAG or MARK_FLAG on top, 0 for white space; NFC_FLAG
    is set where Unicode composition may change the character or join it to the one before.
    """

    masks: npt.NDArray[np.uint64]
    points: npt.NDArray[np.uint32]


@cache
def tables() -> Tables:
    """The tables, made once a process (about 60 ms)."""
    characters = [chr(point) for point in range(POINTS)]
    numbers = np.arange(POINTS, dtype=np.uint32)
    words = np.fromiter((c.isalnum() for c in characters), bool, POINTS)
    words[ord("_")] = True
    spaces = np.fromiter((c.isspace() for c in characters), bool, POINTS)
    lower = np.fromiter((ord(c.lower()[0]) for c in characters), np.uint32, POINTS)
    points = np.where(words, lower | WORD_FLAG, np.where(spaces, np.uint32(0), numbers | MARK_FLAG))
    points[0xD800:0xE000] = 0  # surrogates: never in valid UTF-8
    points[_unstable_points(characters)] |= NFC_FLAG
    masks = np.array([(1 << 8 * size) - 1 for size in range(9)], np.uint64)
    return Tables(masks, points.astype(np.uint32))


def _unstable_points(characters: list[str]) -> list[int]:
    """Code points below POINTS whose NFC quick check is not "yes" (Unicode Standard Annex 15, section 9)."""
    found = set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))  # Hangul vowels and finals compose by rule
    for point in [*range(0x80, 0x3400), *range(0xF900, POINTS)]:  # between: CJK, Yi, Hangul, private use, surrogates
        character = characters[point]
        if unicodedata.combining(character) or not unicodedata.is_normalized("NFC", character):
            found.add(point)
        parts = unicodedata.decomposition(character)
        if parts and not parts.startswith("<"):
            found.update(int(part, 16) for part in parts.split()[1:])
    for point in range(0xA000, 0xAC00):  # Yi, Lisu, Vai … Meetei Mayek: some of them combine
        if unicodedata.combining(characters[point]):
            found.add(point)
    return sorted(found)
