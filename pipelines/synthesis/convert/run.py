"""Trajectory file in, target file out, in batches: which rows, which losses, which left out."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filters.trajectory.configure import Settings, configured_policy
from filters.trajectory.decide import decide
from filters.trajectory.policies import Policy
from pipelines.synthesis.convert.targets import open_writer
from pipelines.synthesis.convert.writer import LeftOut, Losses, Writer, trained
from pipelines.synthesis.ingest.store import read_trajectories
from schemas.errors import InputError, UsageError
from schemas.files import atomic_path
from schemas.trajectory import Trajectory

__all__ = ["ConvertReport", "convert_file", "convert_rows"]

BATCH_ROWS = 64


@dataclass(slots=True)
class ConvertReport:
    """What a conversion did. `undecided` are assistant turns without a mask, written as trained unless the turn is not
    the model's own; `copies` are rows whose id an earlier row has (a policy leaves them out); `losses` and `left_out`
    count what the target could not hold. By the policy's rules: `redacted` are replacements by kind, `cut_characters`
    what went from oversized observations."""

    target: str
    read: int = 0
    rows: int = 0
    trained_turns: int = 0
    masked_turns: int = 0
    undecided: int = 0
    copies: int = 0
    losses: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    redacted: Counter[str] = field(default_factory=Counter)
    cut_characters: int = 0

    def to_dict(self) -> dict[str, Any]:
        """JSON-able, with the counters as plain objects."""
        return {
            "target": self.target,
            "read": self.read,
            "rows": self.rows,
            "trained_turns": self.trained_turns,
            "masked_turns": self.masked_turns,
            "undecided_turns": self.undecided,
            "copies": self.copies,
            "losses": dict(self.losses),
            "left_out": dict(self.left_out),
            "redacted": dict(sorted(self.redacted.items())),
            "cut_characters": self.cut_characters,
        }


def convert_file(
    path: str | Path,
    target: str,
    out: str | Path,
    *,
    policy: str | None = None,
    rules: Settings | None = None,
    tokenizer: str | Path | None = None,
    history: str = "refuse",
) -> ConvertReport:
    """Write the trajectories of `path` for `target`; with `policy`, after that policy decided the masks.

    `rules` changes single rules of the policy (see filters.trajectory.configure) and needs one. A policy redacts too
    (R20).
    `history`: what a token target does where the chat template rewrites earlier turns, refuse or split.

    Memory: 64 trajectories and all ids. Raises UsageError (unknown target or policy, tokenizer missing, OUT's suffix
    contradicts the target) and InputError (no trajectory file; nothing left to write: OUT is then not written).
    """
    writer = open_writer(target, tokenizer, history)
    if rules and policy is None:
        raise UsageError("--rule changes a policy: give --policy too, for example --policy nanbeige")
    chosen = None if policy is None else configured_policy(policy, rules or {}, place="--rule ")
    suffix = Path(out).suffix
    if suffix in (".jsonl", ".parquet") and suffix != f".{writer.kind}":
        raise UsageError(f"target {target!r} is a {writer.kind} file: name OUT *.{writer.kind} (received {out})")
    report = ConvertReport(target)
    rows = convert_rows(_decided(read_trajectories(path), chosen, report), writer, report)
    with atomic_path(out) as temporary:
        if writer.kind == "jsonl":
            _write_lines(temporary, rows)
        else:
            _write_parquet(temporary, rows, writer)
        if report.rows == 0:
            reasons = (
                ", ".join(f"{reason}: {count}" for reason, count in report.left_out.items()) or "the file is empty"
            )
            raise InputError(f"no trajectory is left to write ({reasons})", path=str(path))
    return report


def convert_rows(trajectories: Iterable[Trajectory], writer: Writer, report: ConvertReport) -> Iterator[dict[str, Any]]:
    """The rows of `writer`, counted into `report`."""
    losses = Losses(report.losses)
    for batch in _batches(trajectories):
        for trajectory, rows in zip(batch, writer.rows(batch, losses), strict=True):
            if isinstance(rows, LeftOut):
                report.left_out[rows.reason] += 1
                continue
            report.rows += len(rows)
            for message in trajectory.messages:
                if message.role == "assistant":
                    report.trained_turns += trained(message)
                    report.masked_turns += not trained(message)
            yield from rows


def _decided(trajectories: Iterable[Trajectory], policy: Policy | None, report: ConvertReport) -> Iterator[Trajectory]:
    seen: set[str] = set()
    for trajectory in trajectories:
        report.read += 1
        kept = [trajectory]
        if trajectory.id in seen:
            report.copies += 1
            if policy is not None:
                report.left_out[f"policy {policy.name}: R16:same_id"] += 1
                continue
        seen.add(trajectory.id)
        if policy is not None:
            made = decide(trajectory, policy)
            kept = made.decision.trajectories
            report.left_out.update(f"policy {policy.name}: {reason}" for _, reason in made.decision.dropped)
            report.redacted.update(made.redacted)
            report.cut_characters += sum(made.decision.cut)
        for item in kept:
            report.undecided += sum(message.role == "assistant" and message.train is None for message in item.messages)
            yield item


def _batches(trajectories: Iterable[Trajectory]) -> Iterator[list[Trajectory]]:
    batch: list[Trajectory] = []
    for trajectory in trajectories:
        batch.append(trajectory)
        if len(batch) == BATCH_ROWS:
            yield batch
            batch = []
    if batch:
        yield batch


def _write_lines(path: Path, rows: Iterator[dict[str, Any]]) -> None:
    with open(path, "w", encoding="utf-8") as handle:
        for row in rows:
            handle.write(json.dumps(row, ensure_ascii=False) + "\n")


def _write_parquet(path: Path, rows: Iterator[dict[str, Any]], writer: Writer) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = writer.schema()
    with pq.ParquetWriter(path, schema, compression="zstd") as out:
        batch: list[dict[str, Any]] = []
        for row in rows:
            batch.append(row)
            if len(batch) == BATCH_ROWS:
                out.write_table(pa.Table.from_pylist(batch, schema))
                batch = []
        if batch:
            out.write_table(pa.Table.from_pylist(batch, schema))
