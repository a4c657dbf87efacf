"""Step `dedup`: one document of every set of duplicates stays.

Two rounds of tasks, one a partition, and decisions that see only hashes:

1. sketch: the text becomes an exact hash, a signature and sizes; its shingle hashes go to a file beside (about as
   many bytes as the text has, removed at the end), so that no text is read twice;
2. here: equal hashes and bands give candidate pairs;
3. shingles: the shingle sets of the candidates, sorted;
4. here: exact similarity, clusters, keepers (`filters.text.dedup.decide`);
5. one verdict row for each row of documents/part-k.

Documents of `dedup.against` take part as a reference set: they are named as duplicates' keepers and never judged.
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

from filters.text.dedup.bands import Bands, choose_bands
from filters.text.dedup.decide import DUPLICATE_EXACT, DUPLICATE_NEAR, Decision, Members, decide
from filters.text.dedup.sketch import distinct, normalise, scheme_tag, sketch
from filters.text.dedup.tables import profile_of_domain
from filters.text.dedup.verify import ShingleSets
from pipelines.context import RunContext, StepOutput
from pipelines.corpus.dedup_files import (
    ShingleStore,
    SketchTable,
    SketchWriter,
    open_hashes,
    read_sketches,
    write_shingles,
)
from pipelines.corpus.plain import plain_files, plain_records
from pipelines.corpus.read.records import Problem
from pipelines.corpus.tables import VERDICT_SCHEMAS, iterate_documents, read_verdicts, verdict_part, write_part
from schemas.document import KEEP
from schemas.errors import InputError
from schemas.files import atomic_path

__all__ = ["GIANT_CLUSTER", "LARGE_SHARE", "step"]

LARGE_SHARE = 0.5  # a source that loses more than this share of its documents gets a warning
GIANT_CLUSTER = 1000  # documents; a larger cluster gets a warning: templates and mirrors look like that
_REFERENCE = "reference"
_BATCH_ROWS = 4096


@dataclass(frozen=True, slots=True)
class DedupTask:
    """One file of documents to sketch or to shingle: partition `part` of the run, or a reference file."""

    run: str
    part: int
    reference: str | None
    folder: str
    shingle_words: int
    permutations: int

    def sketches(self) -> Path:
        """Where the sketches go."""
        return Path(self.folder, f"sketches-{self._name()}.arrow")

    def hashes(self) -> Path:
        """Where the shingle hashes of all documents go, as raw 64-bit values in the order of the sketches."""
        return Path(self.folder, f"hashes-{self._name()}.u64")

    def wanted(self) -> Path:
        """Which sketches are candidates: for each, where its hashes begin and end (numpy array)."""
        return Path(self.folder, f"candidates-{self._name()}.npy")

    def shingles(self) -> Path:
        """Where the shingle sets of the candidates go."""
        return Path(self.folder, f"shingles-{self._name()}.arrow")

    def _name(self) -> str:
        return f"{'part' if self.reference is None else _REFERENCE}-{self.part:05d}"


def step(context: RunContext) -> StepOutput:
    """Write verdicts/dedup/part-k.parquet for every partition.

    Raises UsageError for an `against` path that is not there, InputError for reference records without text.
    Memory: about 700 bytes a document and 50 a candidate pair, whatever the texts are.
    """
    config = context.recipe.dedup
    folder = context.run / "spill" / "dedup"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    tasks = _tasks(context, folder)
    bands = choose_bands(config.threshold, config.permutations)
    context.progress.say(f"dedup: {bands.describe()}")
    try:
        results = context.engine.map(sketch_task, tasks, label="dedup: sketch", progress=context.progress)
        scheme = scheme_tag(config.permutations, config.shingle_words)
        table = read_sketches([task.sketches() for task in tasks], [r["documents"] for r in results], scheme)
        decision = _decide(context, tasks, table, bands)
        files = _write_verdicts(context, tasks, table, decision)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if folder.parent.is_dir() and not any(folder.parent.iterdir()):
            folder.parent.rmdir()
    return StepOutput(files, _counts(context, tasks, table, decision, bands))


def _tasks(context: RunContext, folder: Path) -> list[DedupTask]:
    config = context.recipe.dedup

    def task(part: int, reference: str | None) -> DedupTask:
        run = str(context.run)
        return DedupTask(run, part, reference, str(folder), config.shingle_words, config.permutations)

    tasks = [task(part, None) for part in range(context.recipe.engine.partitions)]
    if config.against is not None:
        files = plain_files(config.against, "dedup.against")
        tasks += [task(number, str(path)) for number, path in enumerate(files)]
    return tasks


@dataclass(frozen=True, slots=True)
class _Batch:
    """Documents of one batch that take part; all of the same length."""

    rows: npt.NDArray[np.int64]
    ids: pa.Array
    texts: pa.Array
    sources: pa.Array
    qualities: pa.Array
    profiles: npt.NDArray[np.uint8]


def _batches(task: DedupTask) -> Iterator[_Batch]:
    """The documents of a task, in order, text included."""
    if task.reference is not None:
        yield from _reference_batches(task.reference)
        return
    quality = read_verdicts(task.run, "quality", task.part, ["quality"]).column("quality")
    columns = ["id", "text", "source", "source_domain"]
    for first, batch, alive in iterate_documents(task.run, task.part, columns, after=("quality",), rows=_BATCH_ROWS):
        rows = np.flatnonzero(alive)
        if not len(rows):
            continue
        chosen = batch if len(rows) == batch.num_rows else batch.filter(pa.array(alive))
        domains = chosen.column("source_domain").to_pylist()
        yield _Batch(
            rows=rows + first,
            ids=chosen.column("id"),
            texts=chosen.column("text"),
            sources=chosen.column("source"),
            qualities=quality.take(pa.array(rows + first)).combine_chunks(),
            profiles=np.array([profile_of_domain(domain) for domain in domains], np.uint8),
        )


def _reference_batches(path: str) -> Iterator[_Batch]:
    """Records of a reference file: `text` (a string), `id` when there is one, else path#row."""
    texts: list[str] = []
    ids: list[str] = []
    domains: list[str | None] = []
    first = 0

    def batch() -> _Batch:
        return _Batch(
            rows=np.arange(first, first + len(texts), dtype=np.int64),
            ids=pa.array(ids, pa.string()),
            texts=pa.array([t.encode("utf-8", "surrogatepass") for t in texts], pa.large_binary()).cast(
                pa.large_string(), safe=False
            ),
            sources=pa.array([_REFERENCE] * len(texts), pa.string()),
            qualities=pa.nulls(len(texts), pa.float32()),
            profiles=np.array([profile_of_domain(domain) for domain in domains], np.uint8),
        )

    for record in plain_records(path):
        if isinstance(record, Problem):
            raise record.error()
        text = record.fields.get("text")
        if not isinstance(text, str):
            raise InputError(
                f"a reference record needs a string here, received {type(text).__name__}",
                path=path,
                line=record.line,
                field="text",
                todo="Give dedup.against a jsonl or parquet file with a column 'text'",
            )
        texts.append(text)
        ids.append(str(record.fields.get("id") or f"{path}#{record.line}"))
        domain = record.fields.get("source_domain") or record.fields.get("domain")
        domains.append(domain if isinstance(domain, str) else None)
        if len(texts) == _BATCH_ROWS:
            yield batch()
            first += len(texts)
            texts, ids, domains = [], [], []
    if texts:
        yield batch()


def sketch_task(task: DedupTask) -> dict[str, Any]:
    """Sketch the documents of one file. Memory: one row group of text, and the sketches of the file."""
    writer = SketchWriter(scheme_tag(task.permutations, task.shingle_words))
    with atomic_path(task.hashes()) as temporary, open(temporary, "wb") as sink:
        for batch in _batches(task):
            found = sketch(
                normalise(batch.texts),
                batch.profiles,
                shingle_words=task.shingle_words,
                permutations=task.permutations,
            )
            writer.add(batch.rows, batch.ids, batch.sources, batch.qualities, found)
            if found.hashes is not None:
                sink.write(found.hashes.data)
    return {"documents": writer.write(task.sketches())}


def shingle_task(task: DedupTask) -> dict[str, Any]:
    """Write the shingle sets of the candidates of one file. Memory: one group of candidates."""
    wanted = np.load(task.wanted(), allow_pickle=False)
    hashes = open_hashes(task.hashes(), int(wanted[-1, 2]))

    def batches() -> Iterator[tuple[npt.NDArray[np.int64], ShingleSets]]:
        for first in range(0, len(wanted) - 1, _BATCH_ROWS):
            spans = wanted[first : min(first + _BATCH_ROWS, len(wanted) - 1)]
            sets = [distinct(hashes[start:end]) for _, start, end in spans.tolist()]
            yield np.ascontiguousarray(spans[:, 0]), ShingleSets.of(sets)

    return {"documents": write_shingles(task.shingles(), batches())}


def _decide(context: RunContext, tasks: Sequence[DedupTask], table: SketchTable, bands: Bands) -> Decision:
    """Find, measure and unite: `filters.text.dedup.decide` with similarities measured from re-read texts."""
    fixed = np.array([task.reference is not None for task in tasks], bool)[table.parts]
    ids = np.array([b"" if f else i.encode() for f, i in zip(fixed, table.ids.to_pylist(), strict=True)], np.bytes_)
    stores: list[ShingleStore] = []

    def similarities(pairs: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        if not stores:
            stores.append(_shingle_store(context, tasks, table, np.unique(pairs)))
        return stores[0].similarities(pairs)

    members = Members(ids, table.qualities, fixed if fixed.any() else None)
    return decide(table.sketches, members, bands, similarities)


def _shingle_store(
    context: RunContext, tasks: Sequence[DedupTask], table: SketchTable, candidates: npt.NDArray[np.int64]
) -> ShingleStore:
    """Shingle sets of the candidate documents (indexes into `table`), made by the tasks whose files hold them."""
    concerned: list[tuple[DedupTask, npt.NDArray[np.int64]]] = []
    edges = np.concatenate([[0], np.cumsum(table.sketches.shingles)])
    for part in np.unique(table.parts[candidates]):
        here = candidates[table.parts[candidates] == part]
        first, last = np.searchsorted(table.parts, [part, part + 1])
        spans = np.stack([table.rows[here], edges[here] - edges[first], edges[here + 1] - edges[first]], axis=1)
        whole = np.array([[-1, 0, edges[last] - edges[first]]])  # the last row says how many hashes there must be
        np.save(tasks[part].wanted(), np.concatenate([spans, whole]), allow_pickle=False)
        concerned.append((tasks[part], here))
    context.engine.map(
        shingle_task, [task for task, _ in concerned], label="dedup: check candidates", progress=context.progress
    )
    store = ShingleStore()
    for task, here in concerned:
        store.add(task.shingles(), here)
    return store


def _write_verdicts(
    context: RunContext, tasks: Sequence[DedupTask], table: SketchTable, decision: Decision
) -> list[Path]:
    """Row-aligned verdict files. Rows dropped before dedup have a null verdict."""
    removed = decision.removed
    files: list[Path] = []
    schema = VERDICT_SCHEMAS["dedup"]
    for number, task in enumerate(tasks):
        if task.reference is not None:
            continue
        every = read_verdicts(task.run, "quality", task.part, ["id"]).column("id")
        here = np.flatnonzero(table.parts == number)
        rows = table.rows[here]
        verdict = np.full(len(every), None, object)
        verdict[rows] = np.where(removed[here], np.where(decision.exact[here], DUPLICATE_EXACT, DUPLICATE_NEAR), KEEP)
        names = table.ids.take(pa.array(decision.keeper[here])).to_numpy(zero_copy_only=False)
        cluster = np.full(len(every), None, object)
        cluster[rows] = np.where(decision.clustered[here], names, None)
        kept_by = np.full(len(every), None, object)
        kept_by[rows] = np.where(removed[here], names, None)
        similarity = np.full(len(every), np.nan, np.float32)
        similarity[rows] = np.where(removed[here], decision.similarity[here], np.nan)
        batch = pa.record_batch(
            [
                every.combine_chunks(),
                pa.array(verdict, pa.string()),
                pa.array(cluster, pa.string()),
                pa.array(similarity, pa.float32(), from_pandas=True),
                pa.array(kept_by, pa.string()),
            ],
            schema=schema,
        )
        path = verdict_part(task.run, "dedup", task.part)
        write_part(path, schema, [batch])
        files.append(path)
    return files


def _counts(
    context: RunContext, tasks: Sequence[DedupTask], table: SketchTable, decision: Decision, bands: Bands
) -> dict[str, Any]:
    """Figures for the manifest, and warnings for what looks wrong."""
    own = np.array([task.reference is None for task in tasks], bool)[table.parts]
    removed = decision.removed & own
    exact = int(np.count_nonzero(removed & decision.exact))
    clusters = decision.clusters()
    largest = int(clusters[0]) if len(clusters) else 0
    if largest > GIANT_CLUSTER:
        context.progress.say(
            f"dedup: warning: {int(np.count_nonzero(clusters > GIANT_CLUSTER))} clusters have more than "
            f"{GIANT_CLUSTER} documents, the largest {largest}: look at one with 'cluster' before you trust it"
        )
    by_source = _by_source(table, own, removed)
    for source, figures in by_source.items():
        if figures["removed_share"] > LARGE_SHARE:
            context.progress.say(
                f"dedup: warning: source '{source}' loses {figures['removed']} of {figures['documents']} documents "
                f"({figures['removed_share']:.0%}). Mirrors and templates look like that; so does a wrong text field"
            )
    documents = int(np.count_nonzero(own))
    near = int(np.count_nonzero(removed)) - exact
    return {
        "documents_in": documents,
        "kept": documents - exact - near,
        "dropped": {n: c for n, c in ((DUPLICATE_EXACT, exact), (DUPLICATE_NEAR, near)) if c},
        "clusters": len(clusters),
        "largest_cluster": largest,
        "pairs_candidate": decision.pairs_candidate,
        "pairs_verified": decision.pairs_verified,
        "threshold": bands.threshold,
        "bands": bands.bands,
        "rows": bands.rows,
        "permutations_unused": bands.unused,
        "collision_curve": [list(point) for point in bands.curve()],
        "reference_documents": int(np.count_nonzero(~own)),
        "by_source": by_source,
    }


def _by_source(
    table: SketchTable, own: npt.NDArray[np.bool_], removed: npt.NDArray[np.bool_]
) -> dict[str, dict[str, Any]]:
    """Documents, removed and their share, of every source that loses any."""
    encoded = table.sources.dictionary_encode()
    codes = encoded.indices.to_numpy()
    names = encoded.dictionary.to_pylist()
    total = np.bincount(codes[own], minlength=len(names))
    gone = np.bincount(codes[removed], minlength=len(names))
    return {
        name: {"documents": int(n), "removed": int(r), "removed_share": round(int(r) / int(n), 6)}
        for name, n, r in sorted(zip(names, total, gone, strict=True))
        if r
    }
