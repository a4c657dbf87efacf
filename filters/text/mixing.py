"""The mixture of one corpus: split and epochs of every document, and the report that says how the shares came out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from filters.text.mixture import Allocation, allocate, choose, exact, hash_order, heldout_mask

__all__ = ["HELDOUT", "TRAIN", "UNUSED", "Mixture", "MixtureWish", "mix"]

TRAIN, HELDOUT, UNUSED = "train", "heldout", "unused"
TOLERANCE = Fraction(1, 2000)  # of the budget: half of the promised 0.1 percentage points


@dataclass(frozen=True, slots=True)
class MixtureWish:
    """What is asked for. `shares` empty means: in proportion to the supply."""

    shares: Mapping[str, float]
    budget: int
    max_epochs: float
    heldout_share: float
    heldout_documents: int
    seed: int


@dataclass(frozen=True, slots=True)
class Mixture:
    """`splits` (n,) of TRAIN, HELDOUT, UNUSED; `epochs` (n,) int32, above 0 for TRAIN alone; `report` JSON-able."""

    splits: npt.NDArray[np.object_]
    epochs: npt.NDArray[np.int32]
    report: dict[str, Any]


def mix(
    ids: Sequence[str],
    domains: npt.NDArray[np.object_],
    sources: npt.NDArray[np.object_],
    tokens: npt.NDArray[np.int64],
    wish: MixtureWish,
) -> Mixture:
    """Split and epochs of n documents. `tokens` counts what a document costs in training, end-of-text included.

    Every case has a result: an empty corpus, a domain without documents, a budget above everything.
    Memory: some 60 bytes a document.
    """
    count = len(ids)
    heldout = np.zeros(count, bool)
    epochs = np.zeros(count, np.int32)
    order = hash_order(ids, wish.seed, "heldout")
    members = {name: np.flatnonzero(domains == name) for name in sorted(set(domains.tolist()))}
    for rows in members.values():
        heldout[rows] = heldout_mask(order[rows], wish.heldout_share, wish.heldout_documents)
    training = {name: rows[~heldout[rows]] for name, rows in members.items()}
    supply = {name: int(tokens[rows].sum()) for name, rows in training.items()}
    shares = {name: exact(share) for name, share in wish.shares.items()}
    if not shares:
        total = sum(supply.values())
        shares = {name: Fraction(value, total) if total else Fraction(0) for name, value in supply.items()}
    plan = allocate(supply, shares, wish.budget, exact(wish.max_epochs))
    tolerance = int(min(wish.budget, sum(a.tokens for a in plan.values())) * TOLERANCE)
    for name, allocation in plan.items():
        if name in training and allocation.tokens:
            rows = training[name]
            named = [ids[row] for row in rows.tolist()]
            # at the cap the sum may stay below what is allowed, never go above it: no mending
            allowed = allocation.tokens if allocation.limited else tolerance
            epochs[rows] = _epochs(named, tokens[rows], allocation.tokens, wish.seed, allowed)
    splits = np.where(heldout, HELDOUT, np.where(epochs > 0, TRAIN, UNUSED)).astype(object)
    report = _report(domains, sources, tokens, splits, epochs, plan, shares, wish)
    return Mixture(splits, epochs, report)


def _epochs(
    ids: Sequence[str], tokens: npt.NDArray[np.int64], wanted: int, seed: int, tolerance: int
) -> npt.NDArray[np.int32]:
    """How often each document of one domain is used so that the tokens sum to `wanted`. Shape (n,)."""
    supply = int(tokens.sum())
    if not supply:
        return np.zeros(len(ids), np.int32)
    passes, rest = divmod(wanted, supply)
    epochs = np.full(len(ids), passes, np.int32)
    if rest:
        epochs += choose(tokens, hash_order(ids, seed, f"epoch {passes}"), rest, tolerance)
    return epochs


def _report(
    domains: npt.NDArray[np.object_],
    sources: npt.NDArray[np.object_],
    tokens: npt.NDArray[np.int64],
    splits: npt.NDArray[np.object_],
    epochs: npt.NDArray[np.int32],
    plan: Mapping[str, Allocation],
    shares: Mapping[str, Fraction],
    wish: MixtureWish,
) -> dict[str, Any]:
    used = tokens * epochs
    total = int(used.sum())
    planned = sum(allocation.tokens for allocation in plan.values())
    by_domain: dict[str, Any] = {}
    for name, allocation in plan.items():
        figures = _figures(domains == name, tokens, splits, epochs, total)
        by_domain[name] = {
            **figures,
            "target_share": float(shares.get(name, Fraction(0))),
            "feasible_share": allocation.tokens / planned if planned else 0.0,
            "target_tokens": allocation.target,
            "shortfall_tokens": max(0, allocation.target - figures["tokens"]),
            "limited_by": _limit(allocation, figures, total),
        }
    return {
        "domains": by_domain,
        "sources": {
            name: _figures(sources == name, tokens, splits, epochs, total) for name in sorted(set(sources.tolist()))
        },
        "totals": {
            "budget_tokens": wish.budget,
            "tokens": total,
            "shortfall_tokens": max(0, wish.budget - total),
            **{f"documents_{split}": int(np.count_nonzero(splits == split)) for split in (TRAIN, HELDOUT, UNUSED)},
            **{f"tokens_{split}": int(tokens[splits == split].sum()) for split in (TRAIN, HELDOUT, UNUSED)},
        },
        "method": "target" if wish.shares else "proportional",
        "max_epochs": wish.max_epochs,
    }


def _figures(
    mask: npt.NDArray[np.bool_],
    tokens: npt.NDArray[np.int64],
    splits: npt.NDArray[np.object_],
    epochs: npt.NDArray[np.int32],
    total: int,
) -> dict[str, Any]:
    """Supply and use of the documents in `mask`. Epochs are uses of the supply: tokens / supply_tokens."""
    training = mask & (splits != HELDOUT)
    supply = int(tokens[training].sum())
    used = int((tokens[mask] * epochs[mask]).sum())
    return {
        "documents": int(np.count_nonzero(mask)),
        "documents_used": int(np.count_nonzero(mask & (epochs > 0))),
        "documents_heldout": int(np.count_nonzero(mask & (splits == HELDOUT))),
        "supply_tokens": supply,
        "heldout_tokens": int(tokens[mask & (splits == HELDOUT)].sum()),
        "tokens": used,
        "share": used / total if total else 0.0,
        "epochs_mean": round(used / supply, 6) if supply else 0.0,
        "epochs_max": int(epochs[mask].max()) if mask.any() else 0,
    }


def _limit(allocation: Allocation, figures: Mapping[str, Any], total: int) -> str | None:
    """Why a domain's share is not its target, or None when it is.

    supply: its tokens times max_epochs are fewer than asked for; others: it got what another domain could not give;
    documents: whole documents of these sizes cannot come within 0.1 percentage point; no share: nothing was asked.
    """
    if allocation.limited:
        return "supply"
    if not allocation.target:
        return "no share" if figures["supply_tokens"] and not allocation.tokens else None
    if total and abs(figures["tokens"] - allocation.tokens) > total / 1000:
        return "documents"
    return "others" if allocation.tokens > allocation.target else None
