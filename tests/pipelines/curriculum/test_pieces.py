"""Pretraining rows: every token of every copy once, epochs far apart and in other orders, domains in proportion."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pipelines.curriculum.pieces import PretrainPlan, cut, plan_pretrain, plan_stage_mixtures, spread_copies
from schemas.recipe import PretrainStage


def ints(values: list[int]) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def hashes(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2**63, count).astype(np.uint64)


def coverage(plans: list[PretrainPlan]) -> dict[tuple[int, int], list[tuple[int, int, int]]]:
    """Copy → its pieces (number, offset, length) in order."""
    found: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
    for plan in plans:
        for d, e, n, o, length in zip(
            *(x.tolist() for x in (plan.document, plan.epoch, plan.number, plan.offset, plan.length)), strict=True
        ):
            found.setdefault((d, e), []).append((n, o, length))
    return {copy: sorted(pieces) for copy, pieces in found.items()}


@given(st.lists(st.integers(1, 90), max_size=20), st.integers(2, 30))
def test_pieces_cover_a_copy_without_gap_or_overlap(lengths: list[int], capacity: int) -> None:
    copy, number, offset, length = cut(ints(lengths), capacity)
    for place, total in enumerate(lengths):
        mine = copy == place
        assert number[mine].tolist() == list(range(int(mine.sum())))
        ends = (offset[mine] + length[mine]).tolist()
        assert offset[mine].tolist() == [0, *ends[:-1]] and ends[-1] == total
        assert length[mine].min() >= 1 and length[mine].max() <= capacity
        assert len(ends) == -(-total // capacity)


def test_a_lone_last_token_takes_one_along() -> None:
    assert cut(ints([9, 8, 1]), 4)[3].tolist() == [4, 3, 2, 4, 4, 1]


@given(
    st.lists(st.tuples(st.integers(1, 70), st.integers(0, 3)), max_size=25),
    st.lists(st.integers(1, 400), min_size=1, max_size=3),
)
def test_tokens_are_conserved_over_stages_and_what_is_left(docs: list[tuple[int, int]], budgets: list[int]) -> None:
    tokens, epochs = ints([t for t, _ in docs]), ints([e for _, e in docs])
    copies = spread_copies(hashes(len(docs)), epochs)
    stages = [PretrainStage(context_tokens=16, budget_tokens=budget) for budget in budgets]
    plans, left = plan_pretrain(copies, tokens, stages, 1)
    found = coverage(plans)
    for (document, _), pieces in found.items():
        assert sum(length for *_, length in pieces) == docs[document][0]
        assert [number for number, *_ in pieces] == list(range(len(pieces)))
    everything = sorted([*found, *zip(left.document.tolist(), left.epoch.tolist(), strict=True)])
    assert everything == sorted((d, e) for d, (_, count) in enumerate(docs) for e in range(count))
    for plan in plans:
        rows = np.diff(plan.starts)
        assert rows.min(initial=1) >= 1
        filled = [int(plan.length[a:b].sum()) for a, b in zip(plan.starts[:-1], plan.starts[1:], strict=True)]
        assert all(f <= 16 for f in filled)
        assert plan.report["tokens"] == sum(filled)
        assert plan.report["trained_tokens"] == sum(filled) - len(plan.length)


def test_a_stage_takes_whole_copies_until_its_budget() -> None:
    copies = spread_copies(hashes(10), ints([1] * 10))
    stages = [PretrainStage(context_tokens=64, budget_tokens=25), PretrainStage(context_tokens=128, budget_tokens=30)]
    plans, left = plan_pretrain(copies, ints([10] * 10), stages, 1)
    assert [plan.report["tokens"] for plan in plans] == [30, 30]
    assert len(left.document) == 4


def test_copies_of_a_document_are_spread_and_each_epoch_has_its_own_order() -> None:
    copies = spread_copies(hashes(200), ints([4] * 200))
    for document in range(200):
        places = np.flatnonzero(copies.document == document)
        assert copies.epoch[places].tolist() == [0, 1, 2, 3]
        assert [place // 200 for place in places.tolist()] == [0, 1, 2, 3]
    orders = [copies.document[copies.epoch == epoch].tolist() for epoch in range(4)]
    assert len({tuple(order) for order in orders}) == 4


def test_any_stretch_has_the_domains_in_proportion() -> None:
    """Domain 0: 400 documents of 50 tokens once; domain 1: 50 of 400 tokens, twice. By tokens 1 : 2."""
    tokens = ints([50] * 400 + [400] * 50)
    copies = spread_copies(hashes(450), ints([1] * 400 + [2] * 50))
    plans, _ = plan_pretrain(copies, tokens, [PretrainStage(context_tokens=512, budget_tokens=10**6)], 1)
    plan = plans[0]
    middle = int(plan.starts[(len(plan.starts) - 1) // 2])
    for half in (slice(0, middle), slice(middle, None)):
        length, document = plan.length[half], plan.document[half]
        assert abs(length[document >= 400].sum() / length.sum() - 2 / 3) < 0.05


def test_rows_are_full_over_many_windows() -> None:
    generator = np.random.default_rng(0)
    tokens = np.clip(generator.lognormal(5, 1, 4000), 1, 9000).astype(np.int64)
    copies = spread_copies(hashes(4000), generator.integers(0, 4, 4000).astype(np.int64))
    plans, _ = plan_pretrain(copies, tokens, [PretrainStage(context_tokens=512, budget_tokens=10**8)], 1, cost_window=4)
    assert plans[0].report["rows"] > 1024 and plans[0].report["fill"] >= 0.995
    assert plans[0].report["short_rows"] <= 2


def test_nothing_to_train_on_gives_an_empty_stage() -> None:
    copies = spread_copies(hashes(2), ints([0, 0]))
    plans, left = plan_pretrain(copies, ints([5, 6]), [PretrainStage(context_tokens=16, budget_tokens=9)], 1)
    assert plans[0].report["rows"] == 0 and plans[0].report["fill"] is None and plans[0].report["shortfall"] == 9
    assert len(left.document) == 0


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=15))
def test_stages_with_mixtures_hold_their_own_copies_with_epochs_going_on(uses: list[tuple[int, int]]) -> None:
    wanted = np.array(uses, dtype=np.int64)
    tokens = ints([10 + 7 * n for n in range(len(uses))])
    stages = [PretrainStage(context_tokens=n, budget_tokens=1) for n in (16, 40)]
    plans = plan_stage_mixtures(hashes(len(uses)), tokens, wanted, stages, seed=1)
    for place, plan in enumerate(plans):
        found = coverage([plan])
        for d, (first, second) in enumerate(uses):
            epochs = range(first) if place == 0 else range(first, first + second)
            assert sorted(e for document, e in found if document == d) == list(epochs)
        for (d, _), pieces in found.items():
            assert sum(length for _, _, length in pieces) == tokens[d]
        assert plan.report["tokens"] == int((tokens * wanted[:, place]).sum())


def test_a_first_stage_is_spread_as_without_stages() -> None:
    epochs = ints([2, 0, 3, 1])
    plain, staged = spread_copies(hashes(4), epochs), spread_copies(hashes(4), epochs, ints([0, 0, 0, 0]))
    assert np.array_equal(plain.document, staged.document) and np.array_equal(plain.epoch, staged.epoch)
    later = spread_copies(hashes(4), epochs, ints([5, 5, 5, 5]))
    assert sorted(zip(later.document.tolist(), later.epoch.tolist(), strict=True)) == sorted(
        (d, e + 5) for d, e in zip(plain.document.tolist(), plain.epoch.tolist(), strict=True)
    )
