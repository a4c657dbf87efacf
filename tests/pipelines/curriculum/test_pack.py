"""Packing: the multiset of samples in is the multiset out, rows are never over-full, and the fill is near the bound."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.curriculum.pack import Packing, order_rows, pack
from schemas.errors import InputError


def lengths_in(packing: Packing, lengths: list[int]) -> list[list[int]]:
    return [[lengths[i] for i in packing.row(r)] for r in range(packing.rows)]


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[int], int]:
    capacity = draw(st.integers(1, 70))
    return draw(st.lists(st.integers(1, capacity), max_size=80)), capacity


@given(problems())
def test_every_sample_is_packed_once_and_no_row_is_over_full(problem: tuple[list[int], int]) -> None:
    lengths, capacity = problem
    packing = pack(lengths, capacity)
    assert sorted(packing.samples.tolist()) == list(range(len(lengths)))
    rows = lengths_in(packing, lengths)
    assert all(rows) and all(sum(row) <= capacity for row in rows)
    assert packing.tokens.tolist() == [sum(row) for row in rows]
    assert packing.squares.tolist() == [sum(n * n for n in row) for row in rows]


@given(problems())
def test_it_is_best_fit_decreasing(problem: tuple[list[int], int]) -> None:
    """Against the definition: longest first, into the fullest row that has room, a new row otherwise."""
    lengths, capacity = problem
    rooms: list[int] = []
    for length in sorted(lengths, reverse=True):
        fitting = [room for room in rooms if room >= length]
        if fitting:
            rooms[rooms.index(min(fitting))] -= length
        else:
            rooms.append(capacity - length)
    assert sorted(capacity - pack(lengths, capacity).tokens) == sorted(rooms)


def test_small_cases_exactly() -> None:
    assert lengths_in(pack([3, 5, 2, 4], 7), [3, 5, 2, 4]) == [[5, 2], [4, 3]]
    assert pack([], 7).rows == 0 and pack([], 7).fill == 1.0
    assert lengths_in(pack([7], 7), [7]) == [[7]]
    assert lengths_in(pack([1], 1), [1]) == [[1]]


def test_equal_lengths_keep_their_order() -> None:
    assert [pack([2] * 6, 4).row(r).tolist() for r in range(3)] == [[0, 1], [2, 3], [4, 5]]


@pytest.mark.parametrize("lengths", [[3, 9, 2, 8], [0, 3], [-1]])
def test_lengths_that_do_not_fit_are_refused_by_index(lengths: list[int]) -> None:
    wrong = [i for i, n in enumerate(lengths) if not 1 <= n <= 7]
    with pytest.raises(InputError) as caught:
        pack(lengths, 7)
    assert all(f"{i} ({lengths[i]})" in str(caught.value) for i in wrong)
    assert f"{len(wrong)} samples do not fit in 1…7" in str(caught.value)


@pytest.mark.parametrize(
    ("median", "sigma", "capacity", "least"),
    [
        (3_000, 1.3, 65_536, 0.999),
        (3_000, 1.3, 262_144, 0.999),
        (24_000, 0.8, 65_536, 0.998),
        (24_000, 0.8, 262_144, 0.998),
    ],
)
def test_fill_on_corpus_and_trajectory_like_lengths(median: float, sigma: float, capacity: int, least: float) -> None:
    generator = np.random.default_rng(0)
    lengths = np.clip(generator.lognormal(np.log(median), sigma, 100_000), 200, 250_000).astype(np.int64)
    lengths = lengths[lengths <= capacity]
    packing = pack(lengths, capacity)
    assert packing.fill >= least
    assert int(packing.tokens.sum()) == int(lengths.sum())


def test_a_million_lengths_are_packed() -> None:
    lengths = np.random.default_rng(1).integers(200, 60_000, 1_000_000)
    packing = pack(lengths, 65_536)
    assert np.array_equal(np.sort(packing.samples), np.arange(1_000_000))
    assert int(packing.tokens.max()) <= 65_536


@given(st.lists(st.integers(1, 50), max_size=40), st.integers(1, 9))
@settings(max_examples=50)
def test_row_order_is_a_permutation_set_by_the_seed(squares: list[int], window: int) -> None:
    costs = np.array(squares, dtype=np.int64)
    order = order_rows(costs, [4, 1], window=window)
    assert sorted(order.tolist()) == list(range(len(squares)))
    assert order.tolist() == order_rows(costs, [4, 1], window=window).tolist()


def test_neighbouring_rows_cost_alike_inside_a_window() -> None:
    costs = np.random.default_rng(2).permutation(64).astype(np.int64)
    order = order_rows(costs, [3], window=8)
    for at in range(0, 64, 8):
        block = costs[order[at : at + 8]]
        assert int(block.max() - block.min()) == 7
    assert order.tolist() != order_rows(costs, [4], window=8).tolist()
