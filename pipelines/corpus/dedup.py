"""Step `dedup`: one document of every set of duplicates stays.

Two rounds of tasks, one a partition, and decisions that see only hashes:

1. sketch: the text becomes an exact hash, a signature and sizes; its shingle hashes go to a file beside (about half
   as many bytes as the text has, removed at the end), so that no text is read twice;
2. here: equal hashes and bands give candidate pairs;
3. shingles: the shingle sets of the candidates, sorted;
4. here: exact similarity, clusters, keepers (`filters.text.dedup.decide`);
5. one verdict row for each row of documents/part-k.

Documents of `dedup.against` take part as a reference set: they are named as duplicates' keepers and never judged.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from filters.text.dedup.bands import Bands, choose_bands
from filters.text.dedup.decide import DUPLICATE_EXACT, DUPLICATE_NEAR, Decision, Members, decide
from filters.text.dedup.sketch import scheme_tag
from pipelines.context import RunContext, StepOutput
from pipelines.corpus.dedup_files import ShingleStore, SketchTable, read_sketches
from pipelines.corpus.dedup_tasks import DedupTask, shingle_task, sketch_task
from pipelines.corpus.plain import plain_files
from pipelines.corpus.signatures import apply_signatures
from pipelines.corpus.tables import VERDICT_SCHEMAS, read_verdicts, verdict_part, write_part
from schemas.document import KEEP

__all__ = [
    "bands_of",
    "decide_tasks",
    "dedup_counts",
    "id_bytes",
    "reference_tasks",
    "sketches_of",
    "step",
]


def step(context: RunContext) -> StepOutput:
    """Write verdicts/dedup/part-k.parquet for every partition.

    Raises UsageError for an `against` path that is not there, InputError for reference records without text.
    Memory: about 2 KB a document and 50 bytes a candidate pair, whatever the texts are.
    """
    folder = context.run / "spill" / "dedup"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    tasks = _tasks(context, folder)
    bands = bands_of(context)
    try:
        results = context.engine.map(sketch_task, tasks, label="dedup: sketch", progress=context.progress)
        table = sketches_of(context, tasks, results)
        decision = decide_tasks(context, tasks, table, bands)
        files = _write_verdicts(context, tasks, table, decision)
        config, by_signature = context.recipe.dedup, {}
        if config.against_signatures is not None or config.signatures_out is not None:
            by_signature = apply_signatures(context, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if folder.parent.is_dir() and not any(folder.parent.iterdir()):
            folder.parent.rmdir()
    counts = dedup_counts(context, tasks, table, decision, bands)
    counts["kept"] -= sum(by_signature.values())
    counts["dropped"] |= by_signature
    return StepOutput(files, counts)


def bands_of(context: RunContext) -> Bands:
    """The bands for the recipe's threshold; says which they are and what they find."""
    bands = choose_bands(context.recipe.dedup.threshold, context.recipe.dedup.permutations)
    context.progress.say(f"dedup: {bands.describe()}")
    return bands


def sketches_of(context: RunContext, tasks: Sequence[DedupTask], results: Sequence[dict[str, Any]]) -> SketchTable:
    """What the tasks sketched, together."""
    scheme = scheme_tag(context.recipe.dedup.permutations, context.recipe.dedup.shingle_words)
    return read_sketches([task.sketches() for task in tasks], [r["documents"] for r in results], scheme)


def _tasks(context: RunContext, folder: Path) -> list[DedupTask]:
    config, run = context.recipe.dedup, str(context.run)
    partitions = range(context.recipe.engine.partitions)
    tasks = [DedupTask(run, part, None, str(folder), config.shingle_words, config.permutations) for part in partitions]
    return tasks + reference_tasks(context, folder)


def reference_tasks(context: RunContext, folder: Path) -> list[DedupTask]:
    """A task for every file of `dedup.against`."""
    config, run = context.recipe.dedup, str(context.run)
    files = plain_files(config.against, "dedup.against") if config.against is not None else []
    return [
        DedupTask(run, number, str(path), str(folder), config.shingle_words, config.permutations)
        for number, path in enumerate(files)
    ]


def decide_tasks(
    context: RunContext,
    tasks: Sequence[DedupTask],
    table: SketchTable,
    bands: Bands,
    order: npt.NDArray[np.int64] | None = None,
) -> Decision:
    """Find, measure and unite: `filters.text.dedup.decide` with similarities measured from the tasks' shingles.

    Documents are compared in the order of the table, or of `order` (its row numbers); the decision is in the table's.
    """
    fixed = np.array([task.reference is not None for task in tasks], bool)[table.parts]
    ids = id_bytes(table.ids, fixed)
    stores: list[ShingleStore] = []

    def similarities(pairs: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        pairs = pairs if order is None else order[pairs]
        if not stores:
            stores.append(_shingle_store(context, tasks, table, np.unique(pairs)))
        return stores[0].similarities(pairs)

    members = Members(ids, table.qualities, fixed if fixed.any() else None)
    most = context.recipe.dedup.largest_cluster
    if order is None:
        return decide(table.sketches, members, bands, similarities, largest_cluster=most)
    sketches = table.sketches.taken(order)
    return decide(sketches, members.taken(order), bands, similarities, largest_cluster=most).given_back(order)


def id_bytes(ids: pa.Array, fixed: npt.NDArray[np.bool_]) -> npt.NDArray[np.bytes_]:
    """Ids as bytes, for comparing; those of a reference set play no role. Shape (n,)."""
    whole = ids.cast(pa.large_string())
    _, offsets, data = whole.buffers()
    if len(ids) and not fixed.any() and whole.offset == 0:
        bounds = np.frombuffer(offsets, np.int64, len(ids) + 1)
        if (np.diff(bounds) == 32).all():  # as document ids are: no Python objects for millions of them
            return np.frombuffer(data, "S32", len(ids), int(bounds[0]))
    return np.array([b"" if f else i.encode() for f, i in zip(fixed, ids.to_pylist(), strict=True)], np.bytes_)


def _shingle_store(
    context: RunContext, tasks: Sequence[DedupTask], table: SketchTable, candidates: npt.NDArray[np.int64]
) -> ShingleStore:
    """Shingle sets of the candidate documents (indexes into `table`), made by the tasks whose files hold them."""
    concerned: list[tuple[DedupTask, npt.NDArray[np.int64]]] = []
    edges = np.concatenate([[0], np.cumsum(table.sketches.shingles)])
    for part in np.unique(table.parts[candidates]):
        first, last = np.searchsorted(table.parts, [part, part + 1])
        here = candidates[slice(*np.searchsorted(candidates, [first, last]))]
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
        here = np.arange(*np.searchsorted(table.parts, [number, number + 1]))
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


def dedup_counts(
    context: RunContext, tasks: Sequence[DedupTask], table: SketchTable, decision: Decision, bands: Bands
) -> dict[str, Any]:
    """Figures for the manifest, and warnings for what looks wrong."""
    own = np.array([task.reference is None for task in tasks], bool)[table.parts]
    removed = decision.removed & own
    exact = int(np.count_nonzero(removed & decision.exact))
    clusters = decision.clusters()
    largest = int(clusters[0]) if len(clusters) else 0
    config = context.recipe.dedup
    if decision.giant:
        context.progress.say(
            f"dedup: warning: {decision.giant} clusters have more than {config.largest_cluster} documents. Templates "
            f"and mirrors look like that: {decision.spared} documents that are similar by way of others only were "
            "kept. Look at one with 'cluster', or set dedup.largest_cluster"
        )
    by_source = _by_source(table, own, removed)
    for source, figures in by_source.items():
        if figures["removed_share"] > config.warn_share:
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
        "spared_in_giant_clusters": decision.spared,
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
