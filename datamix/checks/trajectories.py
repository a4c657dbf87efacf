"""Recount trajectories: raw = kept + dropped, and nothing is both trained and masked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from datamix.checks.result import CheckResult
from filters.trajectory.splits import piece_id
from schemas.manifest import Manifest
from schemas.progress import Progress

__all__ = ["check_trajectories", "check_trajectory_file"]

_COLUMNS = ["id", "messages"]
PIECE_DEPTH = 2  # a policy splits a trajectory at compactions, then may cut a loop from a piece


def check_trajectories(run: Path, manifests: Mapping[str, Manifest], result: CheckResult, progress: Progress) -> None:
    """Recount the trajectory files of a run and compare with the manifests of synthesize and masks."""
    if "synthesize" not in manifests:
        return
    folders = ["raw", "kept", "dropped"] if "masks" in manifests else ["raw"]
    found: dict[str, Counter[str]] = {}
    for folder in folders:
        found[folder] = Counter()
        files = sorted((run / "trajectories" / folder).glob("*.parquet"))
        with progress.task(f"recounting trajectories/{folder}", len(files)) as advance:
            for path in files:
                name = path.relative_to(run).as_posix()
                if name not in result.damaged():
                    found[folder] += _ids(path, name, result, judged=folder == "kept")
                advance(1)
    result.summary["trajectories"] = {folder: sum(ids.values()) for folder, ids in found.items()}
    if "masks" in manifests and not any(path.startswith("trajectories/") for path in result.damaged()):
        _compare(found, manifests["masks"], result)


def _compare(found: Mapping[str, Counter[str]], masks: Manifest, result: CheckResult) -> None:
    """Every raw trajectory comes out once, as itself or (when the policy split or cut it) as its pieces."""
    out = found["kept"] + found["dropped"]
    changed, new = found["raw"] - out, out - found["raw"]
    lost, added = [], 0
    for parent in sorted(changed.elements()):
        pieces = _take_pieces(parent, new, PIECE_DEPTH)
        added += pieces - 1 if pieces else 0
        lost += [] if pieces else [parent]
    if lost:
        result.fault("trajectories", f"{len(lost)} of raw are neither kept nor dropped, the first is {lost[0]}")
    if +new:
        result.fault("trajectories", f"{new.total()} kept or dropped come from no raw one, the first is {min(+new)}")
    result.equal("manifests/masks.json", "pieces_added", added, masks.counts.get("pieces_added", 0))
    for key, folder in (("trajectories_in", "raw"), ("kept", "kept")):
        if isinstance(masks.counts.get(key), int):
            result.equal("manifests/masks.json", key, sum(found[folder].values()), masks.counts[key])
    dropped = masks.counts.get("dropped")
    if isinstance(dropped, dict):
        result.equal("manifests/masks.json", "dropped", sum(found["dropped"].values()), sum(dropped.values()))


def _take_pieces(parent: str, new: Counter[str], depth: int) -> int:
    """Take the pieces of `parent` out of `new`, pieces of pieces too; returns how many there were."""
    taken = number = 0
    while True:
        piece = piece_id(parent, number)
        if new[piece]:
            new[piece] -= 1
            found = 1
        else:
            found = _take_pieces(piece, new, depth - 1) if depth > 1 else 0
        if not found:
            return taken
        taken += found
        number += 1


def check_trajectory_file(path: Path, result: CheckResult) -> None:
    """One trajectory file on its own."""
    ids = _ids(path, path.name, result, judged=False)
    doubled = sorted(record for record, times in ids.items() if times > 1)
    if doubled:
        result.fault(path.name, f"{len(doubled)} ids occur twice, the first is {doubled[0]}")
    result.summary["trajectories"] = sum(ids.values())


def _ids(path: Path, name: str, result: CheckResult, *, judged: bool) -> Counter[str]:
    """Ids of a file, each row's messages looked at on the way; a fault when the file cannot be read."""
    ids: Counter[str] = Counter()
    try:
        for row, record in enumerate(_rows(path), start=1):
            ids[record["id"]] += 1
            problem = _message_fault(record["messages"] or [], judged=judged)
            if problem:
                result.fault(name, f"row {row}: {problem}")
    except (OSError, pa.ArrowException, ValueError, KeyError) as error:
        result.fault(name, f"cannot be read as trajectories ({error})")
    return ids


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    for batch in pq.ParquetFile(path).iter_batches(batch_size=16, columns=_COLUMNS):
        yield from batch.to_pylist()


def _message_fault(messages: list[dict[str, Any]], *, judged: bool) -> str | None:
    """What is wrong with the messages' roles and masks, or None."""
    if not messages:
        return "no messages"
    for number, message in enumerate(messages):
        role, train = message["role"], message["train"]
        if role not in ("system", "user", "assistant", "tool"):
            return f"message {number}: role {role!r} is none of system, user, assistant, tool"
        if train and role != "assistant":
            return f"message {number}: a {role} message is marked as trained"
        if train and message["mask_reasons"]:
            return f"message {number}: trained, though masked for {message['mask_reasons'][0]}"
        if judged and role == "assistant":
            if train is None:
                return f"message {number}: an assistant turn without a decision whether it is trained"
            if not train and not message["mask_reasons"]:
                return f"message {number}: an assistant turn that is not trained gives no reason"
    return None
