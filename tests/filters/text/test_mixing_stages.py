"""Stages that share one supply: shares of each, caps over all, rising quality, least used documents first."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filters.text.mixing import HELDOUT, TRAIN, MixtureWish, StagedMixture, mix, mix_stages
from filters.text.mixture import use_evenly

DOMAINS = ("code", "math", "web")
DIVERSE = {"code": 0.3, "math": 0.2, "web": 0.5}
BEST = {"code": 0.4, "math": 0.4, "web": 0.2}


def corpus(count: int = 3000) -> tuple[list[str], Any, Any, Any, Any]:
    rng = np.random.default_rng(2)
    domains = rng.choice(DOMAINS, count).astype(object)
    sources = rng.choice(["one", "two"], count).astype(object)
    tokens = np.exp(rng.normal(4.5, 1, count)).astype(np.int64) + 1
    return [f"{n:032x}" for n in range(count)], domains, sources, tokens, rng.random(count)


def wish(budget: int, shares: dict[str, float], **other: Any) -> MixtureWish:
    base: dict[str, Any] = {"max_epochs": 4, "heldout_share": 0.01, "heldout_documents": 1, "seed": 3}
    return MixtureWish(shares=shares, budget=budget, **{**base, "method": "target", **other})


def staged(wishes: dict[str, MixtureWish], columns: Any = None) -> StagedMixture:
    ids, domains, sources, tokens, quality = columns or corpus()
    return mix_stages(ids, domains, sources, tokens, wishes, quality)


FG_WSD = {
    "warm-up": wish(20_000, DIVERSE),
    "diverse": wish(250_000, DIVERSE),
    "high-quality": wish(150_000, BEST, min_quality=0.5),
    "decay": wish(60_000, BEST, min_quality=0.75),
}


def test_every_stage_has_its_own_shares_and_threshold() -> None:
    columns = corpus()
    mixture = staged(FG_WSD, columns)
    _, domains, _, tokens, quality = columns
    for place, (name, asked) in enumerate(FG_WSD.items()):
        used = tokens * mixture.uses[:, place]
        assert abs(int(used.sum()) - asked.budget) <= asked.budget / 1000
        for domain, share in asked.shares.items():
            assert abs(used[domains == domain].sum() / used.sum() - share) < 0.001
        assert quality[used > 0].min() >= asked.min_quality
        report = mixture.report["stages"][place]
        assert (report["name"], report["totals"]["tokens"]) == (name, int(used.sum()))
        assert {d: e["limited_by"] for d, e in report["domains"].items()} == dict.fromkeys(DOMAINS)


def test_the_sums_over_stages_are_the_whole() -> None:
    columns = corpus()
    mixture = staged(FG_WSD, columns)
    tokens = columns[3]
    assert np.array_equal(mixture.uses.sum(axis=1), mixture.epochs)
    assert ((mixture.epochs > 0) == (mixture.splits == TRAIN)).all()
    assert not mixture.uses[mixture.splits == HELDOUT].any()
    report = mixture.report
    assert report["totals"]["tokens"] == int((tokens * mixture.epochs).sum())
    for group in ("domains", "sources"):
        for name, entry in report[group].items():
            assert entry["tokens"] == sum(stage[group][name]["tokens"] for stage in report["stages"])
    assert report["domains"]["web"]["target_tokens"] == 10_000 + 125_000 + 30_000 + 12_000
    assert report["totals"]["budget_tokens"] == 480_000


def test_the_cap_counts_the_uses_of_all_stages() -> None:
    mixture = staged({"one": wish(10**9, DIVERSE, max_epochs=2), "two": wish(10**9, DIVERSE, max_epochs=3)})
    trained = mixture.splits != HELDOUT
    assert set(mixture.uses[trained, 0].tolist()) == {2}
    assert set(mixture.uses[trained, 1].tolist()) == {1}
    late = mixture.report["stages"][1]["domains"]["web"]
    assert (late["limited_by"], late["epochs_mean"], late["epochs_so_far"]) == ("supply", 1.0, 3)
    assert mixture.report["domains"]["web"]["epochs_max"] == 3


def test_a_stage_that_finds_its_documents_used_up_is_reported() -> None:
    mixture = staged({"one": wish(10**9, DIVERSE, min_quality=0.5), "two": wish(50_000, BEST, min_quality=0.5)})
    second = mixture.report["stages"][1]
    assert second["totals"]["tokens"] == 0
    assert second["totals"]["shortfall_tokens"] == 50_000
    assert {e["limited_by"] for e in second["domains"].values()} == {"supply"}
    assert sum(e["shortfall_tokens"] for e in second["domains"].values()) == 50_000


def test_fresh_documents_come_before_repeated_ones() -> None:
    columns = corpus()
    supply = int(columns[3].sum())
    even = {"code": 1 / 3, "math": 1 / 3, "web": 1 / 3}
    mixture = staged({"one": wish(supply // 4, even), "two": wish(supply // 4, even)}, columns)
    assert mixture.epochs.max() == 1


def test_one_stage_is_the_mixture_without_stages() -> None:
    columns = corpus()
    asked = wish(700_000, DIVERSE)
    whole, single = staged({"all": asked}, columns), mix(*columns[:4], asked)
    assert np.array_equal(whole.epochs, single.epochs)
    assert np.array_equal(whole.splits, single.splits)


def test_the_order_of_documents_decides_nothing() -> None:
    ids, domains, sources, tokens, quality = corpus(1500)
    first = mix_stages(ids, domains, sources, tokens, FG_WSD, quality)
    at = np.random.default_rng(9).permutation(len(ids))
    again = mix_stages([ids[n] for n in at], domains[at], sources[at], tokens[at], FG_WSD, quality[at])
    assert np.array_equal(again.uses, first.uses[at])
    assert again.report == first.report


def test_an_empty_corpus_has_stages_too() -> None:
    none = np.array([], object)
    mixture = mix_stages([], none, none, np.array([], np.int64), FG_WSD, np.array([]))
    assert mixture.uses.shape == (0, 4)
    assert mixture.report["totals"]["shortfall_tokens"] == 480_000


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(1, 300), st.integers(0, 4)), min_size=1, max_size=40), st.integers(0, 40_000))
def test_uses_are_evened_out_up_to_the_wanted_tokens(rows: list[tuple[int, int]], wanted: int) -> None:
    tokens, used = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    more = use_evenly([str(n) for n in range(len(rows))], tokens, used.astype(np.int32), wanted, 1, 0)
    given_out = int((tokens * more).sum())
    assert abs(given_out - wanted) <= int(tokens.max())
    total = used + more
    raised = more > 0
    if raised.any():  # nobody is raised above another that could have been raised instead
        assert total[raised].max() <= total.min() + 1


@pytest.mark.parametrize("wanted", [0, -5])
def test_nothing_is_used_when_nothing_is_wanted(wanted: int) -> None:
    assert use_evenly(["a"], np.array([5]), np.array([1], np.int32), wanted, 1, 0).tolist() == [0]
