"""From Arrow text columns to what dedup keeps of a document: exact hash, sketch, sizes.

Texts are read where they lie, as offsets and bytes (string and large_string, sliced or not, with nulls); no Python
string is made except for the few texts that Unicode normalisation may change.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from filters.text.dedup import kernel
from filters.text.dedup.blocks import BLOCK
from filters.text.dedup.tables import HASH_SEED, PROFILES, TEXT, tables
from schemas.document import normalise_text

__all__ = [
    "SCHEME",
    "Normalised",
    "Sketches",
    "distinct",
    "document_digests",
    "gram_hashes",
    "hexadecimal",
    "normalise",
    "scheme_tag",
    "shingle_sets",
    "sketch",
    "string_buffers",
]

SCHEME = "datamix-fss-2"  # rises when an equal text would get another signature: such signatures must not be mixed

Bytes = npt.NDArray[np.uint8]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Normalised:
    """Texts as `schemas.document.normalise_text` gives them: text i is data[starts[i]:ends[i]], UTF-8. Nulls are empty.

    Where nothing had to change, `data` is the Arrow buffer itself.
    """

    data: Bytes
    starts: Integers
    ends: Integers

    def __len__(self) -> int:
        return len(self.starts)

    def taken(self, rows: Integers) -> Normalised:
        """Some of the texts; no byte is copied."""
        return Normalised(self.data, self.starts[rows], self.ends[rows])


@dataclass(frozen=True, slots=True)
class Sketches:
    """What stays of n documents. Shapes: exact (n, 16) bytes, signatures (n, permutations) uint32, rest (n,).

    `exact` is the 128-bit xxh3 of the normalised text, `sizes` its bytes, `shingles` the number of word k-grams
    (repeats counted; 0 when the text has no word: such a text has no near duplicates, only exact ones).
    `hashes` (sum of shingles,) are all of them, document after document; None where they were not kept.
    """

    exact: Bytes
    signatures: npt.NDArray[np.uint32]
    shingles: Integers
    sizes: Integers
    hashes: npt.NDArray[np.uint64] | None = None

    def taken(self, order: Integers) -> Sketches:
        """The rows `order`, without their shingle hashes."""
        return Sketches(self.exact[order], self.signatures[order], self.shingles[order], self.sizes[order])


def document_digests(normalised: Normalised, source: str) -> Bytes:
    """`schemas.document.document_id` of every text as its 16 bytes, shape (n, 16). Cost: about 1 us a document."""
    name = source.encode("utf-8", "surrogatepass")
    start = b"%d:" % len(name) + name
    view = np.ascontiguousarray(normalised.data).data
    digest = xxhash.xxh3_128_digest
    spans = zip(normalised.starts.tolist(), normalised.ends.tolist(), strict=True)
    joined = b"".join([digest(start + view[begin:end]) for begin, end in spans])
    return np.frombuffer(joined, np.uint8).reshape(-1, 16)


def hexadecimal(digests: Bytes) -> pa.Array:
    """Digests (n, 16) as n strings of 32 digits."""
    digits = np.frombuffer(digests.tobytes().hex().encode(), np.uint8)
    offsets = np.arange(0, 32 * len(digests) + 1, 32, dtype=np.int32)
    return pa.StringArray.from_buffers(len(digests), pa.py_buffer(offsets), pa.py_buffer(digits))


def scheme_tag(permutations: int, shingle_words: int) -> dict[str, str]:
    """What must be equal before two signatures may be compared."""
    return {
        "scheme": SCHEME,
        "permutations": str(permutations),
        "shingle_words": str(shingle_words),
        "profiles": ",".join(PROFILES),
    }


def normalise(texts: pa.Array) -> Normalised:
    """Normalise line ends, outer white space and Unicode composition (NFC). Cost: far below 1 ms a MB.

    Raises TypeError when `texts` is not a string array.
    """
    data, offsets = string_buffers(texts)
    starts, ends = offsets[:-1].copy(), offsets[1:].copy()
    unsure = np.zeros(len(starts), np.uint8)
    kernel.trim(data if len(data) >= BLOCK else np.pad(data, (0, BLOCK)), starts, ends, tables().points, unsure)
    extra: list[Bytes] = []
    at = len(data)
    for row in np.flatnonzero(unsure).tolist():
        before = data[starts[row] : ends[row]].tobytes()
        after = normalise_text(before.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
        if after != before:
            extra.append(np.frombuffer(after, np.uint8))
            starts[row], ends[row] = at, at + len(after)
            at += len(after)
    return Normalised(np.concatenate([data, *extra]) if extra else data, starts, ends)


def sketch(
    normalised: Normalised,
    profiles: Bytes | None = None,
    *,
    shingle_words: int = 5,
    permutations: int = 128,
    exact: Bytes | None = None,
) -> Sketches:
    """Exact hashes and signatures of normalised texts; `profiles` (n,) holds TEXT or CODE, None means TEXT.

    `exact` (n, 16) stands for the exact hashes where others are known that tell the same texts apart.

    Cost: about 3 ms of CPU a MB of text. Memory: 16 bytes a byte of the longest text, plus the result.
    """
    rows = len(normalised)
    signatures = np.empty((rows, permutations), np.uint32)
    flat, bounds = _room(normalised)
    known = tables()
    kernel.signatures(
        normalised.data,
        normalised.starts,
        normalised.ends,
        _profiles(profiles, rows),
        shingle_words,
        known.masks,
        known.points,
        _odd_multipliers(2 * permutations),
        signatures,
        flat,
        bounds,
    )
    sizes = normalised.ends - normalised.starts
    return Sketches(
        _exact_hashes(normalised) if exact is None else exact, signatures, np.diff(bounds), sizes, flat[: bounds[-1]]
    )


def gram_hashes(
    normalised: Normalised, width: int, profiles: Bytes | None = None
) -> tuple[npt.NDArray[np.uint64], Integers]:
    """(flat, bounds): the hashes of the word k-grams of text i, in text order and with repeats, are
    flat[bounds[i]:bounds[i + 1]]. A text with fewer words than `width` has one gram of all of them.
    """
    flat, bounds = _room(normalised)
    known = tables()
    kernel.shingle_hashes(
        normalised.data,
        normalised.starts,
        normalised.ends,
        _profiles(profiles, len(normalised)),
        width,
        known.masks,
        known.points,
        flat,
        bounds,
    )
    return flat[: bounds[-1]], bounds


def shingle_sets(
    normalised: Normalised, profiles: Bytes | None = None, *, shingle_words: int = 5
) -> list[npt.NDArray[np.uint64]]:
    """The sorted distinct shingle hashes of every text: what Jaccard similarity is measured on."""
    flat, bounds = gram_hashes(normalised, shingle_words, profiles)
    return [distinct(flat[start:end]) for start, end in pairwise(bounds.tolist())]


def distinct(hashes: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Sorted, without repeats; the array itself is sorted (numpy's `unique` takes three times as long here)."""
    hashes.sort()
    ordered = hashes
    different = np.ones(len(ordered), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=different[1:])
    return ordered[different]


def _room(normalised: Normalised) -> tuple[npt.NDArray[np.uint64], Integers]:
    """Arrays for the shingles of all texts: no more than every second byte begins a word."""
    sizes = normalised.ends - normalised.starts
    return np.empty(int((sizes + 1).sum()) // 2 + 2 + len(sizes), np.uint64), np.zeros(len(sizes) + 1, np.int64)


def string_buffers(texts: pa.Array) -> tuple[Bytes, Integers]:
    """The UTF-8 bytes and the 64-bit offsets of a string array, nulls as empty texts; no text is copied."""
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    if pa.types.is_string_view(texts.type) or pa.types.is_dictionary(texts.type):
        texts = texts.cast(pa.large_string())
    if pa.types.is_string(texts.type):
        width: Any = np.int32
    elif pa.types.is_large_string(texts.type):
        width = np.int64
    else:
        raise TypeError(f"the text column has type {texts.type}: string or large_string is needed")
    if texts.null_count:
        texts = texts.fill_null("")
    _, where, what = texts.buffers()
    if len(texts) == 0 or where is None:
        return np.zeros(0, np.uint8), np.zeros(len(texts) + 1, np.int64)
    offsets = np.frombuffer(where, width, count=texts.offset + len(texts) + 1)[texts.offset :].astype(np.int64)
    data = np.frombuffer(what, np.uint8) if what is not None and what.size else np.zeros(0, np.uint8)
    return data, offsets


def _exact_hashes(normalised: Normalised) -> Bytes:
    """128-bit xxh3 of every text, shape (n, 16)."""
    view = np.ascontiguousarray(normalised.data).data
    digest = xxhash.xxh3_128_digest
    spans = zip(normalised.starts.tolist(), normalised.ends.tolist(), strict=True)
    joined = b"".join([digest(view[start:end]) for start, end in spans])
    return np.frombuffer(joined, np.uint8).reshape(-1, 16)


def _profiles(profiles: Bytes | None, rows: int) -> Bytes:
    if profiles is None:
        return np.full(rows, TEXT, np.uint8)
    if len(profiles) != rows:
        raise ValueError(f"{rows} texts have {len(profiles)} profiles: one for each is needed")
    return np.ascontiguousarray(profiles, np.uint8)


def _odd_multipliers(count: int) -> npt.NDArray[np.uint64]:
    generator = np.random.Generator(np.random.PCG64(HASH_SEED + 1))
    return generator.integers(0, 2**63, count, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
