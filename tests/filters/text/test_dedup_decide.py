"""Bands, candidates, verification, clusters and keepers, against brute force."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filters.text.dedup.bands import Bands, choose_bands
from filters.text.dedup.buckets import candidate_pairs, required_agreement
from filters.text.dedup.cluster import choose_apart, components, keepers, ranking
from filters.text.dedup.decide import Decision, Members, decide
from filters.text.dedup.sketch import normalise, shingle_sets, sketch
from filters.text.dedup.verify import ShingleSets, jaccard, jaccard_pairs

HASHES = st.lists(st.integers(0, 50), max_size=30)


def judge(
    texts: list[str],
    threshold: float = 0.8,
    *,
    qualities: list[float] | None = None,
    ids: list[str] | None = None,
    fixed: list[bool] | None = None,
    bands: Bands | None = None,
    width: int = 5,
) -> Decision:
    normalised = normalise(pa.array(texts, pa.large_string()))
    sets = ShingleSets.of(shingle_sets(normalised, shingle_words=width))
    names = ids or [f"{n:032x}" for n in range(len(texts))]
    members = Members(
        np.array([n.encode() for n in names], np.bytes_),
        np.array(qualities or [1.0] * len(texts), np.float32),
        None if fixed is None else np.array(fixed),
    )
    return decide(
        sketch(normalised, shingle_words=width),
        members,
        bands or choose_bands(threshold),
        lambda pairs: jaccard_pairs(sets, pairs[:, 0], sets, pairs[:, 1]),
    )


def words(*ranges: tuple[int, int]) -> str:
    return " ".join(f"w{n}" for start, end in ranges for n in range(start, end))


def edited(base: int, edits: int, length: int = 200) -> str:
    """`length` words of document `base`, the first `edits` of every 20th replaced."""
    return " ".join(f"e{base}x{edits}x{n}" if n % 20 == 0 and n < 20 * edits else f"d{base}w{n}" for n in range(length))


@given(HASHES, HASHES)
def test_jaccard_of_sorted_sets_is_that_of_python_sets(a: list[int], b: list[int]) -> None:
    left, right = np.unique(np.array(a, np.uint64)), np.unique(np.array(b, np.uint64))
    expected = len(set(a) & set(b)) / len(set(a) | set(b)) if a or b else 1.0
    assert jaccard(left, right) == pytest.approx(expected)
    assert jaccard(right, left) == jaccard(left, right)
    assert jaccard(left, left) == 1.0


@given(st.lists(st.tuples(st.integers(0, 19), st.integers(0, 19)), max_size=30), st.randoms(use_true_random=False))
def test_components_are_reachability_and_do_not_depend_on_the_order_of_pairs(pairs, random) -> None:  # type: ignore[no-untyped-def]
    reach = [{n} for n in range(20)]
    for _ in range(20):
        for a, b in pairs:
            joined = reach[a] | reach[b]
            for n in joined:
                reach[n] = joined
    found = components(20, np.array(pairs, np.int64).reshape(-1, 2))
    assert found.tolist() == [min(r) for r in reach]
    shuffled = [pair[::-1] for pair in pairs]
    random.shuffle(shuffled)
    assert components(20, np.array(shuffled, np.int64).reshape(-1, 2)).tolist() == found.tolist()


def test_the_keeper_has_best_quality_then_is_longest_then_has_the_smallest_id() -> None:
    ids = np.array([b"d", b"c", b"b", b"a", b"e"])
    place = ranking(ids, np.array([0.5, 0.9, 0.9, 0.9, 0.1], np.float32), np.array([9, 5, 7, 7, 99]))
    assert np.argsort(place).tolist() == [3, 2, 1, 0, 4]
    assert keepers(np.zeros(5, np.int64), place).tolist() == [3] * 5
    assert keepers(np.array([0, 0, 2, 2, 0]), place).tolist() == [1, 1, 3, 3, 1]


@pytest.mark.parametrize("threshold", [0.1, 0.5, 0.7, 0.8, 0.9, 1.0])
@pytest.mark.parametrize("permutations", [16, 64, 128])
def test_bands_fit_into_the_signature_and_find_pairs_at_the_threshold(threshold: float, permutations: int) -> None:
    bands = choose_bands(threshold, permutations)
    assert bands.bands * bands.rows + bands.unused == permutations
    assert bands.unused >= 0
    assert bands.found(threshold) > (0.95 if permutations == 128 else 0.6)
    assert bands.found(1.0) == 1.0
    assert [p for _, p in bands.curve()] == sorted(p for _, p in bands.curve())


def test_the_choice_at_eight_tenths_is_stated_with_its_unused_values() -> None:
    bands = choose_bands(0.8, 128)
    assert (bands.bands, bands.rows, bands.unused) == (20, 6, 8)
    assert bands.found(0.8) == pytest.approx(1 - (1 - 0.8**6) ** 20)
    assert "8 of 128 values unused" in bands.describe()


@pytest.mark.parametrize("threshold", [0.0, -1.0, 1.01])
def test_a_threshold_outside_of_zero_to_one_is_refused(threshold: float) -> None:
    with pytest.raises(ValueError, match="above 0 and at most 1"):
        choose_bands(threshold)


def test_bands_that_need_more_values_than_a_signature_has_are_refused() -> None:
    with pytest.raises(ValueError, match="need more than 16"):
        candidate_pairs(np.zeros((2, 16), np.uint32), np.arange(2), Bands(0.8, 128, 9, 13))


@pytest.mark.parametrize("copies", [2, 5, 500])
def test_all_identical_texts_leave_exactly_one(copies: int) -> None:
    decision = judge(["the same text with more than five words in it"] * copies)
    assert int((~decision.removed).sum()) == 1
    assert decision.exact.sum() == copies - 1
    assert decision.clusters().tolist() == [copies]
    assert decision.similarity[decision.removed].tolist() == [1.0] * (copies - 1)


@pytest.mark.parametrize("texts", [[], ["one"], ["", "a b c", "x y z"]])
def test_nothing_to_remove_is_a_result(texts: list[str]) -> None:
    decision = judge(texts)
    assert not decision.removed.any()
    assert (decision.pairs_verified, decision.clusters().tolist()) == (0, [])


def test_texts_without_words_are_only_exact_duplicates() -> None:
    decision = judge(["!!!", "???", "!!!", "", " "])
    assert decision.removed.tolist() == [False, False, True, False, True]
    assert decision.exact.tolist() == [False, False, True, False, True]


def test_pairs_forced_into_one_bucket_are_regrouped_after_verification() -> None:
    first, second = words((0, 300)), words((1000, 1300))
    texts = [first, second, first + " extra", second + " extra"]
    decision = judge(texts, bands=Bands(0.8, 128, 1, 1))
    one_bucket = candidate_pairs(np.zeros((4, 16), np.uint32), np.arange(4), Bands(0.8, 16, 1, 16))
    assert one_bucket.tolist() == [list(p) for p in combinations(range(4), 2)]
    assert judge(texts).keeper.tolist() == [2, 3, 2, 3]
    assert set(decision.keeper.tolist()) >= {2, 3}


def test_a_shared_header_below_the_threshold_removes_nothing() -> None:
    header = words((0, 400))
    texts = [header + " " + words((1000 * n, 1000 * n + 150)) for n in range(1, 201)]
    decision = judge(texts)
    assert decision.pairs_verified == 0
    assert not decision.removed.any()


def test_a_giant_bucket_costs_stars_and_not_all_pairs() -> None:
    base = [f"w{n}" for n in range(400)]
    texts = [" ".join([*base[:n], f"new{n}", *base[n + 1 :]]) for n in range(395)]
    decision = judge(texts)
    assert int((~decision.removed).sum()) == 1
    assert decision.pairs_candidate < 20 * 395 * 3
    assert decision.similarity[decision.removed].min() >= 0.8


def test_a_removed_document_is_measured_against_the_one_that_stays_even_through_others() -> None:
    chain = [words((0, 200)), words((15, 215)), words((30, 230))]
    decision = judge(chain, qualities=[1.0, 0.5, 0.2])
    assert decision.keeper.tolist() == [0, 0, 0]
    assert decision.similarity[1] == pytest.approx(181 / 211)
    assert decision.similarity[2] == pytest.approx(166 / 226)
    assert decision.exact.tolist() == [False, False, False]


def test_in_a_giant_cluster_only_direct_duplicates_of_what_stays_are_removed() -> None:
    chain = [words((15 * n, 15 * n + 200)) for n in range(6)]
    chain.append(chain[3])
    bands = choose_bands(0.8)
    whole = judge(chain, qualities=[1.0] + [0.5] * 6)
    assert whole.keeper.tolist() == [0] * 7
    assert (whole.giant, whole.spared) == (0, 0)
    normalised = normalise(pa.array(chain))
    sets = ShingleSets.of(shingle_sets(normalised))
    members = Members(np.array([b"%d" % n for n in range(7)]), np.array([1.0] + [0.5] * 6, np.float32))
    capped = decide(
        sketch(normalised),
        members,
        bands,
        lambda pairs: jaccard_pairs(sets, pairs[:, 0], sets, pairs[:, 1]),
        largest_cluster=6,
    )
    stays = np.flatnonzero(~capped.removed)
    assert not any(abs(a - b) == 1 for a in stays.tolist() for b in stays.tolist())  # neighbours of the chain are pairs
    near = [n for n in range(6) if capped.removed[n]]
    assert near and all(abs(capped.keeper[n] - n) == 1 and capped.similarity[n] >= 0.8 for n in near)
    assert capped.keeper[6] == capped.keeper[3]
    assert capped.exact.tolist() == [False] * 6 + [capped.keeper[3] == 3]
    assert (capped.giant, capped.spared) == (1, len(stays) - 1)
    assert capped.clustered.all()


@given(st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=30), st.permutations(list(range(12))))
def test_of_every_verified_pair_one_stays_at_most_and_nothing_goes_without_one(
    drawn: list[tuple[int, int]], places: list[int]
) -> None:
    found = sorted({(min(pair), max(pair)) for pair in drawn if pair[0] != pair[1]})
    pairs = np.array(found, np.int64).reshape(-1, 2)
    measured = np.linspace(0.8, 1, len(pairs))
    place = np.array(places, np.int64)
    keeper, similarity = choose_apart(pairs, measured, place)
    stays = set(np.flatnonzero(keeper == np.arange(12)).tolist())
    assert not any(a in stays and b in stays for a, b in found)
    for n in set(range(12)) - stays:
        pair = (min(n, int(keeper[n])), max(n, int(keeper[n])))
        assert keeper[n] in stays and place[keeper[n]] < place[n]
        assert similarity[n] == measured[found.index(pair)]
    assert np.isnan(similarity[sorted(stays)]).all()


def test_the_reason_is_exact_only_for_equal_texts() -> None:
    text = words((0, 200))
    decision = judge([text, text, text + " end"], qualities=[0.5, 0.5, 0.9])
    assert decision.keeper.tolist() == [2, 2, 2]
    assert decision.exact.tolist() == [False, False, False]
    assert decision.similarity[:2].tolist() == pytest.approx([196 / 197] * 2)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 8)), min_size=1, max_size=14),
    st.randoms(use_true_random=False),
)
def test_removal_equals_brute_force_and_does_not_depend_on_order(kinds, random) -> None:  # type: ignore[no-untyped-def]
    texts = [edited(base, edits) for base, edits in kinds]
    ids = [f"{n:032x}" for n in range(len(texts))]
    sets = shingle_sets(normalise(pa.array(texts)))
    near = [(i, j) for i, j in combinations(range(len(texts)), 2) if jaccard(sets[i], sets[j]) >= 0.8]
    component = components(len(texts), np.array(near, np.int64).reshape(-1, 2))
    decision = judge(texts, ids=ids)
    assert int((~decision.removed).sum()) == len(set(component.tolist()))
    assert np.array_equal(component[decision.keeper], component)
    order = list(range(len(texts)))
    random.shuffle(order)
    again = judge([texts[n] for n in order], ids=[ids[n] for n in order])
    assert {ids[n] for n in np.flatnonzero(decision.removed)} == {ids[order[n]] for n in np.flatnonzero(again.removed)}


def test_a_lower_threshold_removes_at_least_what_a_higher_one_does() -> None:
    texts = [edited(base, edits) for base in range(40) for edits in (0, 1, 2, 4, 6, 8, 10)]
    removed = [set(np.flatnonzero(judge(texts, t).removed)) for t in (0.95, 0.8, 0.65, 0.55, 0.3)]
    for higher, lower in pairwise(removed):
        assert higher <= lower
    assert len(removed[0]) < len(removed[-1]) == 240


@pytest.mark.parametrize(("old", "new"), [(300, 3), (3, 300)])
def test_nothing_of_a_reference_set_is_removed_and_it_is_named(old: int, new: int) -> None:
    shared = [edited(n, 0) for n in range(3)]
    references = [*shared, *(edited(1000 + n, 0) for n in range(old - 3)), shared[0] + " tail"]
    documents = [edited(n, 1) for n in range(3)] + [edited(5000 + n, 0) for n in range(new - 3)] + [shared[1]]
    decision = judge(
        references + documents,
        qualities=[0.0] * len(references) + [1.0] * len(documents),
        fixed=[True] * len(references) + [False] * len(documents),
    )
    first = len(references)
    assert not decision.removed[:first].any()
    assert np.flatnonzero(decision.removed).tolist() == [first, first + 1, first + 2, len(references + documents) - 1]
    assert decision.keeper[[first, first + 1, first + 2, -1]].tolist() == [0, 1, 2, 1]
    assert decision.similarity[first] == pytest.approx(195 / 197, abs=0.01)
    assert decision.exact[-1]


def test_agreement_asked_of_the_sketch_leaves_room_below_the_threshold() -> None:
    assert required_agreement(0.8, 128) == 84
    assert required_agreement(1.0, 128) == 128
    assert required_agreement(0.01, 16) == 1
