"""Where one token of a shard came from: its record, and every decision of the run about that record.

A token leads to its segment, the segment's id to a document (with source file and row, scores, cluster, epoch) or to
a trajectory (with task, outcome, and the message that the token is part of).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from datamix.folder import RUN_NAME, run_recipe
from pipelines.corpus.tables import VERDICT_SCHEMAS, corpus_part, documents_part, part_name, read_verdicts
from pipelines.synthesis.chat import render_messages
from pipelines.synthesis.tokens import TextTokenizer, load_tokenizer
from schemas.document import partition_of
from schemas.errors import CheckError, InputError, UsageError
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
    segment_id, found = _locate(shard, row, token)
    tokenizer = load_tokenizer(run / "tokenizer")
    ids = found.pop("ids")
    at = found["segment"]["offset"]
    found["text"] = tokenizer.decode([ids[at]])
    found["before"] = tokenizer.decode(ids[max(0, at - CONTEXT_TOKENS) : at])
    found["after"] = tokenizer.decode(ids[at + 1 : at + 1 + CONTEXT_TOKENS])
    document, sign, copy = segment_id.partition("@")
    if sign:
        epoch, _, piece = copy.partition(".")
        found["document"] = {**_document(run, document), "epoch": int(epoch), "piece": int(piece)}
    else:
        found["trajectory"] = _trajectory(run, segment_id, at, tokenizer)
    return found


def _locate(shard: Path, row: int, token: int) -> tuple[str, dict[str, Any]]:
    """Segment id, and what the row itself says of the token."""
    values = _row(shard, row)
    ids = values["input_ids"].to_numpy(zero_copy_only=False)
    if token >= len(ids):
        raise UsageError(f"{shard}: row {row} has {len(ids)} tokens, there is no token {token}")
    ends = np.cumsum(values["segment_lengths"].to_numpy(zero_copy_only=False))
    number = int(np.searchsorted(ends, token, side="right"))
    start = int(ends[number - 1]) if number else 0
    reasons = values["mask_reasons"]
    run = int(np.searchsorted(np.cumsum(reasons.field("tokens").to_numpy(zero_copy_only=False)), token, side="right"))
    segment_id = str(values["segment_ids"][number].as_py())
    return segment_id, {
        "shard": str(shard),
        "row": row,
        "token": token,
        "token_id": int(ids[token]),
        "trained": bool(values["loss_mask"][token].as_py()),
        "reason": reasons.field("reason")[run].as_py(),
        "segment": {"id": segment_id, "number": number, "offset": token - start, "tokens": int(ends[number]) - start},
        "ids": ids[start : int(ends[number])],
    }


def _row(shard: Path, row: int) -> dict[str, Any]:
    try:
        with pa.memory_map(str(shard)) as source, pa.ipc.open_file(source) as reader:
            left = row
            for number in range(reader.num_record_batches):
                batch = reader.get_batch(number)
                if left < batch.num_rows:
                    return {name: batch.column(name)[left].values for name in batch.schema.names}
                left -= batch.num_rows
    except FileNotFoundError:
        raise InputError("no such shard", path=str(shard), todo=f"Give a file such as {_EXAMPLE}") from None
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"not an Arrow file ({error})", path=str(shard), todo="Give a shard (.arrow)") from None
    raise UsageError(f"{shard}: there is no row {row}, it has {row - left}")


def _document(run: Path, document_id: str) -> dict[str, Any]:
    """The document's own columns (without its text), its verdicts, and its line of the mixture."""
    part = partition_of(document_id, run_recipe(run).engine.partitions)
    columns = [name for name in pq.read_schema(corpus_part(run, "kept", part)).names if name not in _TEXT_COLUMNS]
    kept = _find(corpus_part(run, "kept", part), columns, document_id)
    mixture = _find(run / "mixture" / part_name(part), ["id", "tokens", "split", "epochs"], document_id)
    kept |= {"tokens": mixture["tokens"], "split": mixture["split"], "epochs": mixture["epochs"]}
    kept["verdicts"] = _verdicts(run, part, document_id)
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


def _trajectory(run: Path, trajectory_id: str, offset: int, tokenizer: TextTokenizer) -> dict[str, Any]:
    part = partition_of(trajectory_id, run_recipe(run).engine.partitions)
    path = run / "trajectories" / "kept" / part_name(part)
    trajectory = Trajectory.from_row(_find(path, None, trajectory_id))
    number, part_of_turn = _message_at(trajectory, offset, tokenizer)
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
        "part": part_of_turn,
        "file": path.relative_to(run).as_posix(),
    }
    if number is not None and number >= 0:
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


def _message_at(trajectory: Trajectory, offset: int, tokenizer: TextTokenizer) -> tuple[int | None, str | None]:
    """Which message, and which part of its rendering, holds the token at `offset` of the segment.

    The pieces are encoded again one by one, as they were when the shard was written.
    """
    end = 0
    for piece in render_messages(trajectory.messages, trajectory.tools):
        end += 1 if piece.control else len(tokenizer.encode(piece.text))
        if offset < end:
            return piece.message, piece.part
    return None, None


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
