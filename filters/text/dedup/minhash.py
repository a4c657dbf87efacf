"""Signatures of the datasketch library: made, read and compared under the tag of the scheme that made them.

They are for exchange with whoever keeps such signatures; this project's own sketches (`sketch`) are faster and are
checked by exact similarity. Values of different schemes, seeds or shingles look alike and mean nothing together, so
everything that decides a value is in the tag, and what differs is refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from filters.text.dedup.bands import choose_bands
from filters.text.dedup.buckets import candidate_pairs
from schemas.document import normalise_text
from schemas.errors import InputError

__all__ = ["SCHEMES", "SHINGLES", "SignatureScheme", "nearest", "serialised", "signatures_of", "unserialised"]

SCHEMES = ("affine32", "affine64", "legacy")
SHINGLES = "words"  # how a text becomes shingles: \w+ of the lower-cased text, joined by single spaces, UTF-8, sha1
_WORDS = re.compile(r"\w+")
_BYTE_ORDER: Literal["<"] = "<"

Values = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class SignatureScheme:
    """Everything that must be equal before two signatures may be compared."""

    scheme: str = "affine32"
    seed: int = 1
    permutations: int = 128
    shingle_words: int = 5
    shingles: str = SHINGLES

    def tag(self) -> dict[str, str]:
        """As metadata of a file."""
        return {
            "datasketch.scheme": self.scheme,
            "datasketch.seed": str(self.seed),
            "datasketch.permutations": str(self.permutations),
            "datasketch.shingle_words": str(self.shingle_words),
            "datasketch.shingles": self.shingles,
        }


def signatures_of(texts: Sequence[str], scheme: SignatureScheme) -> Values:
    """datasketch's MinHash of the word n-grams of every text, shape (n, permutations). About 9 MB a CPU second.

    A text with fewer words than `shingle_words` has one shingle of all of them; one without words has none, and the
    values of an empty MinHash.
    """
    from datasketch import MinHash

    empty = MinHash(num_perm=scheme.permutations, seed=scheme.seed, scheme=scheme.scheme)
    out = np.empty((len(texts), scheme.permutations), np.uint64)
    width = scheme.shingle_words
    for row, text in enumerate(texts):
        words = _WORDS.findall(normalise_text(text).lower())
        starts = range(max(1, len(words) - width + 1)) if words else ()
        found = empty.copy()
        found.update_batch({" ".join(words[at : at + width]).encode("utf-8", "replace") for at in starts})
        out[row] = found.hashvalues
    return out


def serialised(values: Values, scheme: SignatureScheme) -> list[bytes]:
    """Each signature as `datasketch.LeanMinHash.deserialize(bytes, "<")` reads it: its seed and scheme are inside."""
    from datasketch import LeanMinHash

    found: list[bytes] = []
    for row in values:
        lean = LeanMinHash(seed=scheme.seed, hashvalues=row, scheme=scheme.scheme)
        buffer = bytearray(lean.bytesize(_BYTE_ORDER))
        lean.serialize(buffer, _BYTE_ORDER)
        found.append(bytes(buffer))
    return found


def unserialised(payloads: Sequence[bytes], scheme: SignatureScheme, path: str) -> Values:
    """The values of serialised signatures, shape (n, permutations).

    Raises InputError naming the row when one is damaged, or was made under another scheme than `scheme`.
    """
    from datasketch import LeanMinHash

    out = np.empty((len(payloads), scheme.permutations), np.uint64)
    for row, payload in enumerate(payloads):
        try:
            lean: Any = LeanMinHash.deserialize(payload, _BYTE_ORDER)
        except Exception as error:  # struct.error, ValueError, KeyError: whatever the bytes make of it
            raise InputError(
                f"not a serialised datasketch signature ({type(error).__name__}: {error})",
                path=path,
                line=row + 1,
                field="signature",
                todo="Write the file again with --signatures-out",
            ) from None
        received = (lean.scheme, lean.seed, len(lean.hashvalues))
        if received != (scheme.scheme, scheme.seed, scheme.permutations):
            raise InputError(
                f"a signature of scheme {received[0]}, seed {received[1]}, {received[2]} permutations, expected "
                f"{scheme.scheme}, {scheme.seed}, {scheme.permutations}: they cannot be compared",
                path=path,
                line=row + 1,
                field="signature",
                todo="Make all signatures of a file with one scheme",
            )
        out[row] = lean.hashvalues
    return out


def nearest(
    own: Values, stored: Values, threshold: float, scheme: SignatureScheme
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """For each of `own` the most similar of `stored` (then the first) by estimate, -1 and NaN when below `threshold`.

    The estimate is the share of equal values. Empty signatures match nothing. Candidates come from bands chosen for
    the threshold. Shapes (n,), (n,).
    """
    best = np.full(len(own), -1, np.int64)
    similarity = np.full(len(own), np.nan, np.float32)
    both = np.concatenate([stored, own])
    empty = np.iinfo(np.uint64 if scheme.scheme == "affine64" else np.uint32).max
    members = np.flatnonzero((both != np.uint64(empty)).any(axis=1))
    short = (both ^ (both >> np.uint64(32))).astype(np.uint32)  # equal values stay equal
    pairs = candidate_pairs(short, members, choose_bands(threshold, scheme.permutations))
    pairs = pairs[(pairs[:, 0] < len(stored)) & (pairs[:, 1] >= len(stored))]
    agreement = (both[pairs[:, 0]] == both[pairs[:, 1]]).mean(axis=1) if len(pairs) else np.empty(0)
    order = np.lexsort((-pairs[:, 0], agreement))  # the last one written wins
    order = order[agreement[order] >= threshold]
    best[pairs[order, 1] - len(stored)] = pairs[order, 0]
    similarity[pairs[order, 1] - len(stored)] = agreement[order]
    return best, similarity
