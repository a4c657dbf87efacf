"""Lines or paragraphs that stand in many documents: menus, notices, licence texts. Which they are, and texts without.

A piece is compared without its white space at the edges and with inner white space collapsed. Short pieces (`}`,
`return None`, "See also") are never taken for a template, however often they occur.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import xxhash

__all__ = ["LEAST_CHARACTERS", "UNITS", "Cleaned", "clean", "count_pieces", "join_counts", "piece_hash", "pieces"]

UNITS = ("line", "paragraph")
LEAST_CHARACTERS = 30  # of a piece, white space collapsed: shorter ones are the stuff of ordinary text and code

Hashes = npt.NDArray[np.uint64]
Counts = npt.NDArray[np.int64]
_PARAGRAPHS = re.compile(r"\n(?:[ \t\r]*\n)+")


@dataclass(frozen=True, slots=True)
class Cleaned:
    """A text without its templates, and what was taken out: (offset in characters in the old text, piece)."""

    text: str
    removed: list[tuple[int, str]]


def pieces(text: str, unit: str) -> list[tuple[int, int, int]]:
    """(begin, end, begin of the next) of every line or paragraph of a text, in characters.

    A line ends at \\n and nowhere else; paragraphs are parted by lines without visible characters.
    Raises ValueError for another unit.
    """
    if unit not in UNITS:
        raise ValueError(f"unit {unit!r} is unknown. Use one of: {', '.join(UNITS)}")
    if unit == "line":
        breaks = [(at, at + 1) for at, character in enumerate(text) if character == "\n"] if "\n" in text else []
    else:
        breaks = [found.span() for found in _PARAGRAPHS.finditer(text)]
    starts = [0, *(after for _, after in breaks)]
    ends = [*(before for before, _ in breaks), len(text)]
    return list(zip(starts, ends, [*starts[1:], len(text)], strict=True))


def piece_hash(piece: str) -> int:
    """64-bit hash of a piece; 0 when it is too short to be a template."""
    plain = " ".join(piece.split())
    if len(plain) < LEAST_CHARACTERS:
        return 0
    return xxhash.xxh3_64_intdigest(plain.encode("utf-8", "surrogatepass")) or 1


def count_pieces(texts: Sequence[str], unit: str) -> tuple[Hashes, Counts]:
    """Sorted hashes of the pieces of some documents, and in how many of the documents each stands."""
    found: list[int] = []
    for text in texts:
        found += {piece_hash(text[begin:end]) for begin, end, _ in pieces(text, unit)} - {0}
    hashes, counts = np.unique(np.array(found, np.uint64), return_counts=True)
    return hashes, counts.astype(np.int64)


def join_counts(parts: Sequence[tuple[Hashes, Counts]]) -> tuple[Hashes, Counts]:
    """The counts of several sets of documents together. Memory: 32 bytes a distinct piece of each part."""
    if not parts:
        return np.empty(0, np.uint64), np.empty(0, np.int64)
    hashes, index = np.unique(np.concatenate([part[0] for part in parts]), return_inverse=True)
    counts = np.zeros(len(hashes), np.int64)
    np.add.at(counts, index, np.concatenate([part[1] for part in parts]))
    return hashes, counts


def clean(text: str, unit: str, templates: frozenset[int]) -> Cleaned:
    """The text without the pieces whose hash is in `templates`; the break behind a removed piece goes with it."""
    kept: list[str] = []
    removed: list[tuple[int, str]] = []
    for begin, end, after in pieces(text, unit):
        if piece_hash(text[begin:end]) in templates:
            removed.append((begin, text[begin:after]))
        else:
            kept.append(text[begin:after])
    return Cleaned("".join(kept), removed) if removed else Cleaned(text, [])
