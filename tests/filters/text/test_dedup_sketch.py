"""Normalisation, shingles and signatures: equal to the definition in plain Python, for every form of Arrow array."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from filters.text.dedup.sketch import normalise, scheme_tag, shingle_sets, sketch
from filters.text.dedup.tables import CODE, TEXT, profile_of_domain
from filters.text.dedup.verify import jaccard
from schemas.document import normalise_text

TEXTS = st.lists(st.text(max_size=60), max_size=8)


def sets_of(texts: list[str], profile: int = TEXT, width: int = 5) -> list[np.ndarray]:
    profiles = np.full(len(texts), profile, np.uint8)
    return shingle_sets(normalise(pa.array(texts, pa.large_string())), profiles, shingle_words=width)


def similarity(a: str, b: str, profile: int = TEXT, width: int = 5) -> float:
    left, right = sets_of([a, b], profile, width)
    return jaccard(left, right)


def reference(text: str, width: int = 5) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+", "".join(c.lower()[0] for c in normalise_text(text)))
    if not words:
        return set()
    size = min(width, len(words))
    return {tuple(words[i : i + size]) for i in range(len(words) - size + 1)}


@given(TEXTS)
def test_the_exact_hash_is_of_the_normalised_text(texts: list[str]) -> None:
    found = sketch(normalise(pa.array(texts, pa.large_string()))).exact
    assert [row.tobytes() for row in found] == [
        xxhash.xxh3_128_digest(normalise_text(t).encode("utf-8")) for t in texts
    ]


@given(TEXTS, st.integers(1, 7))
def test_shingle_sets_have_the_sizes_of_word_grams_in_python(texts: list[str], width: int) -> None:
    assert [len(s) for s in sets_of(texts, width=width)] == [len(reference(t, width)) for t in texts]


@given(st.text(max_size=200), st.text(max_size=200))
@settings(max_examples=200)
def test_similarity_equals_jaccard_of_word_grams_in_python(a: str, b: str) -> None:
    left, right = reference(a, 2), reference(b, 2)
    expected = len(left & right) / len(left | right) if left | right else 1.0
    assert similarity(a, b, width=2) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    "text", ["Größe über Maß", "élan vital çà", "Ωμέγα και άλφα", "数学 と 物理", "naïve “quotes” — dash… done"]
)
def test_words_beyond_ascii_are_those_of_python(text: str) -> None:
    assert [len(s) for s in sets_of([text], width=1)] == [len(reference(text, 1))]
    assert similarity(text, text.upper(), width=1) == pytest.approx(
        len(reference(text, 1) & reference(text.upper(), 1)) / len(reference(text, 1) | reference(text.upper(), 1))
    )


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
def test_every_string_type_slice_and_null_gives_the_same_signatures(kind: pa.DataType) -> None:
    texts = ["skipped", None, "one two three four five six", "", "two words", "seven"]
    plain = sketch(normalise(pa.array([t or "" for t in texts[1:5]], pa.large_string())))
    other = sketch(normalise(pa.array(texts, kind)[1:5]))
    assert np.array_equal(plain.signatures, other.signatures)
    assert np.array_equal(plain.exact, other.exact)
    assert plain.shingles.tolist() == [0, 2, 0, 1]


def test_a_batch_without_rows_or_of_nulls_only_is_fine() -> None:
    assert sketch(normalise(pa.array([], pa.string()))).signatures.shape == (0, 128)
    assert sketch(normalise(pa.nulls(3, pa.large_string()))).shingles.tolist() == [0, 0, 0]


def test_numbers_are_refused_as_texts() -> None:
    with pytest.raises(TypeError, match="int64"):
        normalise(pa.array([1, 2]))


def test_short_texts_have_one_shingle_each_and_differ_from_one_another() -> None:
    found = sketch(normalise(pa.array(["a", "b", "a b", "b a", "a b c d"])))
    assert found.shingles.tolist() == [1, 1, 1, 1, 1]
    assert len({row.tobytes() for row in found.signatures}) == 5


def test_nfd_crlf_and_outer_space_do_not_change_the_exact_hash() -> None:
    found = sketch(normalise(pa.array(["café\nau lait", " cafe\u0301\r\nau lait\u2003", "cafe\nau lait"]))).exact
    assert found[0].tobytes() == found[1].tobytes() != found[2].tobytes()


def test_invalid_utf8_and_control_characters_do_not_stop_the_kernel() -> None:
    raw = pa.array([b"ok \xff\xfe\xc3", b"\x00\x00 nul \x00", b"\xf0\x9f", b"\xe2\x80"], pa.large_binary())
    texts = pa.LargeStringArray.from_buffers(4, raw.buffers()[1], raw.buffers()[2])
    with pytest.raises(UnicodeDecodeError):
        texts.to_pylist()
    assert sketch(normalise(texts)).shingles.tolist() == [1, 1, 0, 0]


def test_figures_count_in_every_profile() -> None:
    a = "Anna has 12 apples and gives 5 of them away"
    b = "Anna has 13 apples and gives 7 of them away"
    assert similarity(a, b) < 0.2
    assert similarity(a, b, CODE) < 0.2


def test_operators_count_for_code_and_not_for_text() -> None:
    a, b = "def f(a, b):\n    return a + b if a > b else a", "def f(a, b):\n    return a - b if a < b else a"
    assert similarity(a, b) == 1.0
    assert similarity(a, b, CODE) < 0.5
    assert similarity(a, a.replace("    ", "\t").replace(", ", ","), CODE) == 1.0
    assert len(sets_of([a], CODE)[0]) == len(sets_of([a], TEXT)[0])


def test_only_the_domain_code_gets_the_code_profile() -> None:
    assert [profile_of_domain(d) for d in ("code", "math", None, "Code")] == [CODE, TEXT, TEXT, TEXT]


@pytest.mark.parametrize("shared", [20, 200, 2000])
def test_signatures_estimate_similarity_without_bias_for_short_and_long_texts(shared: int) -> None:
    rng = np.random.default_rng(shared)
    errors = []
    for _ in range(60):
        words = [f"w{n}" for n in rng.integers(0, 10**9, shared + 2 * (shared // 8))]
        own = shared // 8
        left, right = words[: shared + own], words[:shared] + words[shared + own :]
        found = sketch(normalise(pa.array([" ".join(left), " ".join(right)])), shingle_words=1)
        true = jaccard(*sets_of([" ".join(left), " ".join(right)], width=1))
        errors.append(np.mean(found.signatures[0] == found.signatures[1]) - true)
    deviation = np.sqrt(0.8 * 0.2 / 128)
    assert abs(np.mean(errors)) < 4 * deviation / np.sqrt(60)
    assert np.std(errors) < 1.4 * deviation


def test_signature_of_a_union_is_the_smaller_value_of_each_slot_for_full_sketches() -> None:
    words = [f"x{n}" for n in range(4000)]
    left, right = " ".join(words[:2500]), " ".join(words[1500:])
    found = sketch(normalise(pa.array([left, right, " ".join(words)])), shingle_words=1).signatures
    assert np.array_equal(np.minimum(found[0], found[1]), found[2])


def test_signatures_are_the_same_in_every_version() -> None:
    found = sketch(normalise(pa.array(["the quick brown fox jumps over the lazy dog"])), permutations=16).signatures
    assert xxhash.xxh3_64_hexdigest(found.tobytes()) == "de6e52a904325198"
    assert scheme_tag(16, 5)["scheme"] == "datamix-fss-2"
