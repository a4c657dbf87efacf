"""Recount the corpus half of a run: no document lost or doubled between read and mixture, tokens neither.

Everything is counted again from the Parquet files, partition by partition; memory is bounded by a partition's ids.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from datamix.checks.mixture import check_mixture
from datamix.checks.result import CheckResult
from pipelines.corpus.tables import JUDGES, corpus_part, documents_part, part_name, verdict_part
from schemas.document import KEEP, partition_of
from schemas.manifest import Manifest
from schemas.progress import Progress

__all__ = ["check_corpus"]

_OWN = ("documents/", "set_aside/", "verdicts/", "corpus/", "mixture/")  # what is recounted here


class _Counts:
    """Sums over partitions."""

    def __init__(self) -> None:
        self.documents = self.kept = self.dropped = self.classified = 0
        self.alive: Counter[str] = Counter()  # step: documents that it was given
        self.by_step: dict[str, Counter[str]] = {step: Counter() for step in JUDGES}
        self.mixture_tokens = 0


def check_corpus(
    run: Path, manifests: Mapping[str, Manifest], partitions: int, result: CheckResult, progress: Progress
) -> None:
    """Recount documents, verdicts, the joined corpus and the mixture of a run whose `read` step is done."""
    counts = _Counts()
    damaged = {path for path in result.damaged() if path.startswith(_OWN)}
    with progress.task("recounting documents", partitions) as advance:
        for part in range(partitions):
            _check_part(run, part, partitions, manifests, counts, result, damaged)
            advance(1)
    if damaged:
        return  # sums over damaged files would only repeat their faults
    _compare(counts, run, manifests, result)
    if "reweight" in manifests:
        check_mixture(run, result)
    dropped = {step: dict(sorted(found.items())) for step, found in counts.by_step.items() if found}
    kept = counts.documents - sum(sum(reasons.values()) for reasons in dropped.values())
    result.summary["documents"] = {"read": counts.documents, "kept": kept, "dropped": dropped}


def _check_part(
    run: Path,
    part: int,
    partitions: int,
    manifests: Mapping[str, Manifest],
    counts: _Counts,
    result: CheckResult,
    damaged: set[str],
) -> None:
    documents = _read(run, documents_part(run, part), ["id", "origin"], result, damaged)
    if documents is None:
        return
    ids = documents.column("id")
    name = documents_part(run, part).relative_to(run).as_posix()
    counts.documents += len(ids)
    _check_order(documents, part, partitions, name, result)
    reasons = [KEEP] * len(ids)
    for step in JUDGES:
        if step not in manifests:
            return
        table = _aligned(run, verdict_part(run, step, part), ["id", "verdict"], ids, result, damaged)
        if table is None:
            return
        _apply_verdicts(
            step, table.column("verdict").to_pylist(), reasons, counts, verdict_part(run, step, part), result
        )
    if "classify" in manifests:
        table = _aligned(run, verdict_part(run, "classify", part), ["id", "domain"], ids, result, damaged)
        counts.classified += 0 if table is None else len(table) - table.column("domain").null_count
    if "corpus" in manifests:
        _check_joined(run, part, ids, reasons, "reweight" in manifests, counts, result, damaged)


def _check_order(documents: pa.Table, part: int, partitions: int, name: str, result: CheckResult) -> None:
    """Sorted by (id, origin), no row twice, every id in its own partition."""
    rows = list(zip(documents.column("id").to_pylist(), documents.column("origin").to_pylist(), strict=True))
    for position in range(1, len(rows)):
        if rows[position - 1] >= rows[position]:
            result.fault(name, f"row {position + 1}: not sorted by (id, origin), or a row twice")
            break
    for position, (record_id, _) in enumerate(rows):
        if partition_of(record_id, partitions) != part:
            result.fault(name, f"row {position + 1}: id {record_id} belongs to another partition")
            break


def _apply_verdicts(
    step: str, verdicts: list[str | None], reasons: list[str], counts: _Counts, path: Path, result: CheckResult
) -> None:
    """A document dropped before has no verdict, every other has one; remember the reason of the drop."""
    name = f"{path.parent.parent.name}/{path.parent.name}/{path.name}"
    for position, verdict in enumerate(verdicts):
        if reasons[position] != KEEP:
            if verdict is not None:
                result.fault(name, f"row {position + 1}: judged, though an earlier step dropped it")
                return
            continue
        counts.alive[step] += 1
        if verdict is None:
            result.fault(name, f"row {position + 1}: no verdict, though no earlier step dropped it")
            return
        if verdict != KEEP:
            reasons[position] = verdict
            counts.by_step[step][verdict] += 1


def _check_joined(
    run: Path,
    part: int,
    ids: pa.ChunkedArray,
    reasons: list[str],
    mixed: bool,
    counts: _Counts,
    result: CheckResult,
    damaged: set[str],
) -> None:
    """corpus/kept and corpus/dropped hold exactly the documents, in order, each with its verdict."""
    known = ids.to_pylist()
    expected = {
        "kept": [(i, r) for i, r in zip(known, reasons, strict=True) if r == KEEP],
        "dropped": [(i, r) for i, r in zip(known, reasons, strict=True) if r != KEEP],
    }
    for kind, rows in expected.items():
        path = corpus_part(run, kind, part)
        table = _read(run, path, ["id", "verdict"], result, damaged)
        if table is None:
            return
        found = list(zip(table.column("id").to_pylist(), table.column("verdict").to_pylist(), strict=True))
        if found != rows:
            result.fault(
                path.relative_to(run).as_posix(),
                f"{len(found)} documents, but the verdicts give {len(rows)} or others, or other reasons",
            )
    counts.kept += len(expected["kept"])
    counts.dropped += len(expected["dropped"])
    if mixed:
        kept_ids = pa.chunked_array([pa.array([i for i, _ in expected["kept"]], pa.string())])
        mixture = _aligned(
            run, run / "mixture" / part_name(part), ["id", "tokens", "split", "epochs"], kept_ids, result, damaged
        )
        if mixture is not None:
            counts.mixture_tokens += pc.sum(mixture.column("tokens")).as_py() or 0
            unused = pc.is_in(mixture.column("split"), value_set=pa.array(["heldout", "unused"]))
            used = pc.and_(unused, pc.greater(mixture.column("epochs"), 0))
            if pc.any(used).as_py():
                result.fault(f"mixture/{part_name(part)}", "a held-out or unused document has epochs above 0")


def _compare(counts: _Counts, run: Path, manifests: Mapping[str, Manifest], result: CheckResult) -> None:
    """The recounted sums against what the manifests say."""
    for step in JUDGES:
        if step not in manifests:
            continue
        said = manifests[step].counts
        name = f"manifests/{step}.json"
        dropped = dict(sorted(counts.by_step[step].items()))
        result.equal(name, "documents_in", counts.alive[step], said.get("documents_in"))
        result.equal(name, "kept", counts.alive[step] - sum(dropped.values()), said.get("kept"))
        result.equal(name, "dropped", dropped, {k: v for k, v in said.get("dropped", {}).items() if v})
    if "corpus" in manifests:
        result.equal("corpus", "kept + dropped", counts.kept + counts.dropped, counts.documents)
    if "read" in manifests:
        set_aside = run / "set_aside" / "read.jsonl"
        lines = sum(1 for _ in set_aside.open("rb")) if set_aside.exists() else 0
        said_read = manifests["read"].counts
        result.equal("manifests/read.json", "documents", counts.documents, said_read.get("documents"))
        result.equal("set_aside/read.jsonl", "records set aside", lines, sum(said_read.get("set_aside", {}).values()))
        result.equal(
            "manifests/read.json", "documents + set aside", counts.documents + lines, said_read.get("records_in")
        )


def _read(run: Path, path: Path, columns: list[str], result: CheckResult, damaged: set[str]) -> pa.Table | None:
    name = path.relative_to(run).as_posix()
    if name in damaged:
        return None
    try:
        return pq.read_table(path, columns=columns, partitioning=None)
    except (OSError, pa.ArrowException, ValueError) as error:
        result.fault(name, f"cannot be read as Parquet with columns {', '.join(columns)} ({error})")
        damaged.add(name)
        return None


def _aligned(
    run: Path, path: Path, columns: list[str], ids: pa.ChunkedArray, result: CheckResult, damaged: set[str]
) -> pa.Table | None:
    """A table whose ids are exactly `ids`, row by row; a fault and None when they are not."""
    table = _read(run, path, columns, result, damaged)
    if table is None:
        return None
    if not table.column("id").combine_chunks().equals(ids.combine_chunks()):
        name = path.relative_to(run).as_posix()
        result.fault(name, f"its {len(table)} ids are not those of the {len(ids)} documents it belongs to, row by row")
        damaged.add(name)
        return None
    return table
