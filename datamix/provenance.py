"""Where one token of a shard came from: its record, and every decision of the run about that record.

A token leads to its segment, the segment's id to a document (with source file and row, scores, cluster, epoch) or to
a trajectory (with task, outcome, and the message that the token is part of).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from datamix.folder import RUN_NAME, run_recipe
from filters.text.pii import replace_private_text
from pipelines.corpus.corpus import pii_kinds
from pipelines.corpus.tables import VERDICT_SCHEMAS, corpus_part, documents_part, part_name, read_verdicts
from pipelines.curriculum import inspect
from pipelines.curriculum.renderers import open_renderer
from pipelines.curriculum.thinking import prepare_thinking
from pipelines.synthesis.tokens import TextTokenizer, load_tokenizer
from schemas.document import partition_of
from schemas.errors import CheckError, InputError, UsageError
from schemas.recipe import CurriculumConfig
from schemas.trajectory import Trajectory

__all__ = ["explain_token", "find_run", "parse_place"]

CONTEXT_TOKENS = 12  # shown on either side of the token
_TEXT_COLUMNS = {"text", "verdict"}


def parse_place(place: str) -> tuple[Path, int, int]:
    """SHARD:ROW:TOKEN as path, row and token (both from 0). Raises UsageError for anything else."""
    parts = place.rsplit(":", 2)
    if len(parts) != 3 or not (parts[1].isdigit() and parts[2].isdigit()):
        raise UsageError(f"{place!r}: write it as SHARD:ROW:TOKEN, for example {_EXAMPLE}:0:100 (both count from 0)")
    return Path(parts[0]), int(parts[1]), int(parts[2])


_EXAMPLE = "RUN/shards/sft-0-65536/part-00000.arrow"


def find_run(path: Path) -> Path:
    """The run folder that a file lies in. Raises InputError when it lies in none."""
    for folder in path.resolve().parents:
        if (folder / RUN_NAME).is_file():
            return folder
    raise InputError(
        "lies in no run folder (no run.json above it)", path=str(path), todo="Give a shard where its run left it"
    )


def explain_token(place: str) -> dict[str, Any]:
    """Everything that the run knows about one token.

    Raises UsageError for a place that is not there, InputError for a shard outside a run, CheckError when the record
    is not where its id says. Cost: one row of the shard, one partition's ids, one record's text.
    """
    shard, row, token = parse_place(place)
    run = find_run(shard)
    tokenizer = load_tokenizer(run / "tokenizer")
    found = inspect.explain_token(run / "shards", shard, row, token, tokenizer)
    values = inspect.read_row(shard, row)
    segment = values.segments[found.segment]
    end = segment.start + segment.length
    explained: dict[str, Any] = {
        "shard": str(shard),
        "row": row,
        "token": token,
        "token_id": found.token_id,
        "text": found.text,
        "before": tokenizer.decode(values.ids[max(segment.start, token - CONTEXT_TOKENS) : token]),
        "after": tokenizer.decode(values.ids[token + 1 : min(end, token + 1 + CONTEXT_TOKENS)]),
        "trained": found.trained,
        "reason": found.reason,
        "stage": found.stage,
        "segment": {
            "id": found.segment_id,
            "number": found.segment,
            "position": found.position,
            "tokens": segment.length,
        },
    }
    if found.document is not None:
        explained["document"] = {**_document(run, found.document), "epoch": found.epoch, "piece": found.piece}
    else:
        explained["trajectory"] = _trajectory(run, found, tokenizer)
    return explained


def _document(run: Path, document_id: str) -> dict[str, Any]:
    """The document's own columns (without its text), its verdicts, and its line of the mixture."""
    recipe = run_recipe(run)
    part = partition_of(document_id, recipe.engine.partitions)
    columns = [name for name in pq.read_schema(corpus_part(run, "kept", part)).names if name not in _TEXT_COLUMNS]
    kept = _find(corpus_part(run, "kept", part), columns, document_id)
    mixture = _find(run / "mixture" / part_name(part), None, document_id)
    kept |= {name: mixture[name] for name in ("tokens", "split", "epochs", "stage_epochs") if name in mixture}
    kept["verdicts"] = _verdicts(run, part, document_id)
    kinds = pii_kinds(recipe)
    if kinds:  # by the text as it was read: what stands in the corpus no longer says
        text = _find(documents_part(run, part), ["id", "text"], document_id)["text"]
        kept["replaced"] = replace_private_text(text, kinds)[1]
    return kept


def _verdicts(run: Path, part: int, document_id: str) -> dict[str, Any]:
    """What each step said: row-aligned with the documents, so one position serves all."""
    position = _position(pq.read_table(documents_part(run, part), columns=["id"]).column("id"), document_id)
    if position is None:
        raise CheckError(f"{documents_part(run, part)}: has no document {document_id}. Run `datamix check`")
    verdicts = {}
    for step in VERDICT_SCHEMAS:
        row = read_verdicts(run, step, part).slice(position, 1).to_pylist()[0]
        verdicts[step] = {name: value for name, value in row.items() if name != "id" and value is not None}
    return verdicts


def _trajectory(run: Path, place: inspect.Provenance, tokenizer: TextTokenizer) -> dict[str, Any]:
    recipe = run_recipe(run)
    trajectory_id = place.trajectory or place.segment_id
    path = run / "trajectories" / "kept" / part_name(partition_of(trajectory_id, recipe.engine.partitions))
    trajectory = Trajectory.from_row(_find(path, None, trajectory_id))
    number = _message_at(trajectory, place.part or 0, place.position, tokenizer, recipe.curriculum)
    found: dict[str, Any] = {
        "id": trajectory.id,
        "source": trajectory.source,
        "family": trajectory.family,
        "origin": trajectory.origin,
        "license": trajectory.license,
        "task": {
            "id": trajectory.task.id,
            "seed": trajectory.task.seed,
            "difficulty": trajectory.task.difficulty,
        },
        "outcome": {"success": trajectory.outcome.success, "verified_by": trajectory.outcome.verified_by},
        "messages": len(trajectory.messages),
        "message": number,
        "part": place.part,
        "replayed_in": place.replayed_in,
        "file": path.relative_to(run).as_posix(),
    }
    if number is not None:
        message = trajectory.messages[number]
        found |= {
            "role": message.role,
            "label": message.label,
            "mask_reasons": message.mask_reasons,
            "error": message.error,
            "signal": message.signal,
            "calls": [call.name for call in message.tool_calls],
        }
    return found


def _message_at(
    trajectory: Trajectory, part: int, offset: int, tokenizer: TextTokenizer, curriculum: CurriculumConfig
) -> int | None:
    """Which message holds the token at `offset` of the segment that is rendering `part` of a trajectory.

    It is rendered again as it was when the shard was written; None for what belongs to no message.
    """
    renderer = open_renderer(tokenizer, history=curriculum.history)
    for prepared in prepare_thinking(trajectory, curriculum.thinking)[0]:
        rendered = renderer([prepared])[0]
        if isinstance(rendered, InputError):
            raise rendered
        if part < len(rendered):
            return renderer.message_at(prepared, part, offset)
        part -= len(rendered)
    return None


def _find(path: Path, columns: list[str] | None, record_id: str) -> dict[str, Any]:
    """One row by id, reading its batch alone."""
    with pq.ParquetFile(path) as file:
        for group in range(file.num_row_groups):
            position = _position(file.read_row_group(group, columns=["id"]).column("id"), record_id)
            if position is not None:
                seen = 0
                for batch in file.iter_batches(64, [group], columns):
                    if position < seen + batch.num_rows:
                        row: dict[str, Any] = batch.slice(position - seen, 1).to_pylist()[0]
                        return row
                    seen += batch.num_rows
    raise CheckError(f"{path}: has no record {record_id}. Run `datamix check`")


def _position(ids: pa.ChunkedArray, record_id: str) -> int | None:
    found = pc.index(ids, record_id).as_py()
    return None if found < 0 else int(found)
