"""Tokenizing in parallel: one task a partition, each writing its tokens to a flat file that rows are cut from later.

    documents-k.bin   ids of the used documents of corpus/kept/part-k, each followed by end-of-text
    documents-k.arrow one row a used document: id, tokens (end-of-text included, as in the mixture), epochs, and
        stage_epochs where stages have mixtures of their own
    trajectories-k.bin, trajectories-k.mask   ids and the loss mask (one byte a token) of the rendered trajectories
    trajectories-k.arrow  one row a trajectory (ID, or ID#0, ID#1, … where a template makes it be split at user turns):
        id, kind, difficulty, tokens, trained, runs, problem (why it has no tokens)

Ids are uint16 or uint32 as in the shards. A task's memory is one batch of text and its tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.curriculum.render import Rendered
from pipelines.curriculum.renderers import open_renderer
from pipelines.curriculum.stages import kind_of
from pipelines.curriculum.thinking import prepare_thinking
from pipelines.synthesis.tokens import TextTokenizer, load_tokenizer
from schemas.errors import CheckError, InputError
from schemas.files import atomic_path
from schemas.shard import token_type
from schemas.trajectory import Trajectory

__all__ = [
    "DOCUMENTS_SCHEMA",
    "RUNS_TYPE",
    "TRAJECTORIES_SCHEMA",
    "TokenizeTask",
    "open_mask",
    "open_tokens",
    "token_dtype",
    "tokenize_documents",
    "tokenize_trajectories",
]

TRAIN = "train"  # the split of mixture/part-k.parquet that is trained on
TEXT_BATCH = 64  # documents read at a time
TRAJECTORY_BATCH = 8

RUNS_TYPE = pa.list_(pa.struct([("tokens", pa.int32()), ("reason", pa.string())]))
DOCUMENTS_SCHEMA = pa.schema([("id", pa.string()), ("tokens", pa.int64()), ("epochs", pa.int64())])
STAGE_EPOCHS = pa.field("stage_epochs", pa.list_(pa.int64()))
TRAJECTORIES_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("kind", pa.string()),
        ("difficulty", pa.float64()),
        ("tokens", pa.int64()),
        ("trained", pa.int64()),
        ("runs", RUNS_TYPE),
        ("problem", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class TokenizeTask:
    """One partition: `source` and (for documents) the row-aligned `mixture` file, and where the tokens go."""

    part: int
    source: str
    mixture: str
    tokenizer: str
    work: str
    fail: bool
    history: str = "refuse"
    thinking: str = "keep"

    def path(self, suffix: str) -> Path:
        """`work/NAME-part.suffix`, NAME being documents or trajectories."""
        return Path(self.work) / f"{'documents' if self.mixture else 'trajectories'}-{self.part:05d}.{suffix}"


def token_dtype(vocab_size: int) -> npt.DTypeLike:
    """The numpy type of the ids: as `schemas.shard.token_type`."""
    return np.uint16 if token_type(vocab_size) == pa.uint16() else np.uint32


def tokenize_documents(task: TokenizeTask) -> dict[str, Any]:
    """Tokenize the documents of one partition that the mixture trains on.

    Raises CheckError when the mixture file is not row-aligned with the documents, or counted other tokens.
    """
    tokenizer = load_tokenizer(task.tokenizer)
    dtype = token_dtype(tokenizer.vocab_size)
    end = np.array([tokenizer.end_of_text_id], dtype=dtype)
    staged = STAGE_EPOCHS.name in pq.read_schema(task.mixture).names
    schema = DOCUMENTS_SCHEMA.append(STAGE_EPOCHS) if staged else DOCUMENTS_SCHEMA
    mixture = pq.read_table(task.mixture, columns=[*schema.names, "split"]).to_pydict()
    rows: list[dict[str, Any]] = []
    with atomic_path(task.path("bin")) as temporary, open(temporary, "wb") as out:
        at = 0
        for batch in pq.ParquetFile(task.source).iter_batches(batch_size=TEXT_BATCH, columns=["id", "text"]):
            ids = batch.column("id").to_pylist()
            if ids != mixture["id"][at : at + len(ids)]:
                raise CheckError(f"{task.mixture}: rows from {at} on are not those of {task.source}. Reweight again")
            used = [i for i in range(len(ids)) if mixture["split"][at + i] == TRAIN and mixture["epochs"][at + i] > 0]
            texts = [batch.column("text")[i].as_py() for i in used]
            for i, encoded in zip(used, tokenizer.encode_batch(texts), strict=True):
                expected = mixture["tokens"][at + i]  # with the end-of-text token
                if expected != len(encoded) + 1:
                    raise CheckError(
                        f"{task.mixture}: row {at + i} says {expected} tokens for document {ids[i]}, the tokenizer "
                        f"gives {len(encoded)} and end-of-text. Reweight again with this tokenizer"
                    )
                rows.append({name: mixture[name][at + i] for name in schema.names})
                _write(out, encoded.astype(dtype))
                _write(out, end)
            at += len(ids)
        if at != len(mixture["id"]):
            raise CheckError(f"{task.mixture}: {len(mixture['id'])} rows for {at} documents. Reweight again")
    _write_arrow(task.path("arrow"), rows, schema)
    return {"documents": len(rows), "tokens": sum(row["tokens"] for row in rows)}


def tokenize_trajectories(task: TokenizeTask) -> dict[str, Any]:
    """Render the trajectories of one file. One that cannot be rendered gets a row with its problem, or is raised."""
    tokenizer = load_tokenizer(task.tokenizer)
    dtype = token_dtype(tokenizer.vocab_size)
    rows: list[dict[str, Any]] = []
    emptied = 0
    with (
        atomic_path(task.path("bin")) as tokens_path,
        atomic_path(task.path("mask")) as mask_path,
        open(tokens_path, "wb") as tokens_out,
        open(mask_path, "wb") as mask_out,
    ):
        for trajectory, rendered, dropped in _rendered(task, tokenizer):
            emptied += dropped
            if isinstance(rendered, InputError) and task.fail:
                raise InputError(f"{rendered} (trajectory {trajectory.id})", path=task.source)
            rows += _trajectory_rows(trajectory, rendered)
            for part in [] if isinstance(rendered, InputError) else rendered:
                _write(tokens_out, part.ids.astype(dtype))
                _write(mask_out, part.mask.astype(np.uint8))
    _write_arrow(task.path("arrow"), rows, TRAJECTORIES_SCHEMA)
    return {"rows": len(rows), "tokens": sum(row["tokens"] for row in rows), "think_blocks_dropped": emptied}


def measure_trajectories(task: TokenizeTask) -> dict[str, Any]:
    """The columns of TRAJECTORIES_SCHEMA but the runs, as `tokenize_trajectories` writes them; no file is written."""
    names = [name for name in TRAJECTORIES_SCHEMA.names if name != "runs"]
    columns: dict[str, Any] = {name: [] for name in names}
    for trajectory, rendered, _ in _rendered(task, load_tokenizer(task.tokenizer)):
        for row in _trajectory_rows(trajectory, rendered):
            for name in names:
                columns[name].append(row[name])
    return columns


def _trajectory_rows(trajectory: Trajectory, rendered: list[Rendered] | InputError) -> list[dict[str, Any]]:
    """One row a rendering (named ID#PART when there are several), or the one that says why there is none."""
    if isinstance(rendered, InputError):
        return [_trajectory_row(trajectory, trajectory.id, Rendered.empty(), str(rendered))]
    several = len(rendered) > 1
    return [
        _trajectory_row(trajectory, f"{trajectory.id}#{number}" if several else trajectory.id, part, None)
        for number, part in enumerate(rendered)
    ]


def _trajectory_row(trajectory: Trajectory, name: str, found: Rendered, problem: str | None) -> dict[str, Any]:
    difficulty = trajectory.task.difficulty
    return {
        "id": name,
        "kind": kind_of(trajectory),
        "difficulty": float("nan") if difficulty is None else difficulty,
        "tokens": len(found.ids),
        "trained": found.trained,
        "runs": [{"tokens": count, "reason": reason} for count, reason in found.runs],
        "problem": problem,
    }


def _rendered(
    task: TokenizeTask, tokenizer: TextTokenizer
) -> Iterator[tuple[Trajectory, list[Rendered] | InputError, int]]:
    """Each trajectory with its renderings (or error) and how many think blocks were emptied in them."""
    render = open_renderer(tokenizer, history=task.history)
    for batch in pq.ParquetFile(task.source).iter_batches(batch_size=TRAJECTORY_BATCH):
        trajectories = [Trajectory.from_row(raw) for raw in batch.to_pylist()]
        prepared = [prepare_thinking(trajectory, task.thinking) for trajectory in trajectories]
        results = iter(render([part for parts, _ in prepared for part in parts]))
        for trajectory, (parts, emptied) in zip(trajectories, prepared, strict=True):
            found = [next(results) for _ in parts]
            errors = [one for one in found if isinstance(one, InputError)]
            rendered = [one for many in found if not isinstance(many, InputError) for one in many]
            yield (trajectory, errors[0], 0) if errors else (trajectory, rendered, emptied)


def _write(out: BinaryIO, values: npt.NDArray[Any]) -> None:
    out.write(values.tobytes())


def _write_arrow(path: Path, rows: list[dict[str, Any]], schema: pa.Schema) -> None:
    with atomic_path(path) as temporary, pa.OSFile(str(temporary), "wb") as sink, pa.ipc.new_file(sink, schema) as out:
        for first in range(0, len(rows), 1024):
            out.write_batch(pa.RecordBatch.from_pylist(rows[first : first + 1024], schema=schema))


def open_tokens(path: Path, vocab_size: int) -> npt.NDArray[Any]:
    """The flat ids of a work file, memory-mapped (read-only)."""
    return _mapped(path, token_dtype(vocab_size))


def open_mask(path: Path) -> npt.NDArray[Any]:
    """The flat mask of a work file, one byte a token, memory-mapped (read-only)."""
    return _mapped(path, np.uint8)


def _mapped(path: Path, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    if not path.stat().st_size:  # an empty file cannot be mapped
        return np.empty(0, dtype=dtype)
    return np.memmap(path, dtype=dtype, mode="r")
