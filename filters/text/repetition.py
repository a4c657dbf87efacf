"""How much of a text repeats itself: lines, paragraphs, and word n-grams (arXiv 2112.11446, table A1).

Measures are shares of characters or of pieces, 0 to 1. N-grams are compared by 64-bit hashes of their words, sorted
for a whole batch of texts at once: 15 ns a word and n, where a Python dictionary takes 20 times that.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from filters.text.words import Floats, Ints, Words, per_document

__all__ = ["duplicate_ngram_share", "duplicate_piece_shares", "ngram_hashes", "top_ngram_share"]

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # odd, from the golden ratio: mixes a word's place into the n-gram's hash


def ngram_hashes(word_hashes: npt.NDArray[np.uint64], n: int) -> npt.NDArray[np.uint64]:
    """Hash of the n words that begin at each position, shape (W - n + 1,); empty when there are fewer than n words."""
    size = max(0, len(word_hashes) - n + 1)
    mixed = np.zeros(size, np.uint64)
    for place in range(n):
        mixed = mixed * _MULTIPLIER + word_hashes[place : place + size]
    return mixed ^ (mixed >> np.uint64(29))


def _sorted_ngrams(words: Words, hashes: npt.NDArray[np.uint64], n: int) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Positions of the n-grams that lie inside one text, sorted by (text, n-gram, position), and a mask of those that
    equal the one before: the second and later occurrences. One integer sort with the position in the low bits."""
    size = max(0, len(words.doc) - n + 1)
    starts = np.flatnonzero(words.doc[:size] == words.doc[n - 1 : n - 1 + size]) if size else np.zeros(0, np.int64)
    position_bits = max(1, len(words.doc).bit_length())
    doc_bits = max(1, int(words.documents).bit_length())
    hash_bits = 64 - position_bits - doc_bits
    whole = ngram_hashes(hashes, n)
    key = words.doc[starts].astype(np.uint64) << np.uint64(64 - doc_bits)
    key |= (whole[starts] >> np.uint64(64 - hash_bits)) << np.uint64(position_bits)
    key |= starts.astype(np.uint64)
    key.sort()
    order = (key & np.uint64((1 << position_bits) - 1)).astype(np.int64)
    _settle_collisions(order, key >> np.uint64(position_bits), whole)
    repeats = np.zeros(len(order), bool)
    repeats[1:] = (whole[order[1:]] == whole[order[:-1]]) & (words.doc[order[1:]] == words.doc[order[:-1]])
    return order, repeats


def _settle_collisions(order: Ints, prefix: npt.NDArray[np.uint64], whole: npt.NDArray[np.uint64]) -> None:
    """Where different n-grams share the few hash bits of the sort key, order them by the whole hash, in place."""
    same = prefix[1:] == prefix[:-1]
    mixed = same & (whole[order[1:]] != whole[order[:-1]])
    if mixed.any():
        run = np.concatenate([[0], np.cumsum(~same)])
        at = np.flatnonzero(np.isin(run, run[1:][mixed]))
        order[at] = order[at][np.lexsort((order[at], whole[order[at]], run[at]))]


def top_ngram_share(words: Words, hashes: npt.NDArray[np.uint64], n: int) -> Floats:
    """Share of a text's word characters that its most frequent n-gram takes up, shape (documents,).

    0 when no n-gram occurs twice; of equally frequent ones the longest counts.
    """
    order, repeats = _sorted_ngrams(words, hashes, n)
    share = np.zeros(words.documents)
    if not len(order):
        return share
    first = np.flatnonzero(~repeats)  # where a run of equal n-grams begins
    count = np.diff(np.append(first, len(order)))
    position = order[first]
    ends = np.append(0, np.cumsum(words.length))
    characters = ends[position + n] - ends[position]
    doc = words.doc[position]
    most = np.zeros(words.documents, np.int64)
    np.maximum.at(most, doc, count)
    top = (count == most[doc]) & (count > 1)
    np.maximum.at(share, doc[top], (count * characters)[top] / np.maximum(words.characters[doc[top]], 1))
    return np.minimum(share, 1)  # overlapping occurrences ("na na na") count twice


def duplicate_ngram_share(words: Words, hashes: npt.NDArray[np.uint64], n: int) -> Floats:
    """Share of a text's word characters inside n-grams that occurred before in it, shape (documents,).

    A character in several repeated n-grams counts once.
    """
    order, repeats = _sorted_ngrams(words, hashes, n)
    begins = np.zeros(len(words.doc) + 1, np.int64)
    np.add.at(begins, order[repeats], 1)
    np.add.at(begins, order[repeats] + n, -1)
    covered = np.cumsum(begins)[:-1] > 0
    repeated = per_document(words.doc[covered], words.length[covered], words.documents)
    return repeated / np.maximum(words.characters, 1)


def duplicate_piece_shares(pieces: pa.Array, doc: Ints, documents: int) -> tuple[Floats, Floats]:
    """Repeated pieces (lines, paragraphs) of each text: share of the pieces, share of their characters.

    `pieces`: trimmed, not empty, shape (N,); `doc`: their text, ascending. The first occurrence is not repeated.
    """
    if not len(pieces):
        return np.zeros(documents), np.zeros(documents)
    encoded = pieces.dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    length = pc.utf8_length(encoded.dictionary).to_numpy(zero_copy_only=False)[codes].astype(np.int64)
    key = doc * len(encoded.dictionary) + codes
    _, first = np.unique(key, return_index=True)
    repeated = np.ones(len(key), bool)
    repeated[first] = False
    counts = np.maximum(np.bincount(doc, minlength=documents), 1)
    total = np.maximum(per_document(doc, length, documents), 1)
    of_pieces = np.bincount(doc[repeated], minlength=documents) / counts
    return of_pieces, per_document(doc[repeated], length[repeated], documents) / total
