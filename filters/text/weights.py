"""What the methods of a mixture ask for: shares of groups (domains or sources) from their supply. Pure.

target        the recipe's own shares
proportional  p_i = n_i / sum(n)
temperature   p_i = n_i ** (1 / T) / sum(n ** (1 / T)), the smoothing of multilingual BERT and mT5 with alpha = 1 / T
unimax        the budget spread evenly over groups, none used more than its epoch cap (Chung et al. 2023, arXiv
              2304.09151, algorithm 1)

n_i are the tokens of a group. A group without tokens has no share in the last three.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

__all__ = ["exact", "proportional_shares", "raise_to_floors", "temperature_shares", "unimax_shares"]

DIGITS = 15  # decimal places of a power, so that the last bit of a machine's pow() decides nothing


def exact(value: float) -> Fraction:
    """A float of a recipe as the fraction that a person wrote: 0.3 is 3/10."""
    return Fraction(str(value))


def _normal(weights: Mapping[str, Fraction]) -> dict[str, Fraction]:
    total = sum(weights.values())
    return {name: weight / total if total else Fraction(0) for name, weight in weights.items()}


def proportional_shares(supply: Mapping[str, int]) -> dict[str, Fraction]:
    """Shares as the tokens are there; they sum to 1 unless there are none."""
    return _normal({name: Fraction(tokens) for name, tokens in supply.items()})


def temperature_shares(supply: Mapping[str, int], temperature: float) -> dict[str, Fraction]:
    """p_i ~ n_i ** (1 / temperature): 1 is proportional, large ones approach equal shares.

    Raises ValueError for a temperature that is not above 0. A temperature below 1 favours large groups.
    """
    if not temperature > 0:
        raise ValueError(f"temperature {temperature:g} must be above 0: 1 is proportional, a large one is uniform")
    largest = max(supply.values(), default=0)
    if not largest:
        return dict.fromkeys(supply, Fraction(0))
    if temperature == 1:
        return proportional_shares(supply)
    powers = {name: (tokens / largest) ** (1 / temperature) if tokens else 0.0 for name, tokens in supply.items()}
    return _normal({name: Fraction(f"{power:.{DIGITS}e}") for name, power in powers.items()})


def unimax_shares(room: Mapping[str, int], budget: int) -> dict[str, Fraction]:
    """UniMax: groups from the smallest on each get an equal part of what is left of `budget`, at most their `room`.

    `room` is a group's tokens times its epoch cap (c_l * N in the paper), so caps may differ by group. Groups without
    room have share 0. A budget above all room gives shares in proportion to the room.
    """
    left = Fraction(budget)
    given: dict[str, Fraction] = dict.fromkeys(room, Fraction(0))
    ordered = sorted((name for name in room if room[name] > 0), key=lambda name: (room[name], name))
    for number, name in enumerate(ordered):
        even = left / (len(ordered) - number)
        given[name] = min(even, Fraction(room[name]))
        left -= given[name]
    return _normal(given)


def raise_to_floors(shares: Mapping[str, Fraction], floors: Mapping[str, Fraction]) -> dict[str, Fraction]:
    """The shares with none below its floor: those at their floor keep it, the others keep their proportions.

    Floors sum to at most 1. The result sums to 1 as `shares` do; a group may have a floor and no share.
    """
    names = sorted(set(shares) | set(floors))
    raised: set[str] = set()
    while True:
        free = {name: shares.get(name, Fraction(0)) for name in names if name not in raised}
        left = 1 - sum((floors[name] for name in raised), Fraction(0))
        total = sum(free.values())
        scaled = {name: left * share / total if total else Fraction(0) for name, share in free.items()}
        low = {name for name in free if scaled[name] < floors.get(name, 0)}
        if not low:
            return {name: floors[name] if name in raised else scaled[name] for name in names}
        raised |= low
