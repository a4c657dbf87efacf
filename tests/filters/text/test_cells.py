"""Tokens of domains and sources at once: rows are exact, columns as near as room allows, order decides nothing."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filters.text.cells import balance, spread

ROWS, COLUMNS = ["code", "math", "web"], ["a", "b", "c", "d"]
TABLE = st.lists(st.integers(0, 10**6), min_size=12, max_size=12)


def table(values: list[int]) -> dict[tuple[str, str], int]:
    return {(r, c): values[i * 4 + j] for i, r in enumerate(ROWS) for j, c in enumerate(COLUMNS)}


def weights(supply: dict[tuple[str, str], int]) -> dict[tuple[str, str], Fraction]:
    return {cell: Fraction(tokens) for cell, tokens in supply.items()}


def columns_of(cells: dict[tuple[str, str], int]) -> dict[str, int]:
    return {c: sum(v for cell, v in cells.items() if cell[1] == c) for c in COLUMNS}


def test_without_targets_a_row_lies_in_its_cells_as_the_supply_does() -> None:
    supply = {("math", "a"): 300, ("math", "b"): 100, ("web", "a"): 50}
    assert spread({"math": 200, "web": 10}, weights(supply), {c: 4 * n for c, n in supply.items()}) == {
        ("math", "a"): 150, ("math", "b"): 50, ("web", "a"): 10
    }  # fmt: skip


def test_a_full_cell_gives_its_part_to_the_others_of_its_row() -> None:
    supply = {("math", "a"): 10, ("math", "b"): 1000}
    asked = {("math", "a"): Fraction(1, 2), ("math", "b"): Fraction(1, 2)}
    assert spread({"math": 200}, asked, {c: 4 * n for c, n in supply.items()}) == {
        ("math", "a"): 40,
        ("math", "b"): 160,
    }


def test_rows_and_columns_by_hand() -> None:
    # The only table with these sums: a is all in math, so math's rest and all of code come from b
    supply = {("math", "a"): 1000, ("math", "b"): 1000, ("code", "b"): 1000}
    shares = {"a": Fraction(3, 10), "b": Fraction(7, 10)}
    found = spread({"math": 50, "code": 50}, weights(supply), supply, shares)
    assert found == {("math", "a"): 30, ("math", "b"): 20, ("code", "b"): 50}


def test_where_both_cannot_be_had_the_rows_are_exact_and_the_columns_near() -> None:
    supply = {("math", "a"): 1000, ("code", "b"): 1000}
    found = spread({"math": 50, "code": 50}, weights(supply), supply, {"a": Fraction(9, 10), "b": Fraction(1, 10)})
    assert found == {("math", "a"): 50, ("code", "b"): 50}


@given(TABLE, st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6), st.integers(1, 4))
def test_rows_are_met_as_far_as_there_is_room(values, first, second, third, cap) -> None:  # type: ignore[no-untyped-def]
    supply = table(values)
    room = {cell: cap * tokens for cell, tokens in supply.items()}
    rows = dict(zip(ROWS, (first, second, third), strict=True))
    found = spread(rows, weights(supply), room)
    for row, tokens in rows.items():
        assert sum(found[row, c] for c in COLUMNS) == min(tokens, sum(room[row, c] for c in COLUMNS))
    assert all(0 <= found[cell] <= room[cell] for cell in supply)


@given(TABLE, st.lists(st.integers(1, 400), min_size=12, max_size=12), st.integers(0, 3))
def test_sums_that_some_table_has_are_reached(values: list[int], parts: list[int], spare: int) -> None:
    """Take part of every cell: its row and column sums are possible, so they are found, to a token a cell."""
    supply = {cell: tokens + 1000 for cell, tokens in table(values).items()}
    taken = {cell: tokens * part // 400 for (cell, tokens), part in zip(supply.items(), parts, strict=True)}
    room = {cell: tokens + spare for cell, tokens in supply.items()}
    rows = {r: sum(v for cell, v in taken.items() if cell[0] == r) for r in ROWS}
    total = sum(rows.values())
    shares = {c: Fraction(v, total) for c, v in columns_of(taken).items()}
    found = spread(rows, weights(supply), room, shares)
    for row, tokens in rows.items():
        assert sum(found[row, c] for c in COLUMNS) == tokens
    for column, share in shares.items():
        assert abs(columns_of(found)[column] - share * total) <= max(10, total / 5000)
    turned = dict(reversed(list(supply.items())))
    again = spread(dict(reversed(list(rows.items()))), weights(turned), room, dict(reversed(list(shares.items()))))
    assert again == found


def test_balance_keeps_the_supply_s_own_odds_where_nothing_is_full() -> None:
    weight = np.array([[4.0, 1.0], [2.0, 3.0]])
    found = balance(weight, np.full((2, 2), 1e9), np.array([100.0, 100.0]), np.array([120.0, 80.0]))
    assert found.sum(axis=1) == pytest.approx([100, 100])
    assert found.sum(axis=0) == pytest.approx([120, 80], abs=0.5)
    odds = found[0, 0] * found[1, 1] / (found[0, 1] * found[1, 0])
    assert odds == pytest.approx(4 * 3 / (1 * 2))


def test_a_column_without_a_share_is_not_used() -> None:
    supply = {("math", "a"): 100, ("math", "b"): 100}
    assert spread({"math": 60}, weights(supply), supply, {"a": Fraction(1)}) == {("math", "a"): 60, ("math", "b"): 0}
