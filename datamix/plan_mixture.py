"""What the mixture of a recipe will be, by domain, by source and by stage, with the uncertainty of the estimate."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from datamix.plan_supply import Supply, mixture_of, supply_of
from schemas.recipe import Recipe

__all__ = ["estimate_mixture"]

_PASSED_ON = ("min_quality", "temperature", "by", "max_epochs_by_domain", "max_epochs_by_source", "min_shares",
              "min_shares_by_source", "within")  # fmt: skip
_NOTES = (
    "supply: after the quality rules and without what is held out, before dedup and decontamination: an upper bound",
    "domains: by classify.model where it is a file, else what the sources claim, corrected where a text reads as code",
    "supply_error: two standard deviations of the sample, and the error of bytes_per_token, together",
)


def estimate_mixture(recipe: Recipe, vocabulary: int, count: int, ratio: float | None = None) -> dict[str, Any]:
    """{"mixture": …, "estimate": …, "warnings": […]}, JSON-able.

    Every domain and source has target_share and target_tokens (null where the mixture has no target for it),
    supply_tokens, supply_error (relative), tokens, share, epochs (mean uses of the supply), shortfall_tokens and
    limited_by. What hangs on a source of which nothing is known is null, and `supply` says unknown.
    """
    supply = supply_of(recipe, vocabulary, count, ratio)
    report = mixture_of(recipe, supply)
    reader = _Reader(recipe, supply)
    mixture: dict[str, Any] = {
        "budget_tokens": recipe.mixture.budget_tokens,
        "method": report["method"],
        "max_epochs": report["max_epochs"],
        **{key: report[key] for key in _PASSED_ON if key in report},
        "domains": reader.entries(report, "domain"),
        "sources": reader.entries(report, "source"),
    }
    if not supply.unknown:
        mixture["tokens"] = report["totals"]["tokens"]
        mixture["shortfall_tokens"] = report["totals"]["shortfall_tokens"]
    if "stages" in report:
        mixture["stages"] = [reader.stage(stage) for stage in report["stages"]]
    estimate = {
        "places": count,
        "bytes_per_token": supply.ratios,
        "bytes_per_token_error": supply.ratio_error,
        "bytes_per_token_from": "given" if ratio else f"measured at a vocabulary of {vocabulary:,}, without tokenizing",
        "notes": list(_NOTES) if count else ["nothing was read: no supply is known"],
    }
    return {"mixture": mixture, "estimate": estimate, "sources": supply.figures,
            "warnings": reader.warnings(report, count)}  # fmt: skip


class _Reader:
    """Reads a mixture's report with what is known of the supply behind it."""

    def __init__(self, recipe: Recipe, supply: Supply) -> None:
        self.recipe, self.supply = recipe, supply
        claimed = {source.name: source.domain for source in recipe.sources}
        everywhere = any(claimed[name] is None for name in supply.unknown)
        labels = set(recipe.classify.labels)
        self.vague_domains = labels if everywhere else {str(claimed[name]) for name in supply.unknown}
        self.vague_sources = {n for n, d in claimed.items() if d is None or d in self.vague_domains or everywhere}
        self.vague_sources = self.vague_sources if supply.unknown else set()

    def stage(self, report: Mapping[str, Any]) -> dict[str, Any]:
        """One stage, as the whole mixture."""
        return {
            "name": report["name"],
            "budget_tokens": report["totals"]["budget_tokens"],
            "method": report["method"],
            "max_epochs": report["max_epochs"],
            **{key: report[key] for key in _PASSED_ON if key in report},
            "domains": self.entries(report, "domain"),
            "sources": self.entries(report, "source"),
        }

    def entries(self, report: Mapping[str, Any], kind: str) -> dict[str, dict[str, Any]]:
        """All domains or all sources of a report (kind: domain or source)."""
        return {name: self._entry(name, entry, report, kind) for name, entry in sorted(report[f"{kind}s"].items())}

    def _entry(self, name: str, entry: Mapping[str, Any], report: Mapping[str, Any], kind: str) -> dict[str, Any]:
        targets = report["method"] in ("target", "stages") or not self.supply.unknown
        unknown = name in self.vague_domains if kind == "domain" else name in self.supply.unknown
        vague = unknown or (kind == "source" and name in self.vague_sources and "target_share" not in entry)
        reached = not vague or (kind == "domain" and targets)
        return {
            "target_share": entry.get("target_share") if targets else None,
            "target_tokens": entry.get("target_tokens") if targets else None,
            "supply": "unknown" if unknown else self._origin(name, kind),
            "supply_tokens": None if unknown else entry["supply_tokens"],
            "supply_error": None if unknown else self._error(name, kind, entry["supply_tokens"]),
            "tokens": entry["tokens"] if reached and targets else None,
            "share": entry["share"] if reached and targets else None,
            "epochs": None if vague or not targets else entry["epochs_mean"],
            "shortfall_tokens": None if vague or not targets else entry.get("shortfall_tokens"),
            "limited_by": None if vague or not targets else entry.get("limited_by"),
        }

    def _origin(self, name: str, kind: str) -> str:
        """sample, expected (the recipe's word), both, or none."""
        figures = self.supply.figures
        here = self.supply.domains if kind == "domain" else self.supply.sources
        given = {figures[source]["supply"] for source in set(self.supply.sources[here == name].tolist())}
        return "none" if not given else given.pop() if len(given) == 1 else "sample and expected"

    def _error(self, name: str, kind: str, tokens: int) -> float | None:
        variance = self.supply.sampling.get((kind, name))
        if variance is None or not tokens:
            return None
        return round(math.hypot(2 * math.sqrt(variance) / tokens, self.supply.ratio_error), 4)

    def warnings(self, report: Mapping[str, Any], count: int) -> list[str]:
        """What a person should know before they run this."""
        said = []
        for source in self.recipe.sources if count else []:
            figures = self.supply.figures[source.name]
            if figures["files"] == 0 and source.expected_tokens:
                said.append(f"source {source.name}: files 0; counted with expected_tokens {source.expected_tokens:,}")
            elif not figures["files"]:
                where = f"nothing at {source.path!r}"
                said.append(f"source {source.name}: files 0 ({where}): its supply, epochs and shortfalls are unknown")
            elif not figures["places"]:
                said.append(f"source {source.name}: no record that can be read in {figures['files_read']} files")
            if figures["unreadable_records"]:
                said.append(f"source {source.name}: unreadable records: {figures['unreadable_records']}")
            if figures["files"] and not figures["read_whole"]:
                said.append(
                    f"source {source.name}: a part of {figures['files_read']} of {figures['files']} files was read"
                )
        language = self.recipe.quality.language
        models = [("classify.model", self.recipe.classify.model)]
        models += [] if language is None else [("quality.language.model", language.model)]
        for field, path in models:
            if path != "train" and not Path(path).is_file():
                said.append(f"{field}: no file at {path!r}: the plan is made without it")
        if self.supply.unknown and report["method"] not in ("target", "stages"):
            said.append(f"method {report['method']} makes its shares from the supply, which is not known")
        for stage in report.get("stages", [report]):
            said += self._lacks(stage)
        return said

    def _lacks(self, report: Mapping[str, Any]) -> list[str]:
        """Domains and sources that lack tokens for their targets, and domains that nobody asks for."""
        said = []
        place = f"{report['name']}: " if "name" in report else ""
        for kind in ("domain", "source"):
            for name, entry in self.entries(report, kind).items():
                short, share = entry["shortfall_tokens"], entry["target_share"]
                if entry["limited_by"] == "supply" and short:
                    said.append(
                        f"{place}{kind} {name}: {short:,} of {entry['target_tokens']:,} tokens lacking "
                        f"({entry['supply_tokens']:,} in supply, {entry['epochs']:g} epochs)"
                    )
                if entry["limited_by"] == "no share" and not share and entry["supply_tokens"]:
                    said.append(f"{place}{kind} {name}: {entry['supply_tokens']:,} tokens are there, it has no share")
        little = report["totals"]["budget_tokens"] / 1000
        for domain, sources in report.get("within", {}).items():
            said += [
                f"{place}source {name} within {domain}: {entry['shortfall_tokens']:,} of {entry['target_tokens']:,} "
                "tokens lacking"
                for name, entry in sources.items()
                if domain not in self.vague_domains and entry["shortfall_tokens"] > little
            ]
        expected = [n for n, figures in self.supply.figures.items() if figures["supply"] == "expected"]
        if report.get("min_quality") and expected:
            said.append(f"{place}min_quality cannot be judged for {', '.join(expected)}: all their tokens are counted")
        return said
