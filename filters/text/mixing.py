"""The mixture of one corpus: split and uses of every document, for one budget or for stages with mixtures of their own.

Stages draw from one supply in their order: how often a document was used in earlier stages counts towards its cap, and
a stage takes the least used documents first. What a later stage with a higher threshold of quality needs is reserved
for it (`filters.text.reserves`): it has no other documents, the earlier ones have.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from filters.text.mixing_plan import ALL, Plan, grain, plan_cells
from filters.text.mixing_report import HELDOUT, TRAIN, UNUSED, Counted, report_of, report_of_stages
from filters.text.mixture import hash_order, heldout_mask, use_divisibly, use_evenly
from filters.text.reserves import Reserves
from filters.text.weights import exact

__all__ = ["HELDOUT", "TRAIN", "UNUSED", "Mixture", "MixtureWish", "StagedMixture", "mix", "mix_stages"]

TOLERANCE = Fraction(1, 2000)  # of the budget: half of the promised 0.1 percentage points


@dataclass(frozen=True, slots=True)
class MixtureWish:
    """What is asked for; `schemas.recipe.MixtureConfig` says what the fields mean.

    `method` empty means target when there are `shares`, else proportional. `axis` is what the budget is split over
    first; `source_shares` are of all tokens, `nested_shares` within domains.
    """

    shares: Mapping[str, float]
    budget: int
    max_epochs: float
    heldout_share: float
    heldout_documents: int
    seed: int
    method: str = ""
    axis: str = "domain"
    temperature: float = 1.0
    source_shares: Mapping[str, float] = field(default_factory=dict)
    nested_shares: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    domain_epochs: Mapping[str, float] = field(default_factory=dict)
    source_epochs: Mapping[str, float] = field(default_factory=dict)
    domain_floors: Mapping[str, float] = field(default_factory=dict)
    source_floors: Mapping[str, float] = field(default_factory=dict)
    min_quality: float = 0.0

    def __post_init__(self) -> None:
        """Raises ValueError for shares that are missing or do not sum to 1, a temperature or cap not above 0."""
        if self.method == "target" and not (self.shares if self.axis == "domain" else self.source_shares):
            needed = "shares" if self.axis == "domain" else "source_shares"
            raise ValueError(f"method target by {self.axis} needs {needed}: without them nothing would be used")
        named = {"shares": self.shares, "source_shares": self.source_shares, **self.nested_shares}
        for name, shares in named.items():
            if shares and not abs(sum(shares.values()) - 1) <= 1e-6:
                raise ValueError(f"{name}: {dict(shares)} sum to {sum(shares.values()):g}: they must sum to 1")
        if not self.temperature > 0:
            raise ValueError(f"temperature {self.temperature:g} must be above 0: 1 is proportional")
        caps = {"max_epochs": self.max_epochs, **self.domain_epochs, **self.source_epochs}
        for name, cap in caps.items():
            if not cap > 0:
                raise ValueError(f"{name}: a cap of {cap:g} epochs must be above 0")


@dataclass(frozen=True, slots=True)
class Mixture:
    """`splits` (n,) of TRAIN, HELDOUT, UNUSED; `epochs` (n,) int32, above 0 for TRAIN alone; `report` JSON-able."""

    splits: npt.NDArray[np.object_]
    epochs: npt.NDArray[np.int32]
    report: dict[str, Any]


@dataclass(frozen=True, slots=True)
class StagedMixture(Mixture):
    """A mixture in stages: `uses` (n, stages) int32 sum to `epochs`; `report` has one of each stage in `stages`."""

    uses: npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class _Supply:
    """Columns over n documents."""

    ids: Sequence[str]
    domains: npt.NDArray[np.object_]
    sources: npt.NDArray[np.object_]
    tokens: npt.NDArray[np.int64]


def mix(
    ids: Sequence[str],
    domains: npt.NDArray[np.object_],
    sources: npt.NDArray[np.object_],
    tokens: npt.NDArray[np.int64],
    wish: MixtureWish,
    quality: npt.NDArray[np.float64] | None = None,
    *,
    divisible: bool = False,
) -> Mixture:
    """Split and epochs of n documents. `tokens` counts what a document costs in training, end-of-text included.

    `quality` (n,) is needed for a `min_quality`; NaN passes every threshold. Every case has a result: an empty corpus,
    a domain without documents, a budget above everything. `divisible` documents may be used in part (epochs are then
    floats): for estimates from a sample. Memory: some 60 bytes a document.
    """
    heldout = _heldout(ids, domains, wish)
    eligible = _eligible(heldout, quality, wish)
    used = np.zeros(len(ids), float if divisible else np.int32)
    epochs, plan = _use(_Supply(ids, domains, sources, tokens), eligible, used, wish)
    counted = Counted(domains, sources, tokens, _splits(heldout, epochs), epochs, eligible)
    return Mixture(counted.splits, epochs, report_of(counted, plan, wish))


def mix_stages(
    ids: Sequence[str],
    domains: npt.NDArray[np.object_],
    sources: npt.NDArray[np.object_],
    tokens: npt.NDArray[np.int64],
    wishes: Mapping[str, MixtureWish],
    quality: npt.NDArray[np.float64] | None = None,
    *,
    divisible: bool = False,
) -> StagedMixture:
    """`mix` for stages (name: wish, in training order) that share one supply. The first wish says what is held out."""
    first = next(iter(wishes.values()))
    supply = _Supply(ids, domains, sources, tokens)
    heldout = _heldout(ids, domains, first)
    eligible = [_eligible(heldout, quality, wish) for wish in wishes.values()]
    used = np.zeros(len(ids), float if divisible else np.int32)
    reserves = Reserves(
        [wish.min_quality for wish in wishes.values()],
        [_most(supply, wish, divisible=divisible) for wish in wishes.values()],
        used,
        lambda place, before: _use(supply, eligible[place], before, list(wishes.values())[place])[0],
    )
    uses: list[npt.NDArray[Any]] = []
    reports: dict[str, dict[str, Any]] = {}
    for place, (name, wish) in enumerate(wishes.items()):
        more, plan = _use(supply, eligible[place], used, wish, reserves.limit(place))
        used = used + more
        uses.append(more)
        reports[name] = report_of(
            Counted(domains, sources, tokens, _splits(heldout, more), more, eligible[place], used), plan, wish
        )
    splits = _splits(heldout, used)
    counted = Counted(domains, sources, tokens, splits, used, ~heldout)
    return StagedMixture(splits, used, report_of_stages(counted, reports), np.stack(uses, axis=1))


def _heldout(ids: Sequence[str], domains: npt.NDArray[np.object_], wish: MixtureWish) -> npt.NDArray[np.bool_]:
    """Which documents are held out: of each domain, whatever the mixture asks."""
    heldout = np.zeros(len(ids), bool)
    order = hash_order(ids, wish.seed, "heldout")
    for name in sorted(set(domains.tolist())):
        rows = np.flatnonzero(domains == name)
        heldout[rows] = heldout_mask(order[rows], wish.heldout_share, wish.heldout_documents)
    return heldout


def _eligible(
    heldout: npt.NDArray[np.bool_], quality: npt.NDArray[np.float64] | None, wish: MixtureWish
) -> npt.NDArray[np.bool_]:
    """Which documents a stage may use. Raises ValueError when a threshold is asked for and no quality is known."""
    if not wish.min_quality:
        return ~heldout
    if quality is None:
        raise ValueError(f"min_quality {wish.min_quality:g} needs the documents' quality, and none is given")
    # a score is stored in 32 bits: one of 0.7 is at least 0.7
    return ~heldout & ~(quality.astype(np.float32) < np.float32(wish.min_quality))


def _splits(heldout: npt.NDArray[np.bool_], epochs: npt.NDArray[Any]) -> npt.NDArray[np.object_]:
    splits: npt.NDArray[np.object_] = np.where(heldout, HELDOUT, np.where(epochs > 0, TRAIN, UNUSED)).astype(object)
    return splits


def _use(
    supply: _Supply,
    eligible: npt.NDArray[np.bool_],
    used: npt.NDArray[Any],
    wish: MixtureWish,
    limit: npt.NDArray[Any] | None = None,
) -> tuple[npt.NDArray[Any], Plan]:
    """How often more each document is used for one wish, and the plan behind it; in floats where `used` is.

    `limit` is how often each may be used in all after this stage, beside the wish's own caps.
    """
    by_domain, by_source = grain(wish)
    divisible = used.dtype.kind == "f"
    most = _most(supply, wish, divisible=divisible)
    most = most if limit is None else np.minimum(most, np.maximum(limit, 0))
    rows = np.flatnonzero(eligible)
    domains, sources, tokens = supply.domains, supply.sources, supply.tokens
    members: dict[tuple[str, str], list[int]] = {}
    for row, domain, source in zip(rows.tolist(), domains[rows].tolist(), sources[rows].tolist(), strict=True):
        members.setdefault((domain if by_domain else ALL, source if by_source else ALL), []).append(row)
    cells = {cell: np.array(members[cell], np.int64) for cell in sorted(members)}
    there = {cell: int(tokens[which].sum()) for cell, which in cells.items()}
    room = {c: _room(tokens[which], used[which], most[which], _cap(c, wish)) for c, which in cells.items()}
    plan = plan_cells(there, room, wish)
    budget = min(wish.budget, sum(plan.cells.values()))
    allowed = int(budget * TOLERANCE / (1 if not by_source or not by_domain else max(1, len(cells))))
    epochs = np.zeros(len(supply.ids), used.dtype)
    for cell, wanted in plan.cells.items():
        if cell in cells and wanted:
            which = cells[cell]
            if divisible:
                epochs[which] = use_divisibly(tokens[which], used[which], wanted, most[which])
                continue
            named = [supply.ids[row] for row in which.tolist()]
            # at the cap the sum may stay below what is allowed, never go above it: no mending
            tolerance = wanted if wanted >= room[cell] else allowed
            epochs[which] = use_evenly(named, tokens[which], used[which], wanted, wish.seed, tolerance, most[which])
    return epochs, plan


def _cap(cell: tuple[str, str], wish: MixtureWish) -> Fraction:
    """The most uses of a document of a cell: the smallest cap that names it, else the general one."""
    both = zip((wish.domain_epochs, wish.source_epochs), cell, strict=True)
    return exact(min((caps[name] for caps, name in both if name in caps), default=wish.max_epochs))


def _most(supply: _Supply, wish: MixtureWish, *, divisible: bool) -> npt.NDArray[Any]:
    """How often each document may be used: its cap, and where it is used whole a cap of 0.5 is one use of some. (n,)"""
    pairs = list(zip(supply.domains.tolist(), supply.sources.tolist(), strict=True))
    caps = {pair: _cap(pair, wish) for pair in set(pairs)}
    if divisible:
        return np.array([float(caps[pair]) for pair in pairs], float)
    return np.array([math.ceil(caps[pair]) for pair in pairs], np.int64)


def _room(tokens: npt.NDArray[np.int64], used: npt.NDArray[Any], most: npt.NDArray[Any], cap: Fraction) -> int:
    """Tokens that the documents of a cell may still give: to `most` uses of each, and to `cap` of all together.

    What `most` is below the cap is reserved for later stages. A document used above the cap by an earlier stage takes
    nothing from the others.
    """
    each = (tokens * np.maximum(most - used, 0)).sum().item()
    ceiling = float(cap) if used.dtype.kind == "f" else math.ceil(cap)
    spent = (tokens * (np.minimum(used, ceiling) + (ceiling - most))).sum().item()
    return max(0, int(min(Fraction(each), int(tokens.sum()) * cap - Fraction(spent))))
