"""What is kept for later, more selective stages, so that a decay on the best documents finds them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filters.text.mixing import HELDOUT, MixtureWish, StagedMixture, mix_stages
from filters.text.mixture import use_divisibly, use_evenly


def corpus(count: int = 2000, seed: int = 4) -> tuple[list[str], Any, Any, Any, Any]:
    rng = np.random.default_rng(seed)
    domains = rng.choice(["code", "web"], count).astype(object)
    sources = rng.choice(["one", "two"], count).astype(object)
    return [f"{n:032x}" for n in range(count)], domains, sources, rng.integers(20, 200, count), rng.random(count)


def wish(budget: float, **other: Any) -> MixtureWish:
    base: dict[str, Any] = {"shares": {}, "method": "proportional", "max_epochs": 1, "seed": 3}
    return MixtureWish(budget=int(budget), heldout_share=0.01, heldout_documents=1, **{**base, **other})


def staged(columns: Any, wishes: dict[str, MixtureWish], **how: Any) -> StagedMixture:
    return mix_stages(*columns[:4], wishes, columns[4], **how)


def reached(mixture: StagedMixture) -> list[int]:
    return [stage["totals"]["tokens"] for stage in mixture.report["stages"]]


@pytest.mark.parametrize("divisible", [False, True])
def test_a_decay_on_the_best_documents_gets_them_though_earlier_stages_want_everything(divisible: bool) -> None:
    columns = corpus()
    supply = int(columns[3].sum())
    decay = wish(supply * 0.2, min_quality=0.75)
    mixture = staged(columns, {"diverse": wish(supply * 10), "decay": decay}, divisible=divisible)
    assert reached(mixture)[1] == pytest.approx(supply * 0.2, rel=0.001)
    assert columns[4][mixture.uses[:, 1] > 0].min() >= 0.75
    trained = mixture.splits != HELDOUT
    assert mixture.epochs.max() <= 1 + 1e-9
    assert sum(reached(mixture)) == pytest.approx(int(columns[3][trained].sum()), rel=0.001)
    first, last = mixture.report["stages"]
    assert {entry["limited_by"] for entry in last["domains"].values()} == {None}
    assert {entry["limited_by"] for entry in first["domains"].values()} == {"supply"}


def test_where_caps_leave_room_earlier_stages_have_the_best_documents_too() -> None:
    columns = corpus()
    supply = int(columns[3].sum())
    wishes = {"diverse": wish(supply * 0.8, max_epochs=4), "decay": wish(supply * 0.2, max_epochs=4, min_quality=0.75)}
    mixture = staged(columns, wishes)
    best = columns[4] >= 0.75
    diverse = columns[3] * mixture.uses[:, 0]
    assert diverse[best].sum() / diverse.sum() == pytest.approx(columns[3][best].sum() / supply, abs=0.03)
    assert reached(mixture) == pytest.approx([supply * 0.8, supply * 0.2], rel=0.001)


def test_equal_thresholds_are_served_in_training_order() -> None:
    columns = corpus()
    supply = int(columns[3].sum())
    mixture = staged(columns, {"one": wish(supply * 10, min_quality=0.5), "two": wish(1000, min_quality=0.5)})
    assert reached(mixture)[1] == 0


def test_a_reserve_leaves_what_a_later_cap_allows() -> None:
    """The decay may bring documents to three uses in all, the stage before it to two: both get theirs."""
    columns = corpus()
    best = int(columns[3][columns[4] >= 0.75].sum())
    wishes = {
        "diverse": wish(10**9, max_epochs=2),
        "high": wish(best * 0.5, max_epochs=2, min_quality=0.5),
        "decay": wish(best * 0.9, max_epochs=3, min_quality=0.75),
    }
    mixture = staged(columns, wishes)
    assert reached(mixture)[1:] == pytest.approx([best * 0.5, best * 0.9], rel=0.01)
    assert mixture.epochs.max() <= 3
    assert mixture.uses[:, :2].sum(axis=1).max() <= 2


@pytest.mark.parametrize("cap", [0.5, 1.5, 2.5])
def test_a_cap_that_is_no_whole_number_holds_over_all_stages(cap: float) -> None:
    columns = corpus()
    mixture = staged(columns, {name: wish(10**9, max_epochs=cap) for name in "abc"})
    supply = int(columns[3][mixture.splits != HELDOUT].sum())
    assert sum(reached(mixture)) == pytest.approx(cap * supply, abs=200)
    assert reached(mixture)[1:] == [0, 0]


def test_a_domain_without_documents_may_be_asked_for_by_one_stage_alone() -> None:
    columns = corpus(100)
    mixture = staged(columns, {"a": wish(500), "b": wish(500, method="target", shares={"math": 0.5, "web": 0.5})})
    math = mixture.report["domains"]["math"]
    assert (math["documents"], math["target_tokens"], math["limited_by"]) == (0, 250, "supply")


STAGE = st.tuples(st.sampled_from([0.0, 0.5, 0.75]), st.floats(0.05, 3), st.sampled_from([0.5, 1, 2, 3]))


@settings(max_examples=40, deadline=None)
@given(st.lists(STAGE, min_size=2, max_size=4), st.integers(0, 3))
def test_caps_hold_and_the_most_selective_stage_lacks_nothing_that_it_could_have(stages: Any, seed: int) -> None:
    columns = corpus(300, seed)
    ids, domains, sources, tokens, quality = columns
    supply = int(tokens.sum())
    wishes = {f"{n}": wish(supply * part, min_quality=q, max_epochs=cap) for n, (q, part, cap) in enumerate(stages)}
    mixture = staged(columns, wishes)
    for place in range(len(stages)):
        cap = max(stage[2] for stage in stages[: place + 1])
        assert mixture.uses[:, : place + 1].sum(axis=1).max() <= np.ceil(cap)
    highest = max(q for q, _, _ in stages)
    place = next(n for n, stage in enumerate(stages) if stage[0] == highest)
    alone = staged(columns, {"alone": wishes[str(place)]})
    slack = 200 * 2  # whole documents, of two domains
    if all(stage[2] == stages[0][2] for stage in stages):
        assert reached(mixture)[place] >= reached(alone)[0] - slack
    at = np.random.default_rng(1).permutation(len(ids))
    again = mix_stages([ids[n] for n in at], domains[at], sources[at], tokens[at], wishes, quality[at])
    assert np.array_equal(again.uses, mixture.uses[at])


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 300), st.integers(0, 4), st.integers(0, 5)), min_size=1, max_size=30),
    st.integers(0, 30_000),
)
def test_uses_stay_within_what_each_document_has_left(rows: list[tuple[int, int, int]], wanted: int) -> None:
    tokens, used, most = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    room = int((tokens * np.maximum(most - used, 0)).sum())
    more = use_evenly([str(n) for n in range(len(rows))], tokens, used.astype(np.int32), wanted, 1, 0, most)
    assert (more >= 0).all() and ((used + more <= most) | (more == 0)).all()
    assert abs(int((tokens * more).sum()) - min(wanted, room)) <= int(tokens.max())
    parts = use_divisibly(tokens, used.astype(float), wanted, most.astype(float))
    assert (parts >= 0).all() and ((used + parts <= most + 1e-9) | (parts == 0)).all()
    assert float((tokens * parts).sum()) == pytest.approx(min(wanted, room))
