"""Tokens for every pair of domain and source, when a mixture says something about both.

A table of cells has rows (the axis whose shares come first) and columns. Rows are met exactly; inside them the tokens
lie as near to the supply's own proportions as the columns' targets and the cells' room allow: x = min(room, a_row *
b_column * weight), the distribution nearest to `weight` under those sums (iterative proportional fitting, Deming and
Stephan 1940, with upper bounds: each scale is found by water-filling). Where rows and columns cannot both be had, the
rows are and the columns come as near as they can.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from filters.text.mixture import fill

__all__ = ["Cell", "balance", "spread"]

Cell = tuple[str, str]  # (row, column)
Floats = npt.NDArray[np.float64]

ROUNDS = 500
PATIENCE = 20  # rounds without a better sum before rows and columns count as impossible together
ENOUGH = 0.5  # tokens that a column may be off
_SMALL, _LARGE = 1e-200, 1e200


def spread(
    rows: Mapping[str, int],
    weights: Mapping[Cell, Fraction],
    room: Mapping[Cell, int],
    columns: Mapping[str, Fraction] | None = None,
) -> dict[Cell, int]:
    """Tokens of every cell: each row's sum to `rows` (as far as its cells have room), none above its room.

    A cell of weight 0 gets nothing. `columns` are shares of all tokens (0 for a column not named), None leaves them
    open. Cost: with `columns` some ROUNDS * (rows + columns) small sorts at most.
    """
    given = dict.fromkeys(weights, 0)
    if columns is not None:
        weights = _fitted(rows, weights, room, columns)
    for row, tokens in rows.items():
        own = {cell: weight for cell, weight in weights.items() if cell[0] == row and weight > 0}
        names = {"\0".join(cell): cell for cell in own}
        filled = fill(
            {name: room.get(cell, 0) for name, cell in names.items()},
            {name: own[cell] for name, cell in names.items()},
            tokens,
        )
        given.update({cell: filled[name].tokens for name, cell in names.items()})
    return given


def _fitted(
    rows: Mapping[str, int],
    weights: Mapping[Cell, Fraction],
    room: Mapping[Cell, int],
    columns: Mapping[str, Fraction],
) -> dict[Cell, Fraction]:
    """The weights scaled so that the columns come to their shares too."""
    row_names, column_names = sorted(rows), sorted({cell[1] for cell in weights})
    shape = (len(row_names), len(column_names))
    weight, free = np.zeros(shape), np.zeros(shape)
    for i, row in enumerate(row_names):
        for j, column in enumerate(column_names):
            weight[i, j] = float(weights.get((row, column), 0)) if columns.get(column, 0) > 0 else 0.0
            free[i, j] = float(room.get((row, column), 0))
    total = sum(rows.values())
    there = {name: int(free[:, j][weight[:, j] > 0].sum()) for j, name in enumerate(column_names)}
    wanted = fill(there, {name: columns.get(name, Fraction(0)) for name in column_names}, total)
    sums = np.array([wanted[name].tokens for name in column_names], float)
    found = balance(weight, free, np.array([rows[name] for name in row_names], float), sums)
    return {
        (row, column): Fraction(float(found[i, j]))
        for i, row in enumerate(row_names)
        for j, column in enumerate(column_names)
        if (row, column) in weights
    }


def balance(weight: Floats, room: Floats, rows: Floats, columns: Floats) -> Floats:
    """min(room, a_i * b_j * weight) whose rows sum to `rows` and whose columns come nearest to `columns`.

    Shapes (R, C), (R, C), (R,), (C,). A row without enough room is full.
    """
    a, b = np.ones(len(rows)), np.ones(len(columns))
    best, found, waited = np.inf, np.minimum(room, weight), 0
    for _ in range(ROUNDS):
        for j, tokens in enumerate(columns.tolist()):
            b[j] = _scale(a * weight[:, j], room[:, j], tokens)
        for i, tokens in enumerate(rows.tolist()):
            a[i] = _scale(b * weight[i], room[i], tokens)
        candidate = np.minimum(room, np.outer(a, b) * weight)
        off = float(np.abs(candidate.sum(axis=0) - columns).max(initial=0.0))
        waited = 0 if off < 0.999 * best else waited + 1
        if off < best:
            best, found = off, candidate
        if best <= ENOUGH or waited > PATIENCE:
            break
    return found


def _scale(base: Floats, room: Floats, tokens: float) -> float:
    """The factor with sum(min(room, factor * base)) = tokens; the one that fills all when there is less room."""
    active = (base > 0) & (room > 0)
    if tokens <= 0 or not active.any():
        return 0.0 if tokens <= 0 else 1.0
    base, room = base[active], room[active]
    limits = room / base
    order = np.argsort(limits, kind="stable")
    full = np.concatenate([[0.0], np.cumsum(room[order])[:-1]])
    open_base = np.cumsum(base[order][::-1])[::-1]
    factors = (tokens - full) / open_base  # if the ones before are full and the others open
    fits = np.flatnonzero(factors <= limits[order])
    factor = factors[fits[0]] if len(fits) else limits.max()
    return float(min(max(factor, _SMALL), _LARGE))
