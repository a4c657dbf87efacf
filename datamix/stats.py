"""The figures of a run, counted from its files: `datamix stats` prints them, the report draws them.

Documents are counted from the verdicts, tokens from the mixture, stages from the shards' index. A run that is not
finished has the figures of its finished steps. Memory is bounded by the ids of one partition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq

from datamix.folder import describe_run, read_output, run_recipe
from datamix.run import TIMINGS_NAME
from datamix.stats_stages import left_out_figures, stage_figures, training_figures
from datamix.steps import STEPS
from pipelines.corpus.tables import JUDGES, documents_part, part_name, read_verdicts
from schemas.document import KEEP
from schemas.files import read_json
from schemas.manifest import Manifest, read_manifest
from schemas.recipe import Recipe

__all__ = ["run_stats"]

UNKNOWN = "unknown"
# Above this a share counts as missed and the reason is given
SHARE_TOLERANCE = 0.01
# What the mixture step says limits a domain, in words
_LIMITS = {
    "supply": "supply: every document is used as often as max_epochs allows",
    "documents": "no document fits what is left of its share",
    "others": "takes what other domains lack",
    "no share": "the recipe gives it no share",
}


def run_stats(run: str | Path) -> dict[str, Any]:
    """Everything `datamix stats --json` prints.

    Raises InputError when `run` is not a run folder, CheckError when a file of a finished step is damaged.
    """
    folder = Path(run)
    described = describe_run(folder)
    recipe = run_recipe(folder)
    manifests = {step.name: m for step in STEPS if (m := read_manifest(folder, step.name)) is not None}
    stats: dict[str, Any] = {
        "run": str(run),
        "recipe": described["recipe"],
        "digest": described["digest"],
        "steps": _steps(folder, manifests),
    }
    if "read" in manifests:
        stats |= _corpus(folder, recipe, manifests)
    stats["trajectories"] = {name: manifests[name].counts for name in ("synthesize", "masks") if name in manifests}
    stats["stages"] = stage_figures(folder, manifests)
    if "reweight" in manifests and "stages" in (report := _mixture_report(folder)):
        stats["stage_mixtures"] = report["stages"]
    stats["left_out"] = left_out_figures(folder, manifests)
    stats |= training_figures(folder, manifests)
    return stats


def _steps(run: Path, manifests: dict[str, Manifest]) -> dict[str, Any]:
    try:
        seconds = read_json(run / TIMINGS_NAME)
    except (FileNotFoundError, ValueError):
        seconds = {}
    return {step.name: {"done": step.name in manifests, "seconds": seconds.get(step.name)} for step in STEPS}


def _corpus(run: Path, recipe: Recipe, manifests: dict[str, Manifest]) -> dict[str, Any]:
    """Documents by step, drops by reason, and what every domain and source holds and gives to the mixture."""
    judged = [step for step in JUDGES if step in manifests]
    parts = [_part(run, part, judged, manifests) for part in range(recipe.engine.partitions)]
    rows = pl.concat(parts)
    drops: dict[str, dict[str, int]] = {}
    for step in judged:
        dropped = rows.filter(pl.col("dropped_by") == step).group_by("reason").agg(pl.col("documents").sum())
        drops[step] = dict(sorted(dropped.iter_rows()))
    set_aside = run / "set_aside" / "read.jsonl"
    totals = rows.sum()
    mixed = "reweight" in manifests
    report = _mixture_report(run) if mixed else {}
    replaced = manifests["corpus"].counts.get("replaced") if "corpus" in manifests else None
    return {
        "documents": {
            "read": int(totals["documents"][0]),
            "set_aside": sum(1 for _ in set_aside.open("rb")) if set_aside.exists() else 0,
            "dropped": drops,
            "kept": int(rows.filter(pl.col("dropped_by").is_null())["documents"].sum()),
            **({"replaced": replaced} if replaced else {}),
        },
        "mixture": {
            "budget_tokens": recipe.mixture.budget_tokens,
            "supply_tokens": int(totals["supply_tokens"][0]),
            "tokens": int(totals["tokens"][0]),
            "heldout_tokens": int(totals["heldout_tokens"][0]),
        },
        "domains": _domains(rows, judged, recipe, mixed=mixed, report=report),
        "sources": _sources(rows, judged, mixed=mixed, report=report),
    }


def _part(run: Path, part: int, judged: list[str], manifests: dict[str, Manifest]) -> pl.DataFrame:
    """One partition as counts: columns domain, source, dropped_by, reason, documents, *_tokens."""
    columns = ["id", "source", "source_domain"]
    frame = pl.from_arrow(pq.read_table(documents_part(run, part), columns=columns, partitioning=None))
    assert isinstance(frame, pl.DataFrame)
    claimed = pl.col("source_domain")
    if "classify" in manifests:
        frame = frame.with_columns(_column(run, "classify", part, "domain"))
        claimed = pl.coalesce("domain", "source_domain")
    for step in judged:
        frame = frame.with_columns(_column(run, step, part, "verdict").rename(step))
    dropped_by, reason = pl.lit(None, pl.String), pl.lit(None, pl.String)
    for step in judged:
        hit = pl.col(step).is_not_null() & (pl.col(step) != KEEP)
        dropped_by = pl.coalesce(dropped_by, pl.when(hit).then(pl.lit(step)))
        reason = pl.coalesce(reason, pl.when(hit).then(pl.col(step)))
    frame = frame.with_columns(
        claimed.fill_null(UNKNOWN).alias("domain"), dropped_by.alias("dropped_by"), reason.alias("reason")
    )
    frame = _with_tokens(frame, run, part, "reweight" in manifests)
    return frame.group_by("domain", "source", "dropped_by", "reason", maintain_order=True).agg(
        pl.len().cast(pl.Int64).alias("documents"),
        *[pl.col(name).sum() for name in ("supply_tokens", "tokens", "heldout_tokens", "used_documents")],
    )


def _column(run: Path, step: str, part: int, name: str) -> pl.Series:
    series = pl.from_arrow(read_verdicts(run, step, part, [name]).column(name))
    assert isinstance(series, pl.Series)
    return series.alias(name)


def _with_tokens(frame: pl.DataFrame, run: Path, part: int, mixed: bool) -> pl.DataFrame:
    """Add token columns: kept documents in their order are the rows of the mixture's part."""
    if not mixed:
        zero = pl.lit(0, pl.Int64)
        names = ("supply_tokens", "tokens", "heldout_tokens", "used_documents")
        return frame.with_columns(*[zero.alias(name) for name in names])
    columns = ["tokens", "split", "epochs"]
    mixture = pl.from_arrow(pq.read_table(run / "mixture" / part_name(part), columns=columns, partitioning=None))
    assert isinstance(mixture, pl.DataFrame)
    used = pl.col("epochs") > 0
    tokens = mixture.select(
        pl.when(pl.col("split") != "heldout").then("tokens").otherwise(0).cast(pl.Int64).alias("supply_tokens"),
        (pl.col("tokens") * pl.col("epochs")).cast(pl.Int64).alias("tokens"),
        pl.when(pl.col("split") == "heldout").then("tokens").otherwise(0).cast(pl.Int64).alias("heldout_tokens"),
        used.cast(pl.Int64).alias("used_documents"),
    ).with_row_index("kept_row")
    kept = pl.col("dropped_by").is_null()
    numbered = frame.with_columns(pl.when(kept).then(kept.cum_sum() - 1).cast(pl.UInt32).alias("kept_row"))
    joined = numbered.join(tokens, on="kept_row", how="left", maintain_order="left")
    return joined.with_columns(pl.col(tokens.columns[1:]).fill_null(0))


def _mixture_report(run: Path) -> dict[str, Any]:
    report = read_output(run / "mixture" / "report.json")
    return report if isinstance(report, dict) else {}


def _groups(rows: pl.DataFrame, by: str, judged: list[str], *, mixed: bool) -> dict[str, dict[str, Any]]:
    """Documents by step and tokens of each value of `by`."""
    total = int(rows["tokens"].sum())
    groups: dict[str, dict[str, Any]] = {}
    for name, group in _grouped(rows, by):
        left = int(group["documents"].sum())
        entry: dict[str, Any] = {"documents": {"read": left}}
        gone = Counter(dict(group.group_by("dropped_by").agg(pl.col("documents").sum()).iter_rows()))
        for step in judged:
            left -= gone.get(step, 0)
            entry["documents"][step] = left
        if mixed:
            tokens, supply = int(group["tokens"].sum()), int(group["supply_tokens"].sum())
            entry |= {
                "supply_tokens": supply,
                "heldout_tokens": int(group["heldout_tokens"].sum()),
                "used_documents": int(group["used_documents"].sum()),
                "tokens": tokens,
                "share": tokens / total if total else 0.0,
                "epochs": round(tokens / supply, 4) if supply else 0.0,
            }
        groups[name] = entry
    return groups


def _grouped(rows: pl.DataFrame, by: str) -> Iterator[tuple[str, pl.DataFrame]]:
    for name in sorted(rows[by].unique()):
        yield str(name), rows.filter(pl.col(by) == name)


def _domains(
    rows: pl.DataFrame, judged: list[str], recipe: Recipe, *, mixed: bool, report: dict[str, Any]
) -> dict[str, dict[str, Any]]:
    """`_groups` by domain with the wanted share, the difference, and what limits a share that was missed."""
    domains = _groups(rows, "domain", judged, mixed=mixed)
    if not mixed:
        return domains
    said = report.get("domains", {})
    supply = sum(entry["supply_tokens"] for entry in domains.values())
    for name in sorted(set(domains) | set(recipe.mixture.shares) | set(said)):
        entry = domains.setdefault(name, _absent(judged))
        if recipe.mixture.shares and not report.get("stages"):
            wanted = recipe.mixture.shares.get(name, 0.0)
        elif name in said:
            wanted = said[name].get("target_share")
        else:
            wanted = entry["supply_tokens"] / supply if supply else 0.0
        _compare(entry, wanted, said.get(name, {}), "domain")
    return dict(sorted(domains.items()))


def _sources(
    rows: pl.DataFrame, judged: list[str], *, mixed: bool, report: dict[str, Any]
) -> dict[str, dict[str, Any]]:
    """`_groups` by source, with the wanted shares where the mixture has targets for sources."""
    sources = _groups(rows, "source", judged, mixed=mixed)
    said = report.get("sources", {}) if mixed else {}
    if any("target_share" in entry for entry in said.values()):
        for name in sorted(set(sources) | set(said)):
            entry = sources.setdefault(name, _absent(judged))
            _compare(entry, said.get(name, {}).get("target_share"), said.get(name, {}), "source")
    return dict(sorted(sources.items()))


def _compare(entry: dict[str, Any], wanted: float | None, said: dict[str, Any], kind: str) -> None:
    """Add the wanted share (None: the mixture asks for none), the difference, and what limits a missed one."""
    entry["target_share"] = wanted
    entry["difference"] = None if wanted is None else entry["share"] - wanted
    limit: str | None = said.get("limited_by")
    missed = entry["difference"] is not None and abs(entry["difference"]) > SHARE_TOLERANCE
    entry["limit"] = None if limit is None or (limit == "others" and not missed) else _LIMITS.get(limit, limit)
    if missed and not entry["supply_tokens"]:
        entry["limit"] = f"no documents of this {kind}"


def _absent(judged: list[str]) -> dict[str, Any]:
    """A domain that the recipe wants and no document has."""
    return {
        "documents": dict.fromkeys(["read", *judged], 0),
        "supply_tokens": 0,
        "heldout_tokens": 0,
        "used_documents": 0,
        "tokens": 0,
        "share": 0.0,
        "epochs": 0.0,
    }
