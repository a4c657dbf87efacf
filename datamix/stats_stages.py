"""Figures of the training half of a run: stages from the shards' index, training and evaluation as they summed up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from datamix.folder import read_output
from schemas.errors import CheckError
from schemas.manifest import Manifest
from schemas.shard import StageIndex, read_index

__all__ = ["left_out_figures", "stage_figures", "training_figures"]


def stage_figures(run: Path, manifests: dict[str, Manifest]) -> list[dict[str, Any]]:
    """One dict a stage in training order: rows, tokens, trained tokens, fill, longest segment, the packer's report."""
    if "shards" not in manifests:
        return []
    index = read_index(run / "shards")
    return [_stage(run / "shards", stage) for stage in index.stages]


def left_out_figures(run: Path, manifests: dict[str, Manifest]) -> list[dict[str, Any]]:
    """What no shard holds, by record and reason, with its token bill: shards/audit.parquet in sums."""
    if "shards" not in manifests:
        return []
    audit = pl.read_parquet(run / "shards" / "audit.parquet")
    sums = audit.group_by("record", "reason").agg(
        pl.len().alias("records"), pl.col("copies").sum(), pl.col("tokens").sum(), pl.col("trained_tokens").sum()
    )
    return sums.sort("record", "reason").to_dicts()


def _stage(folder: Path, stage: StageIndex) -> dict[str, Any]:
    room = stage.rows * stage.context_tokens
    return {
        "name": stage.name,
        "phase": stage.phase,
        "context_tokens": stage.context_tokens,
        "rows": stage.rows,
        "tokens": stage.tokens,
        "trained_tokens": stage.trained_tokens,
        "segments": sum(file.segments for file in stage.files),
        "fill": stage.tokens / room if room else None,
        "longest_segment": max((_longest(folder / file.path) for file in stage.files), default=0),
        "shares": _shares(stage),
        "report": {key: value for key, value in stage.report.items() if key != "shares"},
    }


def _shares(stage: StageIndex) -> dict[str, dict[str, Any]]:
    """The planner's words by kind, in those that the domains use; wanted None: the recipe names no shares.

    `feasible_share` is what is left to want once the kinds without any supply have given their share to the others.
    """
    absent = set(stage.report.get("kinds_without_supply", []))
    said: dict[str, dict[str, Any]] = stage.report.get("shares", {})
    left = sum(entry["wanted"] or 0.0 for kind, entry in said.items() if kind not in absent)
    shares = {}
    for kind, entry in said.items():
        wanted, reached = entry["wanted"], entry["reached"]
        shares[kind] = {
            "trained_tokens": entry["trained_tokens"],
            "target_share": wanted,
            "feasible_share": None if wanted is None else 0.0 if kind in absent or not left else wanted / left,
            "share": reached,
            "difference": None if wanted is None else reached - wanted,
            "shortfall_tokens": entry["shortfall"],
            "limit": "no trajectories of this kind" if kind in absent else None,
        }
    return shares


def _longest(path: Path) -> int:
    """Tokens of the longest segment of a shard file; only that column is touched."""
    longest = 0
    try:
        with pa.memory_map(str(path)) as source, pa.ipc.open_file(source) as reader:
            for number in range(reader.num_record_batches):
                lengths = reader.get_batch(number).column("segment_lengths").flatten()
                longest = max(longest, pc.max(lengths).as_py() or 0)
    except (OSError, pa.ArrowException, KeyError) as error:
        raise CheckError(f"{path}: cannot be read as a shard ({error}). Run `datamix check`") from None
    return longest


def training_figures(run: Path, manifests: dict[str, Manifest]) -> dict[str, Any]:
    """{"training": …, "evaluation": …} as far as those steps are done."""
    figures: dict[str, Any] = {}
    if "train" in manifests:
        figures["training"] = read_output(run / "train" / "summary.json")
    if "evaluate" in manifests:
        figures["evaluation"] = read_output(run / "evaluate" / "results.json")
    return figures
