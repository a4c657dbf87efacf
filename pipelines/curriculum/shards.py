"""Step `shards`: kept documents and trajectories become packed rows in Arrow files, and the index of them.

Tokenizing and writing run as parallel tasks over files; in between only ids, lengths and counts are held (about 100
bytes a record), never text or tokens. What is in no shard is in shards/audit.parquet with its token bill.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from pipelines.context import RunContext, StepOutput
from pipelines.curriculum.assemble import PLAN_SCHEMA, AssembleTask, assemble_file, write_plan
from pipelines.curriculum.pieces import Copies, PretrainPlan, plan_pretrain, plan_stage_mixtures, spread_copies
from pipelines.curriculum.stages import Records, StagePlan, plan_stages, records_of
from pipelines.curriculum.token_files import TokenizeTask, tokenize_documents, tokenize_trajectories
from pipelines.synthesis.tokens import load_tokenizer
from schemas.errors import CheckError, InputError
from schemas.files import atomic_path
from schemas.recipe import stage_name
from schemas.shard import ShardFile, ShardIndex, StageIndex, write_index

__all__ = ["AUDIT_SCHEMA", "shards"]

AUDIT_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("record", pa.string()),  # document or trajectory
        ("reason", pa.string()),  # too_long, over_budget, no_full_row, nothing_to_train, cannot_render
        ("copies", pa.int64()),  # of a document; 1 for a trajectory
        ("tokens", pa.int64()),  # in all copies
        ("trained_tokens", pa.int64()),
        ("problem", pa.string()),
    ]
)
MOST_UNRENDERED = 0.01  # of the trajectories
MOST_UNRENDERED_COUNT = 10  # few records may all be odd
Ints = npt.NDArray[np.int64]


@dataclass(slots=True)
class _Listing:
    """All tokenized records of one sort: parallel columns over records, and where each lies in the work files."""

    columns: dict[str, list[Any]]
    part: Ints
    record: Ints
    start: Ints


def shards(context: RunContext) -> StepOutput:
    """Write RUN/shards/. Raises CheckError when an input file is not what the mixture or the plan says it is."""
    run, recipe = context.run, context.recipe
    folder, work = run / "shards", run / "work" / "shards"
    for stale in (folder, work):
        shutil.rmtree(stale, ignore_errors=True)
        stale.mkdir(parents=True)
    tokenizer = load_tokenizer(run / "tokenizer")
    counts = _tokenize(context, work)
    writer = _Writer(context, folder, work, tokenizer.vocab_size, tokenizer.digest)
    audit: list[dict[str, Any]] = []
    stages: list[StageIndex] = []
    if recipe.curriculum.pretrain:
        stages += _pretrain(writer, _list(work, "documents"), audit, counts)
    stages += _sft(writer, _list(work, "trajectories"), audit, counts)
    index = ShardIndex(tokenizer.vocab_size, tokenizer.digest, recipe.digest(), stages)
    _write_audit(folder / "audit.parquet", audit)
    files = [folder / file.path for stage in stages for file in stage.files]
    files += [write_index(folder, index), folder / "audit.parquet"]
    counts["stages"] = {
        s.name: {"rows": s.rows, "tokens": s.tokens, "trained_tokens": s.trained_tokens} for s in stages
    }
    shutil.rmtree(work)
    return StepOutput(files, counts)


def _tokenize(context: RunContext, work: Path) -> dict[str, Any]:
    """Run the tokenizing tasks; returns what only they can count."""
    run, fail = context.run, context.recipe.on_error == "fail"
    tokenizer = str(run / "tokenizer")
    if context.recipe.curriculum.pretrain:
        documents = []
        for part, path in enumerate(sorted((run / "corpus" / "kept").glob("part-*.parquet"))):
            mixture = run / "mixture" / path.name
            if not mixture.exists():
                raise CheckError(f"{mixture}: missing beside {path}. Run the reweight step again")
            documents.append(TokenizeTask(part, str(path), str(mixture), tokenizer, str(work), fail))
        context.engine.map(tokenize_documents, documents, label="tokenize documents", progress=context.progress)
    paths = sorted((run / "trajectories" / "kept").glob("part-*.parquet"))
    history, thinking = context.recipe.curriculum.history, context.recipe.curriculum.thinking
    tasks = [
        TokenizeTask(part, str(path), "", tokenizer, str(work), fail, history, thinking)
        for part, path in enumerate(paths)
    ]
    done = context.engine.map(tokenize_trajectories, tasks, label="tokenize trajectories", progress=context.progress)
    return {"think_blocks_dropped": sum(result["think_blocks_dropped"] for result in done)}


def _list(work: Path, name: str) -> _Listing:
    """What was tokenized, without its tokens; sorted by part and row."""
    columns: dict[str, list[Any]] = {}
    parts: list[Ints] = []
    starts: list[Ints] = []
    for path in sorted(work.glob(f"{name}-*.arrow")):
        with pa.memory_map(str(path)) as source:
            table = pa.ipc.open_file(source).read_all()
            found = {key: table.column(key).to_pylist() for key in table.column_names if key != "runs"}
        for key, values in found.items():
            columns.setdefault(key, []).extend(values)
        sizes = np.array(found["tokens"], dtype=np.int64)
        starts.append(np.cumsum(sizes) - sizes)
        parts.append(np.full(len(sizes), int(path.stem.rsplit("-", 1)[1]), dtype=np.int64))
    empty = [np.empty(0, dtype=np.int64)]
    record = np.concatenate(empty + [np.arange(len(p), dtype=np.int64) for p in parts])
    return _Listing(columns, np.concatenate(empty + parts), record, np.concatenate(empty + starts))


@dataclass(slots=True)
class _Writer:
    """Turns planned stages into files."""

    context: RunContext
    folder: Path
    work: Path
    vocab_size: int
    tokenizer_digest: str

    def stage(
        self, phase: str, name: str, capacity: int, report: dict[str, Any], batches: Iterator[pa.RecordBatch]
    ) -> StageIndex:
        """Write the files of one stage from its plan and return its part of the index."""
        plan = self.work / f"{name}.plan.arrow"
        metadata = {
            "phase": phase,
            "stage": name,
            "context_tokens": str(capacity),
            "tokenizer_digest": self.tokenizer_digest,
            "recipe_digest": self.context.recipe.digest(),
        }
        tasks = []
        for number in range(write_plan(plan, batches)):
            path = f"{name}/part-{number:05d}.arrow"
            target = str(self.folder / path)
            tasks.append(
                AssembleTask(
                    str(plan), number, phase, str(self.work), target, path, self.vocab_size, tuple(metadata.items())
                )
            )
        entries = self.context.engine.map(assemble_file, tasks, label=f"write {name}", progress=self.context.progress)
        files = [ShardFile(**entry) for entry in entries]
        fill = report["fill"]
        said = f"{report['rows']:,} rows, fill {fill:.2%}" if fill is not None else "no rows"
        self.context.progress.say(f"{name}: {said}, {report['trained_tokens']:,} trained tokens")
        return StageIndex(name, phase, capacity, files, report)


def _pretrain(
    writer: _Writer, listing: _Listing, audit: list[dict[str, Any]], counts: dict[str, Any]
) -> list[StageIndex]:
    recipe = writer.context.recipe
    ids: list[str] = listing.columns.get("id", [])
    tokens = np.array(listing.columns.get("tokens", []), dtype=np.int64)
    epochs = np.array(listing.columns.get("epochs", []), dtype=np.int64)
    keys = [xxhash.xxh3_64_intdigest(f"pretrain:{recipe.seed}:{record_id}".encode()) for record_id in ids]
    wanted, seed, window = recipe.curriculum.pretrain, recipe.seed, recipe.curriculum.cost_window
    hashes = np.array(keys, dtype=np.uint64)
    if recipe.curriculum.staged:
        uses = np.array(_stage_uses(listing, len(wanted)), dtype=np.int64).reshape(len(ids), len(wanted))
        plans = plan_stage_mixtures(hashes, tokens, uses, wanted, seed, cost_window=window)
        left = Copies(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
    else:
        plans, left = plan_pretrain(spread_copies(hashes, epochs), tokens, wanted, seed, cost_window=window)
    copies_in = int(epochs.sum())
    stages = []
    for place, plan in enumerate(plans):
        name = stage_name(place, wanted[place])
        batches = _pretrain_batches(plan, listing, ids, recipe.curriculum.rows_per_file)
        stages.append(writer.stage("pretrain", name, plan.capacity, plan.report, batches))
    out_of = np.bincount(left.document, minlength=len(ids)) if len(ids) else np.empty(0, dtype=np.int64)
    for i in np.flatnonzero(out_of).tolist():
        bill = int(out_of[i]) * int(tokens[i])
        audit.append(_audit_row(ids[i], "document", "over_budget", bill, bill, copies=int(out_of[i])))
    counts["documents"] = {
        "documents_in": len(ids),
        "copies_in": copies_in,
        "copies_in_shards": copies_in - len(left.document),
        "copies_left_out": {"over_budget": len(left.document)} if len(left.document) else {},
        "tokens_in": int((epochs * tokens).sum()),
        "tokens_in_shards": sum(stage.tokens for stage in stages),
        "tokens_left_out": int((out_of * tokens).sum()),
    }
    return stages


def _stage_uses(listing: _Listing, stages: int) -> list[list[int]]:
    """Uses of each document by stage, as the mixture says. Raises CheckError when it is of another recipe."""
    uses: list[list[int]] = listing.columns.get("stage_epochs", [])
    if len(uses) != len(listing.columns.get("id", [])) or any(len(row) != stages for row in uses[:1]):
        raise CheckError(f"mixture/: it does not say the uses in {stages} stages. Run the reweight step again")
    return uses


def _pretrain_batches(
    plan: PretrainPlan, listing: _Listing, ids: Sequence[str], rows_per_file: int
) -> Iterator[pa.RecordBatch]:
    rows = len(plan.starts) - 1
    for first in range(0, rows, rows_per_file):
        last = min(first + rows_per_file, rows)
        span = slice(int(plan.starts[first]), int(plan.starts[last]))
        document = plan.document[span]
        names = [
            f"{ids[d]}@{e}.{n}"
            for d, e, n in zip(document.tolist(), plan.epoch[span].tolist(), plan.number[span].tolist(), strict=True)
        ]
        columns = [
            np.repeat(np.arange(last - first), np.diff(plan.starts[first : last + 1])),
            listing.part[document],
            listing.start[document] + plan.offset[span],
            plan.length[span],
            listing.record[document],
        ]
        yield _plan_batch(columns, names)


def _plan_batch(columns: list[Ints], names: list[str]) -> pa.RecordBatch:
    arrays = [pa.array(values).cast(field.type) for values, field in zip(columns, list(PLAN_SCHEMA)[:-1], strict=True)]
    return pa.RecordBatch.from_arrays([*arrays, pa.array(names, pa.string())], schema=PLAN_SCHEMA)


def _sft(writer: _Writer, listing: _Listing, audit: list[dict[str, Any]], counts: dict[str, Any]) -> list[StageIndex]:
    recipe = writer.context.recipe
    ids: list[str] = listing.columns.get("id", [])
    problems: list[str | None] = listing.columns.get("problem", [])
    tokens: list[int] = listing.columns.get("tokens", [])
    trained: list[int] = listing.columns.get("trained", [])
    _stop_if_most_fail(problems)
    records, order = records_of(listing.columns)
    plan = plan_stages(records, recipe.curriculum.sft, recipe.seed, cost_window=recipe.curriculum.cost_window)
    stages = []
    for place, stage in enumerate(plan.stages):
        name = f"sft-{place}-{stage.capacity}"
        places = np.array(order, dtype=np.int64)
        batches = _sft_batches(stage, listing, records, places, recipe.curriculum.rows_per_file, place)
        stages.append(writer.stage("sft", name, stage.capacity, stage.report, batches))
    for i in (i for i in range(len(ids)) if problems[i] is not None):
        audit.append(_audit_row(ids[i], "trajectory", "cannot_render", 0, 0, problem=problems[i]))
    for i, reason in plan.left_out:
        bill, useful = int(records.lengths[i]), int(records.trained[i])
        audit.append(_audit_row(records.ids[i], "trajectory", reason, bill, useful))
    left_out = [row for row in audit if row["record"] == "trajectory"]
    repeats = [stage.report.get("replayed", {}) for stage in plan.stages]
    replayed = {key: sum(r.get(key, 0) for r in repeats) for key in ("segments", "tokens", "trained_tokens")}
    reasons = sorted({row["reason"] for row in left_out})
    counts["trajectories"] = {
        "trajectories_in": len(ids),
        "in_shards": len(ids) - len(left_out),
        "left_out": {reason: sum(row["reason"] == reason for row in left_out) for reason in reasons},
        "tokens_in": sum(tokens),
        "tokens_in_shards": sum(stage.tokens for stage in stages) - replayed["tokens"],
        "tokens_left_out": {r: sum(row["tokens"] for row in left_out if row["reason"] == r) for r in reasons},
        "trained_tokens_in": sum(trained),
        "trained_tokens_in_shards": sum(stage.trained_tokens for stage in stages) - replayed["trained_tokens"],
        "replayed": replayed,
    }
    return stages


def _stop_if_most_fail(problems: Sequence[str | None]) -> None:
    """A template that refuses a large share is a wrong template, not a few odd records: stop instead of going on."""
    failed = [problem for problem in problems if problem is not None]
    if len(failed) > max(MOST_UNRENDERED_COUNT, MOST_UNRENDERED * len(problems)):
        raise InputError(
            f"{len(failed)} of {len(problems)} trajectories ({len(failed) / len(problems):.1%}) cannot be rendered, "
            f"the first because: {failed[0]}",
            path="trajectories/kept",
            todo="Change the tokenizer's chat template, or set curriculum.history to split",
        )


def _sft_batches(
    stage: StagePlan, listing: _Listing, records: Records, order: Ints, rows_per_file: int, place: int
) -> Iterator[pa.RecordBatch]:
    """A replayed trajectory is named ID@PLACE, after the stage that repeats it."""
    for first in range(0, len(stage.rows), rows_per_file):
        span = slice(first, first + rows_per_file)
        rows = stage.rows[span]
        flat = np.array([i for row in rows for i in row], dtype=np.int64)
        at = order[flat]
        columns = [
            np.repeat(np.arange(len(rows)), [len(row) for row in rows]),
            listing.part[at],
            listing.start[at],
            records.lengths[flat],
            listing.record[at],
        ]
        names = [
            f"{records.ids[i]}@{place}" if replayed else records.ids[i]
            for row, replayed in zip(rows, stage.replayed[span], strict=True)
            for i in row
        ]
        yield _plan_batch(columns, names)


def _audit_row(
    record_id: str, record: str, reason: str, tokens: int, trained: int, *, copies: int = 1, problem: str | None = None
) -> dict[str, Any]:
    return {
        "id": record_id,
        "record": record,
        "reason": reason,
        "copies": copies,
        "tokens": tokens,
        "trained_tokens": trained,
        "problem": problem,
    }


def _write_audit(path: Path, rows: list[dict[str, Any]]) -> None:
    table = pa.Table.from_pylist(sorted(rows, key=lambda r: (r["record"], r["id"], r["reason"])), schema=AUDIT_SCHEMA)
    with atomic_path(path) as temporary:
        pq.write_table(table, temporary, compression="zstd")
