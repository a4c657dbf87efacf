"""Nothing lost between the kept records and the shards: every record is in a shard or in the audit, with its tokens.

Memory: one small row a document and a trajectory, never tokens.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from datamix.checks.mixture import check_stage, stage_uses
from datamix.checks.result import CheckResult
from pipelines.curriculum.render import TRAINED
from pipelines.curriculum.renderers import chat_template_of
from pipelines.curriculum.template import form_of
from pipelines.synthesis.tokens import load_tokenizer
from schemas.shard import StageIndex, read_index

__all__ = ["check_curriculum"]

_AUDIT = "shards/audit.parquet"
# a trajectory id, its part where it was split, the stage that repeats it (schemas/shard.py)
_SEGMENT_ID = r"^(?<record>.*?)(?:#(?<part>\d+))?(?:@(?<stage>\d+))?$"


def check_curriculum(run: Path, result: CheckResult) -> None:
    """Compare corpus, mixture and trajectories with shards and audit, record by record.

    Does nothing when one of the files it needs already has a fault.
    """
    if any(path.startswith(("shards", "mixture", "trajectories", "corpus", "tokenizer")) for path in result.damaged()):
        return
    if not (run / "tokenizer" / "tokenizer.json").is_file():
        return  # its step's manifest has the fault
    index = read_index(run / "shards")
    audit = pl.read_parquet(run / _AUDIT)
    pretrain = [stage for stage in index.stages if stage.phase == "pretrain"]
    if pretrain:
        _check_documents(run, _segments(run, pretrain), audit.filter(pl.col("record") == "document"), result)
        uses = stage_uses(run)
        if uses is not None:
            for place, stage in enumerate(pretrain):
                check_stage(uses, place, stage.name, _segments(run, [stage]), result)
    sft = [stage for stage in index.stages if stage.phase == "sft"]
    _check_trajectories(run, _segments(run, sft), audit.filter(pl.col("record") == "trajectory"), result)
    result.summary["left_out"] = dict(
        sorted(
            (f"{record} {reason}", rows)
            for record, reason, rows in audit.group_by("record", "reason").len().iter_rows()
        )
    )


def _segments(run: Path, stages: list[StageIndex]) -> pl.DataFrame:
    """Columns id, tokens and turns (trained runs of tokens): every segment of the stages."""
    frames = [pl.DataFrame(schema={"id": pl.String, "tokens": pl.Int64, "turns": pl.Int64})]
    for stage in stages:
        for file in stage.files:
            with pa.memory_map(str(run / "shards" / file.path)) as source, pa.ipc.open_file(source) as reader:
                for number in range(reader.num_record_batches):
                    batch = reader.get_batch(number)
                    table = pa.table(
                        {
                            "id": batch.column("segment_ids").flatten(),
                            "tokens": batch.column("segment_lengths").flatten().cast(pa.int64()),
                            "turns": pa.array(_trained_runs(batch), pa.int64()),
                        }
                    )
                    frame = pl.from_arrow(table)
                    assert isinstance(frame, pl.DataFrame)
                    frames.append(frame)
    return pl.concat(frames)


def _trained_runs(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """How many runs of trained tokens each segment of a batch has."""
    ends = np.cumsum(batch.column("segment_lengths").flatten().to_numpy())
    runs = batch.column("mask_reasons").flatten()
    tokens = runs.field("tokens").to_numpy()
    trained = pc.equal(runs.field("reason"), TRAINED).to_numpy(zero_copy_only=False)
    places = np.searchsorted(ends, np.cumsum(tokens) - tokens, side="right")
    return np.bincount(places[trained], minlength=len(ends))


def _check_documents(run: Path, segments: pl.DataFrame, audit: pl.DataFrame, result: CheckResult) -> None:
    """Every document is in the pretraining rows as often as the mixture says, less what the audit lists, whole."""
    tables = [
        pq.read_table(path, columns=["id", "tokens", "epochs"], partitioning=None)
        for path in sorted((run / "mixture").glob("part-*.parquet"))
    ]
    mixture = pl.from_arrow(pa.concat_tables(tables))
    assert isinstance(mixture, pl.DataFrame)
    # tokens of the mixture hold the end-of-text token already
    wanted = mixture.group_by("id").agg((pl.col("tokens") * pl.col("epochs")).sum().cast(pl.Int64).alias("wanted"))
    found = segments.group_by(pl.col("id").str.split("@").list.first()).agg(pl.col("tokens").sum().alias("found"))
    left = audit.group_by("id").agg(pl.col("tokens").sum().alias("left"))
    joined = wanted.join(found, on="id", how="full", coalesce=True).join(left, on="id", how="full", coalesce=True)
    wrong = joined.fill_null(0).filter(pl.col("wanted") != pl.col("found") + pl.col("left")).sort("id")
    if len(wrong):
        first = wrong.row(0, named=True)
        result.fault(
            "shards",
            f"{len(wrong)} documents are not there as often as the mixture says; the first is {first['id']}: "
            f"{first['wanted']} tokens wanted, {first['found']} in shards, {first['left']} in the audit",
        )


def _check_trajectories(run: Path, segments: pl.DataFrame, audit: pl.DataFrame, result: CheckResult) -> None:
    """Every kept trajectory, or every part of it, is one segment of one stage or one row of the audit.

    Parts of a trajectory split at user turns are numbered from 0 without a gap; a segment that a stage repeats
    (ID@STAGE) is in the shards once more without that, and as long.
    """
    ids: list[str] = []
    turns: list[int] = []
    for path in sorted((run / "trajectories" / "kept").glob("part-*.parquet")):
        with pq.ParquetFile(path) as file:
            table = file.read(columns=["id", "messages.list.element.train"])
        ids += table.column("id").to_pylist()
        turns += [sum(m["train"] is True for m in messages or []) for messages in table.column("messages").to_pylist()]
    named = segments.with_columns(pl.col("id").str.extract_groups(_SEGMENT_ID).alias("name")).unnest("name")
    fresh = named.filter(pl.col("stage").is_null())
    audited = audit.select("id", pl.col("id").str.extract_groups(_SEGMENT_ID).alias("name")).unnest("name")
    parts = pl.concat([fresh.select("record", "part"), audited.select("record", "part")])
    kept = pl.DataFrame({"record": ids}, schema={"record": pl.String}).group_by("record").len("kept")
    out = parts.group_by("record", "part").len("out")
    wrong = kept.join(out, on="record", how="full", coalesce=True).fill_null(0).filter(pl.col("kept") != pl.col("out"))
    if len(wrong):
        first = wrong.sort("record", "part").row(0, named=True)
        result.fault(
            "shards",
            f"{len(wrong)} trajectories are not in exactly one place; the first is {_shown(first)}: "
            f"{first['kept']} times kept, {first['out']} times in shards or audit",
        )
    numbers = out.group_by("record").agg(pl.len().alias("parts"), pl.col("part").cast(pl.Int64).max().alias("last"))
    gaps = numbers.filter(pl.col("parts") != pl.col("last").fill_null(0) + 1).sort("record")
    if len(gaps):
        first = gaps.row(0, named=True)
        result.fault(
            "shards",
            f"{len(gaps)} trajectories lack a part; the first is {first['record']}: {first['parts']} are there",
        )
    _check_replays(named, fresh, result)
    tokenizer = load_tokenizer(run / "tokenizer")
    template = chat_template_of(tokenizer.folder, tokenizer.config.get("chat_template"))
    if template is not None and form_of(template) is not None:
        flagged = pl.DataFrame({"record": ids, "flagged": turns}, schema={"record": pl.String, "flagged": pl.Int64})
        _check_turns(flagged, fresh.join(audited, on="record", how="anti"), result)


def _check_turns(flagged: pl.DataFrame, whole: pl.DataFrame, result: CheckResult) -> None:
    """In our chat format every turn that a trajectory file marks as trained is one run of trained tokens."""
    found = whole.group_by("record").agg(pl.col("turns").sum())
    wrong = (
        found.join(flagged.unique("record"), on="record").filter(pl.col("turns") != pl.col("flagged")).sort("record")
    )
    if len(wrong):
        first = wrong.row(0, named=True)
        result.fault(
            "shards",
            f"{len(wrong)} trajectories train other turns than their file says; the first is {first['record']}: "
            f"{first['flagged']} turns marked, {first['turns']} trained",
        )


def _check_replays(named: pl.DataFrame, fresh: pl.DataFrame, result: CheckResult) -> None:
    again = named.filter(pl.col("stage").is_not_null()).with_columns(pl.col("part").fill_null(""))
    once = fresh.select("record", pl.col("part").fill_null(""), pl.col("tokens").alias("first_tokens"))
    joined = again.join(once.unique(), on=["record", "part"], how="left")
    wrong = joined.filter(pl.col("first_tokens").fill_null(-1) != pl.col("tokens")).sort("id")
    if len(wrong):
        result.fault(
            "shards",
            f"{len(wrong)} segments repeat none of an earlier stage; the first is {wrong.row(0, named=True)['id']}",
        )


def _shown(row: dict[str, Any]) -> str:
    return str(row["record"]) if row["part"] in (None, "") else f"{row['record']}#{row['part']}"
