"""From supply, room and a wish to tokens: first over domains (or sources), then inside them. No document in sight.

A cell is (domain, source); where a wish says nothing about one of the two, its place holds ALL and its documents are
taken together, so a mixture by domain chooses among a domain's documents without regard to their source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from filters.text.cells import Cell, spread
from filters.text.mixture import Allocation, fill, split_budget
from filters.text.weights import exact, proportional_shares, raise_to_floors, temperature_shares, unimax_shares

if TYPE_CHECKING:
    from filters.text.mixing import MixtureWish

__all__ = ["ALL", "Plan", "grain", "method_of", "plan_cells"]

ALL = ""
NEAR = 10_000  # a column counts as reached when it is off by less than this part of the budget


@dataclass(frozen=True, slots=True)
class Plan:
    """What a wish comes to: tokens by cell, and shares and allocations by domain and by source (empty: no targets).

    `within` are the targets inside domains where `nested_shares` gives them.
    """

    cells: dict[Cell, int]
    shares: dict[str, Fraction]
    domains: dict[str, Allocation]
    source_shares: dict[str, Fraction]
    sources: dict[str, Allocation]
    within: dict[Cell, int]


def method_of(wish: MixtureWish) -> str:
    """The method by name."""
    return wish.method or ("target" if wish.shares else "proportional")


def grain(wish: MixtureWish) -> tuple[bool, bool]:
    """Whether the wish says something about domains, and whether about sources."""
    by_source = bool(wish.source_shares or wish.nested_shares or wish.source_epochs or wish.source_floors)
    by_domain = bool(wish.domain_epochs or wish.domain_floors)
    return wish.axis == "domain" or by_domain, wish.axis == "source" or by_source


def plan_cells(supply: Mapping[Cell, int], room: Mapping[Cell, int], wish: MixtureWish) -> Plan:
    """Tokens for every cell. `supply` counts the documents that may be used, `room` what their caps still allow."""
    weights = _weights(supply, wish)
    first = 0 if wish.axis == "domain" else 1
    turned = {_turn(cell, first): weight for cell, weight in weights.items()}
    turned_room = {_turn(cell, first): tokens for cell, tokens in room.items()}
    shares = _row_shares(supply, room, weights, wish)
    row_room = dict.fromkeys((row for row, _ in turned), 0)
    for cell, weight in turned.items():
        row_room[cell[0]] += turned_room[cell] if weight > 0 else 0
    rows = fill(row_room, shares, wish.budget)
    tokens = {name: allocation.tokens for name, allocation in rows.items()}
    columns, column_shares = _columns(tokens, turned, turned_room, wish)
    cells = spread(tokens, turned, turned_room, columns)
    given = {_turn(cell, first): value for cell, value in cells.items()}
    others = _column_allocations(cells, column_shares, turned_room, wish.budget)
    within = {
        (domain, source): part
        for domain, named in wish.nested_shares.items()
        for source, part in split_budget(
            rows[domain].target if domain in rows else 0, {name: exact(share) for name, share in named.items()}
        ).items()
    }
    if wish.axis == "source":
        return Plan(given, column_shares, others, shares, rows, within)
    if within:
        column_shares, others = _nested_allocations(within, given, room, wish.budget)
    return Plan(given, shares, rows, column_shares, others, within)


def _turn(cell: Cell, first: int) -> Cell:
    """A (domain, source) pair as (row, column), and back."""
    return (cell[first], cell[1 - first])


def _weights(supply: Mapping[Cell, int], wish: MixtureWish) -> dict[Cell, Fraction]:
    """How tokens lie inside a row when nothing else is asked: as the supply does, or as `nested_shares` say."""
    weights = {}
    for (domain, source), tokens in supply.items():
        named = wish.nested_shares.get(domain)
        closed = bool(wish.source_shares) and not wish.source_shares.get(source)
        weight = Fraction(tokens) if named is None else exact(named.get(source, 0.0)) if tokens else Fraction(0)
        weights[domain, source] = Fraction(0) if closed else weight
    return weights


def _row_shares(
    supply: Mapping[Cell, int], room: Mapping[Cell, int], weights: Mapping[Cell, Fraction], wish: MixtureWish
) -> dict[str, Fraction]:
    """The shares of the first split, by the method, not below their floors."""
    first = 0 if wish.axis == "domain" else 1
    method = method_of(wish)
    if method == "target":
        asked = wish.shares if wish.axis == "domain" else wish.source_shares
        return {name: exact(share) for name, share in asked.items()}
    there: dict[str, int] = {}
    left: dict[str, int] = {}
    for cell, tokens in supply.items():
        used = weights[cell] > 0
        there[cell[first]] = there.get(cell[first], 0) + (tokens if used else 0)
        left[cell[first]] = left.get(cell[first], 0) + (room[cell] if used else 0)
    if method == "unimax":
        shares = unimax_shares(left, wish.budget)
    elif method == "temperature":
        shares = temperature_shares(there, wish.temperature)
    else:
        shares = proportional_shares(there)
    floors = wish.domain_floors if wish.axis == "domain" else wish.source_floors
    return raise_to_floors(shares, {name: exact(share) for name, share in floors.items()}) if floors else shares


def _columns(
    rows: Mapping[str, int], weights: Mapping[Cell, Fraction], room: Mapping[Cell, int], wish: MixtureWish
) -> tuple[dict[str, Fraction] | None, dict[str, Fraction]]:
    """Shares of the other axis: what is handed to `spread` (None leaves them open), and what the wish asked."""
    if wish.axis == "domain" and wish.source_shares:
        asked = {name: exact(share) for name, share in wish.source_shares.items()}
        return asked, asked
    floors = wish.source_floors if wish.axis == "domain" else wish.domain_floors
    if not floors:
        return None, {}
    free = spread(rows, weights, room)
    total = sum(free.values())
    shares: dict[str, Fraction] = {}
    for (_, column), tokens in free.items():
        shares[column] = shares.get(column, Fraction(0)) + (Fraction(tokens, total) if total else 0)
    raised = raise_to_floors(shares, {name: exact(share) for name, share in floors.items()})
    return (None if raised == shares else raised), raised


def _column_allocations(
    cells: Mapping[Cell, int], shares: Mapping[str, Fraction], room: Mapping[Cell, int], budget: int
) -> dict[str, Allocation]:
    """Targets and tokens of the other axis, where it has shares."""
    if not shares:
        return {}
    names = sorted(set(shares) | {cell[1] for cell in cells})
    targets = split_budget(budget, {name: shares.get(name, Fraction(0)) for name in names})
    allocations = {}
    for name in names:
        tokens = sum(value for cell, value in cells.items() if cell[1] == name)
        free = sum(value for cell, value in room.items() if cell[1] == name)
        reached = abs(tokens - targets[name]) <= max(len(cells), budget // NEAR)
        allocations[name] = Allocation(targets[name], targets[name] if reached else tokens, free < targets[name])
    return allocations


def _nested_allocations(
    within: Mapping[Cell, int], cells: Mapping[Cell, int], room: Mapping[Cell, int], budget: int
) -> tuple[dict[str, Fraction], dict[str, Allocation]]:
    """Shares and allocations of the sources that nested shares name, over all domains.

    A source that also gives to a domain without nested shares has no target over all: what it gives there is open.
    """
    divided = {domain for domain, _ in within}
    open_ones = {source for (domain, source), tokens in cells.items() if tokens and domain not in divided}
    names = sorted({source for _, source in within} - open_ones)
    targets = {name: sum(part for (_, source), part in within.items() if source == name) for name in names}
    allocations = {}
    for name in names:
        own = [cell for cell in within if cell[1] == name]
        limited = any(room.get(cell, 0) < within[cell] for cell in own)
        tokens = sum(value for cell, value in cells.items() if cell[1] == name)
        allocations[name] = Allocation(targets[name], tokens, limited)
    return {name: Fraction(part, budget) for name, part in targets.items()}, allocations
