"""A batch of texts as words: counts, lengths and hashes in flat arrays, without a Python loop over words.

Words are what white space separates (Unicode white space). Flat arrays have one entry a word, in text order; `doc` says
which text of the batch a word belongs to. Nothing here depends on the other texts of the batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

__all__ = ["Words", "per_document", "split_words"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Words:
    """`documents` texts cut into W words.

    doc: (W,) index of the text; length: (W,) characters; code: (W,) index into `vocabulary`; count: (documents,)
    words of each text; characters: (documents,) characters in words.
    """

    documents: int
    doc: Ints
    code: Ints
    length: Ints
    count: Ints
    characters: Floats
    vocabulary: pa.Array

    def hashes(self) -> npt.NDArray[np.uint64]:
        """64-bit hash of each word, (W,): equal words are equal in every batch. Cost: one hash a distinct word."""
        distinct = [xxhash.xxh3_64_intdigest(word) for word in self.vocabulary.cast(pa.large_binary()).to_pylist()]
        return np.array(distinct, np.uint64)[self.code] if distinct else np.zeros(0, np.uint64)

    def share(self, of_vocabulary: npt.NDArray[np.bool_]) -> Floats:
        """Share of each text's words that are among the marked ones, shape (documents,); 0 for a text without words."""
        if not len(self.doc):
            return np.zeros(self.documents)
        marked = np.bincount(self.doc[of_vocabulary[self.code]], minlength=self.documents)
        return marked / np.maximum(self.count, 1)


def split_words(texts: pa.Array) -> Words:
    """Cut each text at white space. `texts`: large_string without nulls, shape (documents,)."""
    lists = pc.utf8_split_whitespace(texts)
    encoded = lists.flatten().dictionary_encode()
    vocabulary = encoded.dictionary
    sizes = pc.utf8_length(vocabulary).to_numpy(zero_copy_only=False).astype(np.int64)
    codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    doc = np.repeat(np.arange(len(texts), dtype=np.int64), pc.list_value_length(lists).to_numpy(zero_copy_only=False))
    filled = sizes[codes] > 0 if len(codes) else np.zeros(0, bool)  # white space at an end gives an empty piece
    doc, codes = doc[filled], codes[filled]
    length = sizes[codes] if len(codes) else np.zeros(0, np.int64)
    return Words(
        documents=len(texts),
        doc=doc,
        code=codes,
        length=length,
        count=np.bincount(doc, minlength=len(texts)).astype(np.int64),
        characters=per_document(doc, length, len(texts)),
        vocabulary=vocabulary,
    )


def per_document(doc: Ints, values: npt.NDArray[np.generic], documents: int) -> Floats:
    """Sum of `values` by document. Shapes (N,), (N,) to (documents,). Exact for sums below 2**53."""
    return np.asarray(np.bincount(doc, weights=values.astype(np.float64), minlength=documents), np.float64)
