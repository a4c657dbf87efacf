"""Recount a mixture: the report's tokens from the documents' uses, and each stage's shards from its own uses.

Memory: one small row a document, never text or tokens.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from datamix.checks.result import CheckResult
from pipelines.corpus.reweight import STAGE_USES
from schemas.files import read_json

__all__ = ["check_mixture", "check_stage", "stage_uses"]

REPORT = "mixture/report.json"


def check_mixture(run: Path, result: CheckResult) -> None:
    """Compare mixture/report.json with the documents' tokens and uses, by domain and source, and by stage.

    Does nothing when a file of the mixture already has a fault.
    """
    if any(path.startswith("mixture/") for path in result.damaged()) or not (run / REPORT).is_file():
        return
    mixture = _mixture(run)
    report = read_json(run / REPORT)
    stages = report.get("stages", [])
    if stages and STAGE_USES.name not in mixture.columns:
        result.fault("mixture", f"the report has {len(stages)} stages, the documents have no {STAGE_USES.name}")
        return
    _compare(mixture, pl.col("epochs"), report, REPORT, result)
    for place, stage in enumerate(stages):
        _compare(mixture, pl.col(STAGE_USES.name).list.get(place), stage, f"{REPORT}: stage {stage['name']}", result)
    if stages:
        wrong = mixture.filter(pl.col(STAGE_USES.name).list.sum() != pl.col("epochs")).sort("id")
        if len(wrong):
            first = wrong.row(0, named=True)
            uses, epochs = first[STAGE_USES.name], first["epochs"]
            said = f"the first is {first['id']}: {uses} and {epochs}"
            result.fault("mixture", f"{len(wrong)} documents whose uses by stage do not sum to epochs; {said}")


def _compare(mixture: pl.DataFrame, uses: pl.Expr, report: dict[str, Any], name: str, result: CheckResult) -> None:
    spent = mixture.with_columns((pl.col("tokens") * uses).cast(pl.Int64).alias("spent"))
    for column, group in (("domain", "domains"), ("source", "sources")):
        found = dict(spent.group_by(column).agg(pl.col("spent").sum()).iter_rows())
        said = {key: entry["tokens"] for key, entry in report[group].items()}
        result.equal(name, f"tokens by {column}", {k: v for k, v in sorted(found.items()) if v}, _used(said))
    result.equal(name, "tokens", int(spent["spent"].sum()), report["totals"]["tokens"])


def _used(tokens: dict[str, int]) -> dict[str, int]:
    return {name: count for name, count in sorted(tokens.items()) if count}


def stage_uses(run: Path) -> pl.DataFrame | None:
    """Columns id, tokens and one of uses a pretraining stage (0, 1, …); None when the stages share one mixture."""
    mixture = _mixture(run)
    if STAGE_USES.name not in mixture.columns:
        return None
    stages = int(mixture[STAGE_USES.name].list.len().max() or 0)
    uses = [pl.col(STAGE_USES.name).list.get(place).alias(str(place)) for place in range(stages)]
    return mixture.select("id", "tokens", *uses)


def check_stage(uses: pl.DataFrame, place: int, name: str, segments: pl.DataFrame, result: CheckResult) -> None:
    """Every document is in the rows of a stage as often as the mixture gave it to that stage, whole.

    `segments` has the columns id (DOCUMENT@EPOCH.PIECE) and tokens of that stage alone.
    """
    wanted = uses.group_by("id").agg((pl.col("tokens") * pl.col(str(place))).sum().cast(pl.Int64).alias("wanted"))
    found = segments.group_by(pl.col("id").str.split("@").list.first()).agg(pl.col("tokens").sum().alias("found"))
    joined = wanted.join(found, on="id", how="full", coalesce=True).fill_null(0)
    wrong = joined.filter(pl.col("wanted") != pl.col("found")).sort("id")
    if len(wrong):
        first = wrong.row(0, named=True)
        result.fault(
            f"shards/{name}",
            f"{len(wrong)} documents are not in this stage as often as the mixture says; the first is {first['id']}: "
            f"{first['wanted']} tokens wanted, {first['found']} found",
        )


def _mixture(run: Path) -> pl.DataFrame:
    paths = sorted((run / "mixture").glob("part-*.parquet"))
    table = pa.concat_tables([pq.read_table(path, partitioning=None) for path in paths])
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame
