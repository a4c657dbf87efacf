"""Mixture algebra: exact sums, water-filling, epoch caps, choices by hash, and a stated result for odd corpora."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filters.text.mixing import HELDOUT, TRAIN, UNUSED, Mixture, MixtureWish, mix
from filters.text.mixture import allocate, choose, exact, hash_order, heldout_mask, split_budget

NAMES = ["math", "code", "science", "web"]
SHARES = st.lists(st.integers(0, 20), min_size=4, max_size=4).filter(any)


def wish(shares: dict[str, float], budget: int, **other: Any) -> MixtureWish:
    base: dict[str, Any] = {"max_epochs": 4, "heldout_share": 0.01, "heldout_documents": 1, "seed": 3}
    return MixtureWish(shares=shares, budget=budget, **{**base, **other})


def corpus(sizes: dict[str, list[int]]) -> tuple[list[str], Any, Any, Any]:
    rows = [(f"{name}-{n:06d}", name, size) for name, many in sizes.items() for n, size in enumerate(many)]
    ids, domains, tokens = zip(*rows, strict=True) if rows else ((), (), ())
    column = np.array(domains, object)
    return list(ids), column, column, np.array(tokens, np.int64)


def made(sizes: dict[str, list[int]], asked: MixtureWish) -> Mixture:
    return mix(*corpus(sizes), asked)


@given(st.integers(0, 10**12), SHARES)
def test_a_budget_is_split_without_losing_a_token(budget: int, weights: list[int]) -> None:
    parts = split_budget(budget, {n: Fraction(w) for n, w in zip(NAMES, weights, strict=True)})
    assert sum(parts.values()) == budget
    for name, weight in zip(NAMES, weights, strict=True):
        assert abs(parts[name] - Fraction(budget * weight, sum(weights))) < 1


@given(st.lists(st.integers(0, 10**9), min_size=4, max_size=4), SHARES, st.integers(0, 10**10), st.integers(1, 40))
def test_water_filling_meets_the_budget_or_every_cap(supplies, weights, budget, tenths) -> None:  # type: ignore[no-untyped-def]
    supply = dict(zip(NAMES, supplies, strict=True))
    shares = {n: Fraction(w, sum(weights)) for n, w in zip(NAMES, weights, strict=True)}
    cap = Fraction(tenths, 10)
    plan = allocate(supply, shares, budget, cap)
    caps = {n: int(supply[n] * cap) if shares[n] else 0 for n in NAMES}
    assert sum(a.tokens for a in plan.values()) == min(budget, sum(caps.values()))
    for name, allocation in plan.items():
        assert 0 <= allocation.tokens <= caps[name]
        assert not allocation.limited or allocation.tokens == caps[name]
    free = [n for n in NAMES if shares[n] and not plan[n].limited]
    for a in free:
        for b in free:
            assert abs(plan[a].tokens * shares[b] - plan[b].tokens * shares[a]) <= 2


def test_what_one_domain_lacks_goes_to_the_others_by_share() -> None:
    shares = {"math": exact(0.5), "code": exact(0.3), "web": exact(0.2)}
    plan = allocate({"math": 100, "code": 10_000, "web": 10_000}, shares, 1000, Fraction(2))
    assert {n: (a.target, a.tokens, a.limited) for n, a in plan.items()} == {
        "math": (500, 200, True),
        "code": (300, 480, False),
        "web": (200, 320, False),
    }


@given(st.lists(st.integers(1, 500), max_size=60), st.integers(0, 20_000), st.randoms(use_true_random=False))
def test_a_choice_is_near_its_goal_and_independent_of_order(sizes, wanted, random) -> None:  # type: ignore[no-untyped-def]
    tokens = np.array(sizes, np.int64)
    order = hash_order([str(n) for n in range(len(sizes))], 1, "x")
    mask = choose(tokens, order, wanted)
    if tokens.sum() <= wanted:
        assert mask.all()
    else:
        assert abs(int(tokens[mask].sum()) - wanted) <= int(tokens.max()) // 2
    shuffled = list(range(len(sizes)))
    random.shuffle(shuffled)
    again = choose(tokens[shuffled], order[shuffled], wanted)
    assert np.array_equal(again, mask[shuffled])


def test_one_huge_document_does_not_break_a_share() -> None:
    tokens = np.array([10**6, *[100] * 2000], np.int64)
    for seed in range(20):
        mask = choose(tokens, hash_order([str(n) for n in range(2001)], seed, "e"), 50_000)
        assert int(tokens[mask].sum()) == 50_000


def test_few_long_documents_are_exchanged_until_the_sum_is_near() -> None:
    rng = np.random.default_rng(1)
    tokens = rng.integers(5_000, 50_000, 300).astype(np.int64)
    mask = choose(tokens, hash_order([str(n) for n in range(300)], 1, "e"), 2_000_000, tolerance=100)
    assert abs(int(tokens[mask].sum()) - 2_000_000) <= 100


@pytest.mark.parametrize("budget", [10_000, 200_000, 3_000_000])
def test_shares_come_out_within_a_tenth_of_a_percentage_point(budget: int) -> None:
    rng = np.random.default_rng(budget)
    sizes = {name: np.exp(rng.normal(4, 1.2, 4000)).astype(int) + 1 for name in NAMES}
    target = {"math": 0.3, "code": 0.35, "science": 0.2, "web": 0.15}
    report = made({n: s.tolist() for n, s in sizes.items()}, wish(target, budget)).report
    for name, share in target.items():
        entry = report["domains"][name]
        if entry["limited_by"] is None:
            assert abs(entry["share"] - share) < 0.001
    assert abs(report["totals"]["tokens"] - min(budget, report["totals"]["tokens"])) <= budget / 1000


def test_shares_are_of_tokens_whatever_the_lengths_of_documents() -> None:
    sizes = {"short": [100] * 5000, "long": [10_000] * 60}
    report = made(sizes, wish({"short": 0.5, "long": 0.5}, 600_000)).report
    assert abs(report["domains"]["short"]["share"] - 0.5) < 0.01
    assert abs(report["domains"]["long"]["share"] - 0.5) < 0.01


def test_epochs_are_whole_passes_and_a_part_of_one_more() -> None:
    mixture = made({"math": [10] * 101, "code": [10] * 1001}, wish({"math": 0.5, "code": 0.5}, 5_000))
    ids, domains, _, tokens = corpus({"math": [10] * 101, "code": [10] * 1001})
    math = (domains == "math") & (mixture.splits != HELDOUT)
    assert sorted(set(mixture.epochs[math].tolist())) == [2, 3]
    assert int((tokens * mixture.epochs)[math].sum()) == 2500
    assert mixture.report["domains"]["math"]["epochs_max"] == 3
    assert mixture.report["domains"]["math"]["epochs_mean"] == 2.5
    assert len(ids) == len(mixture.splits)


@pytest.mark.parametrize("max_epochs", [1, 2.5, 4])
def test_the_epoch_cap_is_kept_and_the_shortfall_said(max_epochs: float) -> None:
    sizes = {"math": [10] * 20, "code": [10] * 20}
    mixture = made(sizes, wish({"math": 0.7, "code": 0.3}, 10**9, max_epochs=max_epochs))
    report = mixture.report
    for name in sizes:
        entry = report["domains"][name]
        assert entry["limited_by"] == "supply"
        assert 0 <= entry["supply_tokens"] * max_epochs - entry["tokens"] < 10
        assert entry["shortfall_tokens"] == entry["target_tokens"] - entry["tokens"]
    assert mixture.epochs.max() == int(np.ceil(max_epochs))
    assert report["totals"]["shortfall_tokens"] == 10**9 - report["totals"]["tokens"]


def test_a_tiny_domain_with_nearly_all_the_weight_is_repeated_up_to_the_cap() -> None:
    report = made({"tiny": [10] * 5, "huge": [100] * 5000}, wish({"tiny": 0.999, "huge": 0.001}, 100_000)).report
    tiny, huge = report["domains"]["tiny"], report["domains"]["huge"]
    assert (tiny["limited_by"], tiny["epochs_mean"], tiny["tokens"]) == ("supply", 4.0, 160)
    assert (huge["limited_by"], report["totals"]["tokens"]) == ("others", 99_960)


def test_a_weight_that_rounds_to_less_than_a_document_is_reported() -> None:
    report = made({"a": [50] * 4000, "b": [50] * 4000}, wish({"a": 0.999999, "b": 0.000001}, 100_000)).report
    entry = report["domains"]["b"]
    assert (entry["tokens"], entry["share"], entry["target_share"]) == (0, 0.0, 0.000001)


def test_documents_too_long_for_the_budget_are_named_as_the_limit() -> None:
    report = made({"a": [100_000] * 10, "b": [10] * 10_000}, wish({"a": 0.3, "b": 0.7}, 50_000)).report
    assert report["domains"]["a"]["limited_by"] == "documents"
    assert report["domains"]["a"]["tokens"] == 0


def test_a_domain_with_a_share_and_no_documents_is_reported() -> None:
    report = made({"code": [10] * 500}, wish({"code": 0.6, "math": 0.4}, 1000)).report
    math = report["domains"]["math"]
    assert (math["documents"], math["tokens"], math["limited_by"], math["shortfall_tokens"]) == (0, 0, "supply", 400)
    assert report["domains"]["code"]["limited_by"] == "others"
    assert report["totals"]["tokens"] == 1000


def test_a_domain_without_a_share_is_not_used() -> None:
    mixture = made({"code": [10] * 500, "web": [10] * 50}, wish({"code": 1.0}, 1000))
    assert mixture.report["domains"]["web"]["limited_by"] == "no share"
    assert set(mixture.splits[500:].tolist()) == {UNUSED, HELDOUT}


def test_an_empty_corpus_has_a_report() -> None:
    report = made({}, wish({"code": 1.0}, 1000)).report
    assert report["totals"]["tokens"] == 0
    assert report["domains"]["code"]["limited_by"] == "supply"


def test_without_shares_the_mixture_is_in_proportion_to_the_supply() -> None:
    report = made({"a": [10] * 900, "b": [10] * 300}, wish({}, 4000, heldout_share=0.1)).report
    assert report["method"] == "proportional"
    assert report["domains"]["a"]["tokens"] == 3000
    assert report["domains"]["b"]["tokens"] == 1000


@pytest.mark.parametrize(
    ("documents", "least", "heldout"), [(1, 4, 0), (2, 4, 1), (5, 4, 2), (100, 4, 4), (1000, 4, 10)]
)
def test_heldout_documents_are_never_more_than_half(documents: int, least: int, heldout: int) -> None:
    order = hash_order([str(n) for n in range(documents)], 1, "heldout")
    assert int(heldout_mask(order, 0.01, least).sum()) == heldout


def test_heldout_documents_are_never_trained_on_and_order_does_not_matter() -> None:
    rng = np.random.default_rng(5)
    ids, domains, sources, tokens = corpus({n: rng.integers(1, 900, 300).tolist() for n in NAMES})
    asked = wish(dict.fromkeys(NAMES, 0.25), 500_000, heldout_share=0.05)
    first = mix(ids, domains, sources, tokens, asked)
    assert not first.epochs[first.splits == HELDOUT].any()
    assert (first.epochs[first.splits == TRAIN] > 0).all()
    assert not first.epochs[first.splits == UNUSED].any()
    shuffled = rng.permutation(len(ids))
    again = mix([ids[n] for n in shuffled], domains[shuffled], sources[shuffled], tokens[shuffled], asked)
    assert np.array_equal(again.epochs, first.epochs[shuffled])
    assert np.array_equal(again.splits, first.splits[shuffled])
    assert again.report == first.report
    other = mix(ids, domains, sources, tokens, wish(dict.fromkeys(NAMES, 0.25), 500_000, heldout_share=0.05, seed=4))
    assert not np.array_equal(other.epochs, first.epochs)


def test_the_report_adds_up() -> None:
    rng = np.random.default_rng(6)
    mixture = made({n: rng.integers(1, 900, 200).tolist() for n in NAMES}, wish(dict.fromkeys(NAMES, 0.25), 90_000))
    report, totals = mixture.report, mixture.report["totals"]
    for group in ("domains", "sources"):
        assert sum(entry["tokens"] for entry in report[group].values()) == totals["tokens"]
        assert sum(entry["documents"] for entry in report[group].values()) == 800
        assert sum(entry["share"] for entry in report[group].values()) == pytest.approx(1)
    assert totals["documents_train"] + totals["documents_heldout"] + totals["documents_unused"] == 800


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"shares": {"math": 0.5, "web": 0.4}}, "shares: .* sum to 0.9: they must sum to 1"),
        ({"shares": {"math": float("nan"), "web": 0.4}}, "sum to nan: they must sum to 1"),
        ({"shares": {}, "source_shares": {"a": 2.0}}, "source_shares: .* sum to 2"),
        ({"shares": {"math": 1.0}, "nested_shares": {"math": {"a": 0.3}}}, "math: .* sum to 0.3"),
        ({"shares": {}, "method": "target"}, "method target by domain needs shares"),
        ({"shares": {}, "temperature": 0.0}, "temperature 0 must be above 0"),
        ({"shares": {}, "max_epochs": 0.0}, "max_epochs: a cap of 0 epochs must be above 0"),
        ({"shares": {}, "source_epochs": {"a": -1.0}}, "a: a cap of -1 epochs must be above 0"),
    ],
)
def test_a_wish_that_cannot_be_meant_is_refused_where_it_is_made(fields: dict[str, Any], said: str) -> None:
    base: dict[str, Any] = {
        "budget": 10, "max_epochs": 4, "heldout_share": 0.01, "heldout_documents": 1, "seed": 0
    }  # fmt: skip
    with pytest.raises(ValueError, match=said):
        MixtureWish(**{**base, **fields})


def test_a_score_that_equals_the_threshold_is_enough() -> None:
    """Scores are stored in 32 bits, in which 0.7 is a little less than 0.7."""
    scores = np.array([0.7, 0.69, 0.9], np.float32).astype(np.float64)
    wish = MixtureWish({}, 100, 1, 0.01, 0, 0, min_quality=0.7)
    names = np.array(["web"] * 3, object)
    mixture = mix(["a", "b", "c"], names, names, np.array([10, 10, 10]), wish, scores)
    assert mixture.epochs.tolist() == [1, 0, 1]
