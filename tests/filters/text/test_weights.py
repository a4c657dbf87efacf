"""Shares by method: exact values by hand, UniMax beside the paper's own loop, floors, and properties of all of them."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from filters.text.mixture import fill
from filters.text.weights import proportional_shares, raise_to_floors, temperature_shares, unimax_shares

NAMES = ["a", "b", "c", "d", "e"]
SUPPLY = st.lists(st.integers(0, 10**12), min_size=5, max_size=5).map(lambda v: dict(zip(NAMES, v, strict=True)))
WEIGHTS = st.lists(st.integers(0, 20), min_size=5, max_size=5).filter(any)


def named(values: list[int]) -> dict[str, Fraction]:
    return {n: Fraction(v, sum(values)) for n, v in zip(NAMES, values, strict=True)}


def test_proportional_shares_are_the_supply() -> None:
    assert proportional_shares({"a": 30, "b": 10, "c": 0}) == {"a": Fraction(3, 4), "b": Fraction(1, 4), "c": 0}
    assert proportional_shares({"a": 0}) == {"a": 0}


@pytest.mark.parametrize(
    ("temperature", "expected"),
    [(1, [100 / 111, 10 / 111, 1 / 111]), (2, [10 / 14.16227766, 3.16227766 / 14.16227766, 1 / 14.16227766]),
     (0.5, [10000 / 10101, 100 / 10101, 1 / 10101]), (1000, [1 / 3, 1 / 3, 1 / 3])],
)  # fmt: skip
def test_temperature_by_hand(temperature: float, expected: list[float]) -> None:
    shares = temperature_shares({"a": 100, "b": 10, "c": 1}, temperature)
    assert [float(shares[n]) for n in "abc"] == pytest.approx(expected, abs=0.002 if temperature == 1000 else 1e-9)


@pytest.mark.parametrize("temperature", [0, -1, float("nan")])
def test_a_temperature_that_is_not_above_zero_is_refused(temperature: float) -> None:
    with pytest.raises(ValueError, match="must be above 0"):
        temperature_shares({"a": 1}, temperature)


@given(SUPPLY, st.floats(0.2, 100), st.floats(0.2, 100))
def test_a_higher_temperature_is_nearer_to_equal_shares(supply, one, other) -> None:  # type: ignore[no-untyped-def]
    low, high = sorted((one, other))
    cold, hot = temperature_shares(supply, low), temperature_shares(supply, high)
    there = [n for n in NAMES if supply[n]]
    if not there:
        assert set(hot.values()) == {Fraction(0)}
        return
    assert sum(hot.values()) == sum(cold.values()) == 1
    assert max(hot.values()) <= max(cold.values()) + Fraction(1, 10**12)
    for a in there:
        for b in there:
            assert supply[a] > supply[b] or hot[a] <= hot[b]
    assert all(hot[n] == 0 for n in NAMES if not supply[n])


def paper_unimax(counts: list[int], epochs: int, budget: int) -> list[float]:
    """Algorithm 1 of arXiv 2304.09151, line by line, in floats."""
    order = sorted(range(len(counts)), key=lambda i: (counts[i], i))
    left, given_out = float(budget), [0.0] * len(counts)
    for place, language in enumerate(order):
        per_language = left / (len(counts) - place)
        given_out[language] = counts[language] * epochs if per_language > counts[language] * epochs else per_language
        left -= given_out[language]
    return [value / sum(given_out) for value in given_out]


@given(st.lists(st.integers(1, 10**9), min_size=5, max_size=5), st.integers(1, 8), st.integers(1, 10**10))
def test_unimax_is_the_algorithm_of_the_paper(counts: list[int], epochs: int, budget: int) -> None:
    shares = unimax_shares({n: c * epochs for n, c in zip(NAMES, counts, strict=True)}, budget)
    assert [float(shares[n]) for n in NAMES] == pytest.approx(paper_unimax(counts, epochs, budget), rel=1e-9)
    assert sum(shares.values()) == 1


def test_unimax_by_hand() -> None:
    # 1000 over three: a's cap is 40, then b's 200 of (960 / 2), then c has the remaining 760
    shares = unimax_shares({"a": 40, "b": 200, "c": 5000}, 1000)
    assert shares == {"a": Fraction(40, 1000), "b": Fraction(200, 1000), "c": Fraction(760, 1000)}
    assert unimax_shares({"a": 40, "b": 60, "c": 0}, 1000) == {"a": Fraction(2, 5), "b": Fraction(3, 5), "c": 0}
    assert unimax_shares({}, 10) == {}


@given(SUPPLY, st.integers(1, 10**12))
def test_unimax_gives_what_water_filling_of_equal_shares_gives(room: dict[str, int], budget: int) -> None:
    shares = unimax_shares(room, budget)
    even = fill(room, {n: Fraction(1 if room[n] else 0) for n in NAMES}, budget)
    spent = min(budget, sum(room.values()))
    for name in NAMES:
        assert abs(even[name].tokens - shares[name] * spent) <= len(NAMES)


def test_floors_by_hand() -> None:
    shares = raise_to_floors(named([80, 15, 4, 1, 0]), {"d": Fraction(1, 10), "e": Fraction(1, 10)})
    assert shares["d"] == shares["e"] == Fraction(1, 10)
    assert [shares[n] for n in "abc"] == [Fraction(4, 5) * Fraction(w, 99) for w in (80, 15, 4)]


@given(WEIGHTS, st.lists(st.integers(0, 20), min_size=5, max_size=5), st.randoms(use_true_random=False))
def test_floors_hold_and_the_others_keep_their_proportions(weights, low, random) -> None:  # type: ignore[no-untyped-def]
    floors = {n: Fraction(v, 101) for n, v in zip(NAMES, low, strict=True)}
    before = named(weights)
    after = raise_to_floors(before, floors)
    assert sum(after.values()) == 1
    free = [n for n in NAMES if after[n] != floors[n]]
    for name in NAMES:
        assert after[name] >= floors[name]
    for a in free:
        for b in free:
            assert after[a] * before[b] == after[b] * before[a]
    mixed = NAMES[:]
    random.shuffle(mixed)
    assert raise_to_floors({n: before[n] for n in mixed}, {n: floors[n] for n in mixed}) == after


@given(SUPPLY, WEIGHTS, st.integers(0, 10**12), st.integers(0, 10**10))
def test_a_larger_budget_never_gives_a_group_less(room, weights, budget, more) -> None:  # type: ignore[no-untyped-def]
    small, large = fill(room, named(weights), budget), fill(room, named(weights), budget + more)
    for name in NAMES:
        assert large[name].tokens >= small[name].tokens - 2  # rounding to whole tokens
        assert large[name].tokens <= room[name]
