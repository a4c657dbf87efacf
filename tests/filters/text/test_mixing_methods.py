"""Mixtures of a few thousand documents: shares by domain and by source within 0.1 percentage point, caps, floors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from filters.text.mixing import HELDOUT, Mixture, MixtureWish, mix

DOMAINS = ("code", "math", "web")
SOURCES = ("books", "crawl", "forum", "repos")
NEAR = 0.001  # 0.1 percentage point


def corpus(count: int = 6000, seed: int = 1) -> tuple[list[str], Any, Any, Any, Any]:
    """Documents of log-normal lengths; every domain has some of every source, in other proportions."""
    rng = np.random.default_rng(seed)
    domains = rng.choice(DOMAINS, count, p=[0.5, 0.2, 0.3])
    sources = np.empty(count, object)
    for domain, odds in zip(DOMAINS, ([0.1, 0.2, 0.1, 0.6], [0.5, 0.2, 0.2, 0.1], [0.1, 0.7, 0.2, 0.0]), strict=True):
        rows = domains == domain
        sources[rows] = rng.choice(SOURCES, int(rows.sum()), p=odds)
    tokens = np.exp(rng.normal(5, 1, count)).astype(np.int64) + 1
    return [f"{n:032x}" for n in range(count)], domains.astype(object), sources, tokens, rng.random(count)


def wish(budget: int, **other: Any) -> MixtureWish:
    base: dict[str, Any] = {"shares": {}, "max_epochs": 4, "heldout_share": 0.01, "heldout_documents": 1, "seed": 3}
    return MixtureWish(**{**base, "budget": budget, **other})


def made(asked: MixtureWish, columns: Any = None) -> Mixture:
    ids, domains, sources, tokens, quality = columns or corpus()
    return mix(ids, domains, sources, tokens, asked, quality)


def supply_of(columns: Any, axis: int) -> dict[str, int]:
    _, *names, tokens, _ = columns
    return {n: int(tokens[names[axis] == n].sum()) for n in sorted(set(names[axis].tolist()))}


@pytest.mark.parametrize("budget", [100_000, 700_000, 2_000_000])
def test_shares_by_domain_and_by_source_at_once(budget: int) -> None:
    domains = {"code": 0.4, "math": 0.3, "web": 0.3}
    sources = {"books": 0.25, "crawl": 0.35, "forum": 0.15, "repos": 0.25}
    report = made(wish(budget, shares=domains, method="target", source_shares=sources)).report
    for group, wanted in (("domains", domains), ("sources", sources)):
        for name, share in wanted.items():
            entry = report[group][name]
            assert entry["limited_by"] is None
            assert abs(entry["share"] - share) < NEAR
            assert entry["shortfall_tokens"] <= budget * NEAR
    assert abs(report["totals"]["tokens"] - budget) <= budget * NEAR


def test_shares_by_source_alone() -> None:
    wanted = {"books": 0.5, "repos": 0.5}
    report = made(wish(400_000, method="target", axis="source", source_shares=wanted)).report
    assert {n: round(e["share"], 3) for n, e in report["sources"].items()} == {
        "books": 0.5, "crawl": 0.0, "forum": 0.0, "repos": 0.5
    }  # fmt: skip
    assert report["sources"]["crawl"]["limited_by"] == "no share"
    assert "target_share" not in report["domains"]["math"]


def test_shares_of_sources_inside_a_domain() -> None:
    shares = {"code": 0.5, "math": 0.3, "web": 0.2}
    nested = {"code": {"repos": 0.9, "forum": 0.1}, "math": {"books": 0.25, "crawl": 0.75}}
    columns = corpus()
    mixture = made(wish(300_000, shares=shares, method="target", nested_shares=nested), columns)
    _, domains, sources, tokens, _ = columns
    used = tokens * mixture.epochs
    for domain, inside in nested.items():
        whole = used[domains == domain].sum()
        assert abs(whole / used.sum() - shares[domain]) < NEAR
        for source, share in inside.items():
            assert abs(used[(domains == domain) & (sources == source)].sum() / whole - share) < 2 * NEAR
            assert mixture.report["within"][domain][source]["target_share"] == share
    assert not used[(domains == "code") & (sources == "books")].any()
    assert used[(domains == "web") & (sources == "crawl")].any()


def test_a_source_that_runs_dry_is_made_up_inside_its_domain_and_said() -> None:
    nested = {"math": {"repos": 0.9, "books": 0.1}}
    report = made(wish(400_000, shares={"math": 1.0}, method="target", nested_shares=nested)).report
    repos = report["within"]["math"]["repos"]
    assert repos["target_tokens"] == 360_000
    assert repos["epochs_mean"] == pytest.approx(4, abs=0.001)
    assert repos["shortfall_tokens"] == 360_000 - repos["tokens"] > 0
    assert report["sources"]["repos"]["limited_by"] == "supply"
    assert report["sources"]["books"]["tokens"] == pytest.approx(400_000 - repos["tokens"], abs=400)
    assert report["totals"]["shortfall_tokens"] <= 400


def test_a_source_that_gives_elsewhere_too_has_a_target_inside_its_domain_only() -> None:
    nested = {"math": {"books": 0.9, "crawl": 0.1}}
    report = made(wish(200_000, shares={"math": 0.5, "web": 0.5}, method="target", nested_shares=nested)).report
    assert report["within"]["math"]["crawl"]["target_tokens"] == 10_000
    assert report["sources"]["crawl"]["tokens"] > 2 * 10_000, "web takes it too"
    assert "target_tokens" not in report["sources"]["crawl"]


@pytest.mark.parametrize(("method", "temperature"), [("proportional", 1.0), ("temperature", 3.0), ("unimax", 1.0)])
@pytest.mark.parametrize("axis", ["domain", "source"])
def test_methods_reach_their_own_targets(method: str, temperature: float, axis: str) -> None:
    columns = corpus()
    asked = wish(500_000, method=method, temperature=temperature, axis=axis, heldout_documents=0, heldout_share=0.0)
    report = made(asked, columns).report
    supply = supply_of(columns, ("domain", "source").index(axis))
    weights = {n: 1.0 if method == "unimax" else t ** (1 / temperature) for n, t in supply.items()}
    for name, entry in report[axis + "s"].items():
        assert entry["target_share"] == pytest.approx(weights[name] / sum(weights.values()), abs=1e-6)
        assert abs(entry["share"] - entry["target_share"]) < NEAR
    assert report["method"] == method
    assert sum(e["target_share"] for e in report[axis + "s"].values()) == pytest.approx(1)


def test_unimax_caps_the_small_and_shares_the_rest_evenly() -> None:
    columns = corpus()
    supply = supply_of(columns, 1)
    budget = 3 * sum(supply.values())
    asked = wish(budget, method="unimax", axis="source", heldout_share=0.0, heldout_documents=0)
    report = made(asked, columns).report
    small = min(supply, key=lambda n: supply[n])
    assert report["sources"][small]["epochs_mean"] == pytest.approx(4)
    assert report["sources"][small]["share"] == pytest.approx(4 * supply[small] / budget, abs=NEAR)
    free = [e for e in report["sources"].values() if e["epochs_mean"] < 3.99]
    assert free
    assert max(e["tokens"] for e in free) - min(e["tokens"] for e in free) <= budget * NEAR


def test_caps_by_domain_and_by_source_replace_the_general_one() -> None:
    columns = corpus()
    asked = wish(10**9, method="proportional", domain_epochs={"math": 2}, source_epochs={"repos": 1, "books": 3})
    mixture = made(asked, columns)
    _, domains, sources, _, _ = columns
    trained = mixture.splits != HELDOUT
    expected = np.where(sources == "repos", 1, np.where(domains == "math", 2, np.where(sources == "books", 3, 4)))
    assert np.array_equal(mixture.epochs[trained], expected[trained])
    assert mixture.report["max_epochs_by_domain"] == {"math": 2}


def test_floors_lift_a_domain_and_a_source() -> None:
    asked = wish(400_000, method="proportional", domain_floors={"math": 0.35}, source_floors={"forum": 0.3})
    report = made(asked).report
    assert abs(report["domains"]["math"]["share"] - 0.35) < NEAR
    assert abs(report["sources"]["forum"]["share"] - 0.3) < NEAR
    code, web = report["domains"]["code"], report["domains"]["web"]
    assert code["target_share"] / web["target_share"] == pytest.approx(code["supply_tokens"] / web["supply_tokens"])


def test_a_floor_that_the_supply_cannot_give_is_reported() -> None:
    report = made(wish(3_000_000, method="proportional", source_floors={"forum": 0.9})).report
    forum = report["sources"]["forum"]
    assert (forum["limited_by"], forum["target_tokens"]) == ("supply", 2_700_000)
    assert forum["shortfall_tokens"] == 2_700_000 - forum["tokens"] > 0


def test_only_documents_of_the_wanted_quality_are_used() -> None:
    columns = corpus()
    asked = wish(300_000, shares=dict.fromkeys(DOMAINS, 1 / 3), method="target", min_quality=0.6)
    mixture = made(asked, columns)
    assert columns[4][mixture.epochs > 0].min() >= 0.6
    totals = mixture.report["totals"]
    below = (columns[4] < 0.6) & (mixture.splits != HELDOUT)
    assert totals["documents_below_quality"] == int(below.sum())
    assert all(abs(e["share"] - 1 / 3) < NEAR for e in mixture.report["domains"].values())
    with pytest.raises(ValueError, match="needs the documents' quality"):
        mix(*columns[:4], asked)


def test_the_order_of_documents_decides_nothing() -> None:
    ids, domains, sources, tokens, quality = corpus(2000)
    asked = wish(
        200_000,
        shares={"code": 0.4, "math": 0.3, "web": 0.3},
        method="target",
        source_shares={"books": 0.2, "crawl": 0.4, "forum": 0.2, "repos": 0.2},
        min_quality=0.2,
    )
    first = mix(ids, domains, sources, tokens, asked, quality)
    at = np.random.default_rng(4).permutation(len(ids))
    again = mix([ids[n] for n in at], domains[at], sources[at], tokens[at], asked, quality[at])
    assert np.array_equal(again.epochs, first.epochs[at])
    assert again.report == first.report


@pytest.mark.parametrize("method", ["proportional", "temperature", "unimax"])
def test_an_empty_corpus_and_a_lone_document_have_results(method: str) -> None:
    empty = np.array([], object)
    none = mix([], empty, empty, np.array([], np.int64), wish(100, method=method, axis="source"))
    assert (none.report["totals"]["tokens"], none.report["totals"]["shortfall_tokens"]) == (0, 100)
    one = np.array(["x"], object)
    lone = mix(["a"], one, one, np.array([10], np.int64), wish(100, method=method, temperature=2))
    assert lone.epochs.tolist() == [4]
