"""Templates out of a corpus: lines or paragraphs that stand in many documents are taken out of all of them.

Two rounds of tasks, one a partition. The first counts hashes of pieces, so what is held for the whole corpus are
hashes and counts; the second writes the documents without the pieces that are too frequent. What was taken out is kept
with its document and place, so every text can be put together again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from filters.text.dedup.templates import clean, count_pieces, join_counts, piece_hash
from pipelines.context import RunContext
from pipelines.corpus.tables import documents_part, iterate_batches, part_name, write_part
from schemas.document import DOCUMENT_SCHEMA, KEEP
from schemas.files import atomic_path

__all__ = ["NOTHING_LEFT", "REMOVED_SCHEMA", "remove_templates"]

NOTHING_LEFT = "template:nothing_left"
REMOVED_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("source_id", pa.string()),
        ("at", pa.int64()),  # where the piece began in the document, in characters
        ("text", pa.large_string()),  # the piece with the break behind it
    ]
)
_SHOWN = 20  # templates of the summary
_BATCH_ROWS = 256


@dataclass(frozen=True, slots=True)
class TemplateTask:
    """One partition of the documents of a run."""

    run: str
    part: int
    unit: str
    folder: str

    def counts(self) -> Path:
        """Hashes and counts of its pieces: two rows of a numpy array."""
        return Path(self.folder, f"pieces-{self.part:05d}.npy")

    def templates(self) -> Path:
        """The hashes of the templates, of all partitions."""
        return Path(self.folder, "templates.npy")


def remove_templates(context: RunContext, unit: str, least_documents: int) -> dict[str, Any]:
    """Write out/kept, out/dropped and out/removed from documents/; returns counts.

    A piece is a template when it stands in `least_documents` or more documents. A document of which nothing visible
    is left is dropped with its old text. Memory: some 50 bytes a distinct piece, and a batch of text.
    """
    folder = context.run / "spill" / "templates"
    folder.mkdir(parents=True, exist_ok=True)
    partitions = range(context.recipe.engine.partitions)
    tasks = [TemplateTask(str(context.run), part, unit, str(folder)) for part in partitions]
    context.engine.map(count_task, tasks, label=f"dedup: count {unit}s", progress=context.progress)
    loaded = [np.load(task.counts(), allow_pickle=False) for task in tasks]
    hashes, counts = join_counts([(one[0], one[1].astype(np.int64)) for one in loaded])
    frequent = counts >= least_documents
    hashes, counts = hashes[frequent], counts[frequent]
    order = np.lexsort((hashes, -counts))
    np.save(tasks[0].templates(), hashes[order], allow_pickle=False)
    results = context.engine.map(clean_task, tasks, label=f"dedup: remove {unit}s", progress=context.progress)
    examples: dict[int, str] = {}
    for result in results:
        for number, text in result["examples"].items():
            examples.setdefault(int(number), text)
    total = {key: sum(result[key] for result in results) for key in ("kept", "dropped", "changed", "pieces", "letters")}
    return {
        "unit": unit,
        "least_documents": least_documents,
        "documents_in": total["kept"] + total["dropped"],
        "kept": total["kept"],
        "dropped": {NOTHING_LEFT: total["dropped"]} if total["dropped"] else {},
        "documents_changed": total["changed"],
        "templates": len(hashes),
        "pieces_removed": total["pieces"],
        "characters_removed": total["letters"],
        "most_frequent": [
            {"documents": int(counts[order[n]]), "text": examples[n]} for n in sorted(examples) if n < _SHOWN
        ],
    }


def count_task(task: TemplateTask) -> dict[str, Any]:
    """Count the pieces of one partition. Memory: its hashes."""
    parts = [
        count_pieces(batch.column(0).to_pylist(), task.unit)
        for batch in iterate_batches(documents_part(task.run, task.part), ["text"], rows=_BATCH_ROWS)
    ]
    hashes, counts = join_counts(parts)
    with atomic_path(task.counts()) as temporary, temporary.open("wb") as sink:
        np.save(sink, np.stack([hashes, counts.astype(np.uint64)]), allow_pickle=False)
    return {"pieces": len(hashes)}


def clean_task(task: TemplateTask) -> dict[str, Any]:
    """Write kept/, dropped/ and removed/ of one partition. Memory: a batch of text and the hashes of the templates."""
    ordered = np.load(task.templates(), allow_pickle=False).tolist()
    templates, shown = frozenset(ordered), {value: n for n, value in enumerate(ordered[:_SHOWN])}
    found: dict[str, Any] = {"kept": 0, "dropped": 0, "changed": 0, "pieces": 0, "letters": 0, "examples": {}}
    out = Path(task.run) / "out"

    def documents(kind: str) -> Iterator[pa.RecordBatch]:
        for batch in iterate_batches(documents_part(task.run, task.part), rows=_BATCH_ROWS):
            cleaned = [clean(text, task.unit, templates) for text in batch.column("text").to_pylist()]
            empty = np.array([not one.text.strip() for one in cleaned], bool)
            if kind == "kept":
                texts = pa.array([one.text for one in cleaned], pa.large_string())
                batch = _with(batch, {"text": texts, "verdict": pa.array([KEEP] * len(cleaned), pa.string())})
                found["changed"] += sum(bool(one.removed) for one, gone in zip(cleaned, empty, strict=True) if not gone)
            else:
                batch = _with(batch, {"verdict": pa.array([NOTHING_LEFT] * len(cleaned), pa.string())})
            chosen = batch.filter(pa.array(empty if kind == "dropped" else ~empty))
            found[kind] += chosen.num_rows
            yield chosen

    def removed() -> Iterator[pa.RecordBatch]:
        columns = ["id", "source_id", "text"]
        for batch in iterate_batches(documents_part(task.run, task.part), columns, rows=_BATCH_ROWS):
            rows: list[tuple[Any, ...]] = []
            for identity, source_id, text in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                cleaned = clean(text, task.unit, templates)
                if cleaned.text.strip():
                    rows += [(identity, source_id, at, piece) for at, piece in cleaned.removed]
            for row in rows:
                number = shown.get(piece_hash(row[3]), -1)
                if number >= 0:
                    found["examples"].setdefault(str(number), row[3].strip()[:200])
            found["pieces"] += len(rows)
            found["letters"] += sum(len(row[3]) for row in rows)
            columns_of = list(zip(*rows, strict=True)) or [()] * len(REMOVED_SCHEMA)
            arrays = [pa.array(values, field.type) for values, field in zip(columns_of, REMOVED_SCHEMA, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=REMOVED_SCHEMA)

    for kind in ("kept", "dropped"):
        write_part(out / kind / part_name(task.part), DOCUMENT_SCHEMA, documents(kind))
    write_part(out / "removed" / part_name(task.part), REMOVED_SCHEMA, removed())
    return found


def _with(batch: pa.RecordBatch, columns: dict[str, pa.Array]) -> pa.RecordBatch:
    arrays = [columns.get(name, batch.column(name)) for name in DOCUMENT_SCHEMA.names]
    return pa.RecordBatch.from_arrays(arrays, schema=DOCUMENT_SCHEMA)
