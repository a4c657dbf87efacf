"""Runs of one task that add nothing (R16): nearly the same actions as a better run, or more runs than wanted.

Runs are compared by a bottom-k sketch of their calls: the 128 smallest 64-bit hashes of consecutive pairs of calls
(tool and arguments; the first call pairs with the start). Up to 128 distinct pairs the Jaccard similarity is exact,
beyond that it is the k-minimum-values estimate (Beyer et al. 2007), with a standard error below 0.02 at 0.95.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import xxhash

from filters.trajectory.view import view_of
from schemas.trajectory import Trajectory

__all__ = ["RunSketch", "similarity", "sketch_of", "surplus_runs"]

SKETCH_SIZE = 128
_RANK = {True: 0, None: 1, False: 2}


@dataclass(frozen=True, slots=True)
class RunSketch:
    """One run: `task` is "" when unknown; `pairs` are the sketch, sorted; `calls` is how many calls it made."""

    id: str
    task: str
    success: bool | None
    errors: int
    calls: int
    pairs: tuple[int, ...]


def sketch_of(trajectory: Trajectory) -> RunSketch:
    """The sketch of a run. Pieces of a split run have no task: they are parts of one run, not runs of one task."""
    steps = view_of(trajectory).steps
    pairs: set[int] = set()
    before = ""
    for step in steps:
        pairs.add(xxhash.xxh3_64_intdigest(f"{before}\1{step.key}".encode("utf-8", "surrogatepass")))
        before = step.key
    whole = trajectory.task.id and not any(flag.startswith("split:") for flag in trajectory.flags)
    task = f"{trajectory.source}\0{trajectory.task.id}" if whole else ""
    return RunSketch(
        trajectory.id,
        task,
        trajectory.outcome.success,
        trajectory.stats.errors,
        len(steps),
        tuple(sorted(pairs)[:SKETCH_SIZE]),
    )


def similarity(one: RunSketch, other: RunSketch) -> float:
    """Jaccard similarity of two runs' pairs of calls (estimated beyond 128 pairs); 0 when either made no call."""
    a, b = set(one.pairs), set(other.pairs)
    if not a or not b:
        return 0.0
    size = SKETCH_SIZE if max(len(a), len(b)) == SKETCH_SIZE else len(a | b)
    smallest = sorted(a | b)[:size]
    return sum(1 for value in smallest if value in a and value in b) / len(smallest)


def surplus_runs(runs: Iterable[RunSketch], *, near_equal: float, least_calls: int, runs_a_task: int) -> dict[str, str]:
    """{id: reason} of runs to drop: "R16:near_equal" or "R16:runs_a_task".

    Of one task's runs the better stays: success before unknown before failure, then fewer errors, then the smaller
    id. `near_equal` 0 and `runs_a_task` 0 switch that part off; runs of fewer than `least_calls` calls are not
    compared, for they are alike by nature. Cost: quadratic in the kept runs of one task.
    """
    by_task: dict[str, list[RunSketch]] = {}
    for run in runs:
        if run.task:
            by_task.setdefault(run.task, []).append(run)
    surplus: dict[str, str] = {}
    for group in by_task.values():
        kept: list[RunSketch] = []
        for run in sorted(group, key=lambda run: (_RANK[run.success], run.errors, run.id)):
            comparable = near_equal > 0 and run.calls >= least_calls
            if comparable and any(similarity(run, other) >= near_equal for other in kept):
                surplus[run.id] = "R16:near_equal"
            elif runs_a_task and len(kept) >= runs_a_task:
                surplus[run.id] = "R16:runs_a_task"
            else:
                kept.append(run)
    return surplus
