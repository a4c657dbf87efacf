"""Stored datasketch signatures: written for the documents that stay, and taken as a reference set without its texts.

A document that is similar to a stored signature is dropped by estimate (`duplicate:signature`): there is no text to
measure the similarity exactly. Only documents that dedup kept are looked at, so clusters are what they were.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from filters.text.dedup.minhash import (
    SCHEMES,
    SHINGLES,
    SignatureScheme,
    nearest,
    serialised,
    signatures_of,
    unserialised,
)
from pipelines.context import RunContext
from pipelines.corpus.tables import VERDICT_SCHEMAS, iterate_documents, read_verdicts, verdict_part, write_part
from schemas.errors import InputError, UsageError
from schemas.files import atomic_path

__all__ = ["DUPLICATE_SIGNATURE", "apply_signatures", "read_signatures", "write_signatures"]

DUPLICATE_SIGNATURE = "duplicate:signature"
_COLUMNS = [("id", pa.string()), ("signature", pa.binary())]
_MOST_PERMUTATIONS = 65_536  # a signature of half a megabyte
_AFTER = ("quality", "dedup")


@dataclass(frozen=True, slots=True)
class SignatureTask:
    """The kept documents of one partition, and where their signatures go."""

    run: str
    part: int
    path: str
    scheme: SignatureScheme


def write_signatures(path: Path, ids: list[str], values: npt.NDArray[np.uint64], scheme: SignatureScheme) -> None:
    """A Parquet file of (id, serialised signature); the scheme stands in its metadata and in every signature."""
    schema = pa.schema(_COLUMNS, metadata=scheme.tag())
    table = pa.table([pa.array(ids, pa.string()), pa.array(serialised(values, scheme), pa.binary())], schema=schema)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as temporary:
        pq.write_table(table, temporary, compression="zstd")


def read_signatures(path: Path, shingle_words: int) -> tuple[list[str], npt.NDArray[np.uint64], SignatureScheme]:
    """The ids, values and scheme of a file that `write_signatures` wrote.

    Raises UsageError when there is no such file, InputError when it is no such file, has no tag, mixes schemes, or
    its shingles are not those that this run compares.
    """
    if not path.is_file():
        raise UsageError(f"dedup.against_signatures: {path}: no such file. Give a file that --signatures-out wrote")
    todo = "Give a file that --signatures-out wrote"
    try:
        table = pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"cannot be read as Parquet ({str(error)[:200]})", path=str(path), todo=todo) from None
    tag = {key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()}
    missing = [name for name in ("id", "signature") if name not in table.schema.names]
    if missing or "datasketch.scheme" not in tag:
        what = f"has no column '{missing[0]}'" if missing else "does not say which scheme made its signatures"
        raise InputError(what, path=str(path), field=missing[0] if missing else "datasketch.scheme", todo=todo)
    if tag["datasketch.scheme"] not in SCHEMES:
        raise InputError(
            f"the scheme {tag['datasketch.scheme']!r} is unknown; known are {', '.join(SCHEMES)}",
            path=str(path),
            field="datasketch.scheme",
            todo=todo,
        )
    scheme = SignatureScheme(
        tag["datasketch.scheme"],
        _number(tag, "seed", 0, 2**32 - 1, path),
        _number(tag, "permutations", 2, _MOST_PERMUTATIONS, path),
        _number(tag, "shingle_words", 1, 2**31, path),
        tag.get("datasketch.shingles", ""),
    )
    if (scheme.shingle_words, scheme.shingles) != (shingle_words, SHINGLES):
        raise InputError(
            f"its signatures are of {scheme.shingle_words} {scheme.shingles or 'unknown pieces'}, this run compares "
            f"{shingle_words} {SHINGLES}: they cannot be mixed",
            path=str(path),
            field="datasketch.shingle_words",
            todo="Set shingle_words to that of the file, or write the file again",
        )
    values = unserialised(table.column("signature").to_pylist(), scheme, str(path))
    return [str(name) for name in table.column("id").to_pylist()], values, scheme


def _number(tag: dict[str, str], name: str, least: int, most: int, path: Path) -> int:
    """A whole number of a file's tag. Raises InputError when it is missing or outside of least..most."""
    received = tag.get(f"datasketch.{name}", "")
    if not (received.isascii() and received.isdigit() and len(received) < 20 and least <= int(received) <= most):
        raise InputError(
            f"a whole number from {least} to {most} is needed here, received {received!r}",
            path=str(path),
            field=f"datasketch.{name}",
            todo="Give a file that --signatures-out wrote",
        )
    return int(received)


def apply_signatures(context: RunContext, folder: Path) -> dict[str, int]:
    """Drop what is similar to a stored signature and write signatures of what stays, as `dedup` of the recipe says.

    Returns the dropped by reason. Memory: 8 bytes a value of every signature, stored or own.
    """
    config = context.recipe.dedup
    stored_ids: list[str] = []
    scheme = SignatureScheme(permutations=config.permutations, shingle_words=config.shingle_words)
    stored = np.empty((0, config.permutations), np.uint64)
    if config.against_signatures is not None:
        stored_ids, stored, scheme = read_signatures(Path(config.against_signatures).expanduser(), config.shingle_words)
    tasks = [
        SignatureTask(str(context.run), part, str(folder / f"signatures-{part:05d}.npz"), scheme)
        for part in range(context.recipe.engine.partitions)
    ]
    context.engine.map(signature_task, tasks, label="dedup: signatures", progress=context.progress)
    loaded = [dict(np.load(task.path, allow_pickle=False)) for task in tasks]
    own = np.concatenate([one["values"] for one in loaded]) if loaded else stored
    match, similarity = nearest(own, stored, config.threshold, scheme)
    first, names, kept_values = 0, [], []
    for task, one in zip(tasks, loaded, strict=True):
        here = slice(first, first + len(one["rows"]))
        first = here.stop
        gone = match[here] >= 0
        if gone.any():
            _drop(task, one["rows"][gone], [stored_ids[n] for n in match[here][gone]], similarity[here][gone])
        names += one["ids"][~gone].tolist()
        kept_values.append(one["values"][~gone])
    if config.signatures_out is not None:
        whole = np.concatenate(kept_values) if kept_values else stored[:0]
        write_signatures(Path(config.signatures_out).expanduser(), names, whole, scheme)
    count = int(np.count_nonzero(match >= 0))
    return {DUPLICATE_SIGNATURE: count} if count else {}


def signature_task(task: SignatureTask) -> dict[str, Any]:
    """Signatures of the kept documents of one partition."""
    rows: list[npt.NDArray[np.int64]] = [np.empty(0, np.int64)]
    ids: list[str] = []
    values = [np.empty((0, task.scheme.permutations), np.uint64)]
    for first, batch, alive in iterate_documents(task.run, task.part, ["id", "text"], after=_AFTER, rows=512):
        chosen = batch.filter(pa.array(alive))
        rows.append(np.flatnonzero(alive) + first)
        ids += chosen.column("id").to_pylist()
        values.append(signatures_of(chosen.column("text").to_pylist(), task.scheme))
    with atomic_path(task.path) as temporary, temporary.open("wb") as sink:
        np.savez(sink, rows=np.concatenate(rows), ids=np.array(ids, "U32"), values=np.concatenate(values))
    return {"documents": len(ids)}


def _drop(task: SignatureTask, rows: npt.NDArray[np.int64], names: list[str], similar: npt.NDArray[np.float32]) -> None:
    """Write the verdicts of one partition again, with these rows dropped."""
    table = read_verdicts(task.run, "dedup", task.part)
    columns = {name: table.column(name).to_pylist() for name in table.schema.names}
    for row, name, value in zip(rows.tolist(), names, similar.tolist(), strict=True):
        columns["verdict"][row], columns["duplicate_of"][row] = DUPLICATE_SIGNATURE, name
        columns["cluster"][row] = columns["cluster"][row] or name
        columns["similarity"][row] = value
    schema = VERDICT_SCHEMAS["dedup"]

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict(columns, schema=schema)

    write_part(verdict_part(task.run, "dedup", task.part), schema, batches())
