"""datasketch signatures: equal to the library's own objects, and never compared across schemes."""

from __future__ import annotations

import re

import numpy as np
import pytest
from datasketch import LeanMinHash, MinHash

from filters.text.dedup.minhash import SCHEMES, SignatureScheme, nearest, serialised, signatures_of, unserialised
from schemas.errors import InputError


def words(first: int, count: int) -> str:
    return " ".join(f"w{n}" for n in range(first, first + count))


def library(text: str, scheme: SignatureScheme) -> MinHash:
    found = MinHash(num_perm=scheme.permutations, seed=scheme.seed, scheme=scheme.scheme)
    parts = re.findall(r"\w+", text.lower())
    for at in range(len(parts) - scheme.shingle_words + 1):
        found.update(" ".join(parts[at : at + scheme.shingle_words]).encode())
    return found


@pytest.mark.parametrize("name", SCHEMES)
def test_signatures_and_estimates_are_those_of_datasketch(name: str) -> None:
    scheme = SignatureScheme(name, permutations=64)
    texts = [words(0, 120), words(10, 120), words(5000, 80)]
    values = signatures_of(texts, scheme)
    objects = [library(text, scheme) for text in texts]
    for row, one in zip(values, objects, strict=True):
        assert row.tolist() == [int(value) for value in one.hashvalues]
    for left in range(3):
        for right in range(3):
            assert np.mean(values[left] == values[right]) == objects[left].jaccard(objects[right])
    assert objects[0].jaccard(objects[1]) > 0.6


@pytest.mark.parametrize("name", SCHEMES)
def test_bytes_go_to_the_library_and_come_back(name: str) -> None:
    scheme = SignatureScheme(name, seed=3, permutations=32)
    values = signatures_of([words(0, 50), "", "one"], scheme)
    payloads = serialised(values, scheme)
    lean = LeanMinHash.deserialize(payloads[0], "<")
    assert (lean.scheme, lean.seed) == (name, 3)
    assert lean.jaccard(LeanMinHash(library(words(0, 50), scheme))) == 1.0
    assert np.array_equal(unserialised(payloads, scheme, "f"), values)


@pytest.mark.parametrize(
    "other",
    [SignatureScheme("legacy"), SignatureScheme("affine64"), SignatureScheme(seed=2), SignatureScheme(permutations=64)],
)
def test_a_file_of_mixed_schemes_is_refused_with_the_row(other: SignatureScheme) -> None:
    scheme = SignatureScheme()
    mixed = serialised(signatures_of(["a b"], scheme), scheme) + serialised(signatures_of(["a b"], other), other)
    with pytest.raises(InputError, match=r"sig\.parquet.*2.*cannot be compared"):
        unserialised(mixed, scheme, "sig.parquet")


@pytest.mark.parametrize("payload", [b"", b"\x00" * 5, b"\xff" * 40])
def test_damaged_bytes_are_refused_with_the_row(payload: bytes) -> None:
    with pytest.raises(InputError, match=r"not a serialised datasketch signature|cannot be compared"):
        unserialised([payload], SignatureScheme(), "sig.parquet")


@pytest.mark.parametrize("name", SCHEMES)
def test_the_most_similar_stored_signature_is_named_and_empty_ones_match_nothing(name: str) -> None:
    scheme = SignatureScheme(name)
    stored = signatures_of(["", words(0, 200), words(12, 200), words(9000, 100)], scheme)
    own = signatures_of([words(12, 200), "", words(500, 100), words(9000, 100)], scheme)
    best, similarity = nearest(own, stored, 0.8, scheme)
    assert best.tolist() == [2, -1, -1, 3]
    assert similarity[[0, 3]].tolist() == [1.0, 1.0]
    assert np.isnan(similarity[[1, 2]]).all()
    assert nearest(own, stored[:0], 0.8, scheme)[0].tolist() == [-1] * 4
