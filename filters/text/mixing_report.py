"""What a mixture came to, by domain and by source, as JSON: supply, use, shares, what limits them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from filters.text.mixing_plan import Plan, method_of
from filters.text.mixture import Allocation

if TYPE_CHECKING:
    from filters.text.mixing import MixtureWish

__all__ = ["HELDOUT", "TRAIN", "UNUSED", "Counted", "report_of", "report_of_stages"]

TRAIN, HELDOUT, UNUSED = "train", "heldout", "unused"
_SUMS = ("target_tokens", "shortfall_tokens")


@dataclass(frozen=True, slots=True)
class Counted:
    """Columns over n documents; `epochs` are floats where documents are divisible.

    `eligible`: what the wish may use; `used`: uses so far in all stages, if in stages.
    """

    domains: npt.NDArray[np.object_]
    sources: npt.NDArray[np.object_]
    tokens: npt.NDArray[np.int64]
    splits: npt.NDArray[np.object_]
    epochs: npt.NDArray[Any]
    eligible: npt.NDArray[np.bool_]
    used: npt.NDArray[Any] | None = None

    @property
    def total(self) -> int:
        """Tokens of all uses."""
        total: int = round((self.tokens * self.epochs).sum())
        return total


def report_of(counted: Counted, plan: Plan, wish: MixtureWish) -> dict[str, Any]:
    """The report of one wish. A source has targets only where the wish gives it some, and so has a domain."""
    names = {str(name): None for name in sorted(set(counted.domains.tolist()) | set(plan.shares) | set(plan.domains))}
    sources = {str(name): None for name in sorted(set(counted.sources.tolist()) | set(plan.sources))}
    report: dict[str, Any] = {
        "domains": {n: _entry(counted, counted.domains == n, n, plan.shares, plan.domains) for n in names},
        "sources": {
            n: _entry(counted, counted.sources == n, n, plan.source_shares, plan.sources if n in plan.sources else {})
            for n in sources
        },
        "totals": {"budget_tokens": wish.budget, **_totals(counted, wish.budget)},
        "method": method_of(wish),
        "max_epochs": wish.max_epochs,
    }
    if plan.within:
        report["within"] = _within(counted, plan, wish)
    said = {
        "by": wish.axis if wish.axis != "domain" else None,
        "temperature": wish.temperature if report["method"] == "temperature" else None,
        "min_quality": wish.min_quality or None,
        "max_epochs_by_domain": dict(wish.domain_epochs) or None,
        "max_epochs_by_source": dict(wish.source_epochs) or None,
        "min_shares": dict(wish.domain_floors) or None,
        "min_shares_by_source": dict(wish.source_floors) or None,
    }
    if wish.min_quality:
        below = ~counted.eligible & (counted.splits != HELDOUT)
        report["totals"]["documents_below_quality"] = int(np.count_nonzero(below))
        report["totals"]["tokens_below_quality"] = int(counted.tokens[below].sum())
    return report | {key: value for key, value in said.items() if value is not None}


def report_of_stages(counted: Counted, stages: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """The whole of several stages: figures over all uses, targets and shortfalls as the stages' sums."""
    budget = sum(stage["totals"]["budget_tokens"] for stage in stages.values())
    report: dict[str, Any] = {}
    for group, column in (("domains", counted.domains), ("sources", counted.sources)):
        entries: dict[str, list[dict[str, Any]]] = {}
        for stage in stages.values():  # a name without documents is only in the stages that ask for it
            for name, entry in stage[group].items():
                entries.setdefault(name, []).append(entry)
        report[group] = {
            name: _sum_of_stages(counted, column == name, entries[name], budget) for name in sorted(entries)
        }
    first = next(iter(stages.values()))
    methods = {stage["method"] for stage in stages.values()}
    report["totals"] = {"budget_tokens": budget, **_totals(counted, budget)}
    report["method"] = methods.pop() if len(methods) == 1 else "stages"
    report["max_epochs"] = max((stage["max_epochs"] for stage in stages.values()), default=first["max_epochs"])
    report["stages"] = [{"name": name, **stage} for name, stage in stages.items()]
    return report


def _sum_of_stages(
    counted: Counted, mask: npt.NDArray[np.bool_], entries: list[dict[str, Any]], budget: int
) -> dict[str, Any]:
    entry = _figures(counted, mask)
    if any("target_tokens" in other for other in entries):
        limits = [other.get("limited_by") for other in entries]
        entry |= {key: sum(other.get(key, 0) for other in entries) for key in _SUMS}
        entry["target_share"] = entry["target_tokens"] / budget if budget else 0.0
        feasible = sum(other.get("planned_tokens", 0) for other in entries)
        entry["feasible_share"] = feasible / counted.total if counted.total else 0.0
        entry["limited_by"] = next((limit for limit in _WORST if limit in limits), None)
        if entry["limited_by"] == "no share" and entry["tokens"]:
            entry["limited_by"] = None
    return entry


_WORST = ("supply", "documents", "others", "no share")


def _entry(
    counted: Counted,
    mask: npt.NDArray[np.bool_],
    name: str,
    shares: Mapping[str, Fraction],
    allocations: Mapping[str, Allocation],
) -> dict[str, Any]:
    figures = _figures(counted, mask)
    if not allocations:
        return figures
    planned = sum(allocation.tokens for allocation in allocations.values())
    allocation = allocations.get(name, Allocation(0, 0, False))
    share = shares.get(name, Fraction(0))
    entry = {
        **figures,
        "target_share": float(share),
        "feasible_share": allocation.tokens / planned if planned else 0.0,
        "target_tokens": allocation.target,
        "shortfall_tokens": max(0, allocation.target - figures["tokens"]),
        "limited_by": _limit(share, allocation, figures, counted.total),
    }
    if counted.used is not None:
        entry["planned_tokens"] = allocation.tokens
    return entry


def _within(counted: Counted, plan: Plan, wish: MixtureWish) -> dict[str, Any]:
    """For every domain with nested shares: its sources, with shares of the domain's tokens."""
    found: dict[str, Any] = {}
    for domain, named in wish.nested_shares.items():
        inside = counted.domains == domain
        whole = int((counted.tokens[inside] * counted.epochs[inside]).sum())
        found[domain] = {}
        for source, share in named.items():
            figures = _figures(counted, inside & (counted.sources == source))
            target = plan.within[domain, source]
            found[domain][source] = {
                "supply_tokens": figures["supply_tokens"],
                "tokens": figures["tokens"],
                "target_share": share,
                "share": figures["tokens"] / whole if whole else 0.0,
                "target_tokens": target,
                "shortfall_tokens": max(0, target - figures["tokens"]),
                "epochs_mean": figures["epochs_mean"],
            }
    return found


def _totals(counted: Counted, budget: int) -> dict[str, Any]:
    splits, tokens = counted.splits, counted.tokens
    return {
        "tokens": counted.total,
        "shortfall_tokens": max(0, budget - counted.total),
        **{f"documents_{split}": int(np.count_nonzero(splits == split)) for split in (TRAIN, HELDOUT, UNUSED)},
        **{f"tokens_{split}": int(tokens[splits == split].sum()) for split in (TRAIN, HELDOUT, UNUSED)},
    }


def _figures(counted: Counted, mask: npt.NDArray[np.bool_]) -> dict[str, Any]:
    """Supply and use of the documents in `mask`. Epochs are uses of the supply: tokens / supply_tokens."""
    tokens, epochs, heldout = counted.tokens, counted.epochs, counted.splits == HELDOUT
    supply = int(tokens[mask & counted.eligible].sum())
    used = round((tokens[mask] * epochs[mask]).sum())
    figures = {
        "documents": int(np.count_nonzero(mask)),
        "documents_used": int(np.count_nonzero(mask & (epochs > 0))),
        "documents_heldout": int(np.count_nonzero(mask & heldout)),
        "supply_tokens": supply,
        "heldout_tokens": int(tokens[mask & heldout].sum()),
        "tokens": used,
        "share": used / counted.total if counted.total else 0.0,
        "epochs_mean": round(used / supply, 6) if supply else 0.0,
        "epochs_max": int(epochs[mask].max()) if mask.any() else 0,
    }
    if counted.used is not None:
        figures["epochs_so_far"] = int(counted.used[mask].max()) if mask.any() else 0
    return figures


def _limit(share: Fraction, allocation: Allocation, figures: Mapping[str, Any], total: int) -> str | None:
    """Why a share is not its target, or None when it is.

    supply: its tokens times the epoch cap are fewer than asked for; others: it got what another could not give;
    documents: whole documents of these sizes cannot come within 0.1 percentage point; no share: nothing was asked.
    What is within 0.1 percentage point of all tokens is reached.
    """
    near = total / 1000
    if allocation.limited and allocation.target - figures["tokens"] > near:
        return "supply"
    if not share:
        return "no share" if figures["supply_tokens"] and not allocation.tokens else None
    if abs(figures["tokens"] - allocation.tokens) > near:
        return "documents"
    return "others" if allocation.tokens - allocation.target > near else None
