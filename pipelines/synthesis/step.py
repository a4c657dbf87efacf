"""Step `synthesize`: roll out the recipe's tasks with scripted teachers, and read its recorded runs.

    corpus/kept/part-k ─► pool.jsonl ─► tasks by ranges of (family, seed) ─► raw/FAMILY-i-k.parquet
    recorded runs of the recipe ───────────────────────────────────────────► raw/recorded-i-k.parquet

Training tasks use seeds below HELDOUT_SEEDS and modules of the pool's training split; evaluation tasks use seeds from
HELDOUT_SEEDS on and the held-out split (about 15 % of the modules, by hash), so no function is in both. Ranges depend
on the recipe alone: the files are the same at every worker count.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.context import RunContext, StepOutput
from pipelines.synthesis.environments.base import Environment, open_environment
from pipelines.synthesis.environments.repair_tasks import target_tokens
from pipelines.synthesis.pool import build_pool
from pipelines.synthesis.replay import replay
from pipelines.synthesis.requests import check_requests
from pipelines.synthesis.rollout import HELDOUT_SEEDS, rollout
from pipelines.synthesis.teacher import open_teacher
from schemas.errors import DatamixError, UsageError
from schemas.files import atomic_path
from schemas.trajectory import TRAJECTORY_SCHEMA, Trajectory

__all__ = ["spread_difficulties", "step", "task_seed", "write_rollouts"]

POOL_FAMILIES = {"repair"}
MAX_STEPS = 3000
RANGE_TOKENS = 150_000.0  # a range of tasks is cut at about as many tokens, so that workers share long work
RANGE_TASKS = 32
LIGHT_RANGE_TASKS = 128  # of a family whose tasks cost milliseconds
REPLAY_EVERY = 8  # seeds divisible by this are replayed, up to this difficulty
REPLAY_DIFFICULTY = 6.0
COUNTED = ("tasks", "trajectories", "solved", "mistakes", "recoveries", "steps")


@dataclass(frozen=True, slots=True)
class _Range:
    """Tasks of one output file: (seed, difficulty) pairs in order."""

    family: str
    tasks: tuple[tuple[int, float], ...]
    mistake_rate: float
    teacher_seed: int
    pool: str
    out: str
    fail: bool


@dataclass(frozen=True, slots=True)
class _Recorded:
    path: str
    format: str
    out: str
    aside: str


def step(context: RunContext) -> StepOutput:
    """Write trajectories/raw and trajectories/set_aside.jsonl.

    Counts: tasks, trajectories, solved, mistakes, recoveries, steps (assistant turns), rejected {reason: n} and the
    same by_family; recorded {files, trajectories, set_aside}; pool (modules, functions, left_out by reason). Raises
    RecipeError for an unknown family and, with `on_error: fail`, the first problem of a task or recorded file.
    """
    recipe, folder = context.recipe, context.run / "trajectories"
    wanted = recipe.trajectories.synthesized
    check_requests(recipe)
    raw = folder / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    files: list[Path] = []
    counts: dict[str, Any] = {}
    families = {config.family for config in wanted} | ({recipe.evaluate.family} if recipe.evaluate.tasks else set())
    pool = folder / "pool.jsonl"
    if families & POOL_FAMILIES:
        counts["pool"] = build_pool(context, pool)
        files.append(pool)
    ranges = list(_ranges(context, raw, pool))
    done = context.engine.map(roll_out_range, ranges, label="synthesize: roll out", progress=context.progress)
    counts |= _added(done)
    files += [Path(task.out) for task in ranges]
    recorded, aside = _recorded(context, raw)
    counts["recorded"] = recorded
    for name, number in sorted(counts["rejected"].items()):
        context.progress.say(
            f"synthesize: {number} tasks gave no trajectory ({name}); see trajectories/set_aside.jsonl"
        )
    files += sorted(path for path in raw.glob("recorded-*.parquet"))
    files.append(_merge_aside(folder / "set_aside.jsonl", [row for result in done for row in result["aside"]], aside))
    return StepOutput(files, counts)


def spread_difficulties(n: int, low: float, high: float) -> list[float]:
    """`n` difficulties spread evenly over the closed range, both ends included (one: the lower end)."""
    return [round(low + (high - low) * k / max(1, n - 1), 6) for k in range(n)]


def task_seed(recipe_seed: int, position: int, number: int) -> int:
    """The seed of a training task: below HELDOUT_SEEDS, different for every entry of the recipe and every number."""
    return (recipe_seed * 7919 + position * 10_000_019 + number) % HELDOUT_SEEDS


def _ranges(context: RunContext, raw: Path, pool: Path) -> Iterator[_Range]:
    """The synthesized tasks cut into ranges by their expected length, in order."""
    recipe = context.recipe
    for position, config in enumerate(recipe.trajectories.synthesized):
        tasks = [
            (task_seed(recipe.seed, position, number), difficulty)
            for number, difficulty in enumerate(spread_difficulties(config.n, *config.difficulty))
        ]
        groups: list[list[tuple[int, float]]] = [[]]
        load = 0.0
        for task in tasks:
            cost = target_tokens(task[1]) if config.family in POOL_FAMILIES else 0.0
            most = RANGE_TASKS if config.family in POOL_FAMILIES else LIGHT_RANGE_TASKS
            if groups[-1] and (load + cost > RANGE_TOKENS or len(groups[-1]) >= most):
                groups.append([])
                load = 0.0
            groups[-1].append(task)
            load += cost
        for number, group in enumerate(groups):
            out = raw / f"{config.family}-{position}-{number:05d}.parquet"
            rate, fail = config.mistake_rate, recipe.on_error == "fail"
            yield _Range(config.family, tuple(group), rate, recipe.seed, str(pool), str(out), fail)


def roll_out_range(task: _Range) -> dict[str, Any]:
    """Roll out the tasks of one range and write them to its file; counts and set-aside rows come back."""
    counts: Counter[str] = Counter(dict.fromkeys(COUNTED, 0))
    rejected: Counter[str] = Counter()
    aside: list[dict[str, Any]] = []

    def reject(seed: int, difficulty: float, reason: str, detail: str) -> None:
        if task.fail:
            raise DatamixError(f"{task.family} task with seed {seed}, difficulty {difficulty:g}: {reason}: {detail}")
        rejected[reason] += 1
        aside.append(
            {"family": task.family, "seed": seed, "difficulty": difficulty, "problem": reason, "detail": detail}
        )

    def rolled() -> Iterator[Trajectory]:
        pool = task.pool if task.family in POOL_FAMILIES else None
        with open_environment(task.family, pool_path=pool) as environment:
            for seed, difficulty in task.tasks:
                counts["tasks"] += 1
                trajectory = _one(environment, task, seed, difficulty, reject)
                if trajectory is not None:
                    _count(counts, trajectory)
                    yield trajectory

    write_rollouts(task.out, rolled())
    return {"family": task.family, "counts": dict(counts), "rejected": dict(rejected), "aside": aside}


def _one(
    environment: Environment, task: _Range, seed: int, difficulty: float, reject: Callable[[int, float, str, str], None]
) -> Trajectory | None:
    """One trajectory, or None when the task cannot be made or does not replay."""
    try:
        spec = environment.generate(seed, difficulty)
    except UsageError as error:
        reject(seed, difficulty, "no_task", str(error))
        return None
    teacher = open_teacher(task.family, environment, spec, task.mistake_rate, task.teacher_seed)
    trajectory = rollout(environment, spec, teacher, MAX_STEPS)
    if seed % REPLAY_EVERY == 0 and difficulty <= REPLAY_DIFFICULTY:
        differences = replay(environment, trajectory)
        if differences:
            first = differences[0]
            reject(seed, difficulty, "replay_differs", f"message {first.message}: {first.replayed[:200]}")
            return None
    return trajectory


def _count(counts: Counter[str], trajectory: Trajectory) -> None:
    labels = [message.label or "" for message in trajectory.messages if message.role == "assistant"]
    counts["trajectories"] += 1
    counts["solved"] += trajectory.outcome.success is True
    counts["mistakes"] += sum(label.startswith("mistake") for label in labels)
    counts["recoveries"] += labels.count("recovery")
    counts["steps"] += len(labels)


def write_rollouts(path: str | Path, trajectories: Iterator[Trajectory]) -> int:
    """Write trajectories one by one (each may be megabytes) to a Parquet file, atomically; returns how many."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    written = 0
    with atomic_path(path) as temporary, pq.ParquetWriter(temporary, TRAJECTORY_SCHEMA, compression="zstd") as writer:
        batch: list[Trajectory] = []
        size = 0
        for trajectory in trajectories:
            batch.append(trajectory)
            size += sum(len(message.content) for message in trajectory.messages)
            written += 1
            if size >= 8_000_000:
                writer.write_table(pa.Table.from_pylist([item.to_row() for item in batch], TRAJECTORY_SCHEMA))
                batch, size = [], 0
        if batch:
            writer.write_table(pa.Table.from_pylist([item.to_row() for item in batch], TRAJECTORY_SCHEMA))
    return written


def _added(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Totals over the ranges, and the same for each family."""
    total: Counter[str] = Counter(dict.fromkeys(COUNTED, 0))
    rejected: Counter[str] = Counter()
    families: dict[str, Counter[str]] = {}
    for result in results:
        total.update(result["counts"])
        rejected.update(result["rejected"])
        families.setdefault(result["family"], Counter(dict.fromkeys(COUNTED, 0))).update(result["counts"])
    by_family = {name: dict(families[name]) for name in sorted(families)}
    return {**total, "rejected": dict(sorted(rejected.items())), "by_family": by_family}


def _recorded(context: RunContext, raw: Path) -> tuple[dict[str, int], list[Path]]:
    """Read the recipe's recorded runs, a task for each file: counts and the set-aside files."""
    configs = context.recipe.trajectories.recorded
    totals = {"files": 0, "trajectories": 0, "set_aside": 0}
    if not configs:
        return totals, []
    from pipelines.synthesis.ingest.read import find_files

    tasks = []
    for position, config in enumerate(configs):
        for number, path in enumerate(find_files([config.path])):
            stem = f"recorded-{position}-{number:05d}"
            tasks.append(_Recorded(path, config.format, str(raw / f"{stem}.parquet"), str(raw / f"{stem}.aside")))
    results = context.engine.map(read_recorded, tasks, label="synthesize: recorded runs", progress=context.progress)
    totals = {
        "files": len(tasks),
        "trajectories": sum(r["trajectories"] for r in results),
        "set_aside": sum(r["set_aside"] for r in results),
    }
    if totals["set_aside"] and context.recipe.on_error == "fail":
        with open(
            next(t.aside for t, r in zip(tasks, results, strict=True) if r["set_aside"]), encoding="utf-8"
        ) as handle:
            first = json.loads(handle.readline())
        place = f"{first['path']}: {first['record']}"
        raise DatamixError(f"{place}: {first['problem']}. Mend the file, or set on_error: skip to go on without it")
    return totals, [Path(task.aside) for task in tasks]


def read_recorded(task: _Recorded) -> dict[str, Any]:
    """Read one file of recorded runs; what cannot be read goes to the set-aside file."""
    from pipelines.synthesis.ingest.read import read_file
    from pipelines.synthesis.ingest.store import write_trajectories

    set_aside = 0
    with atomic_path(task.aside) as temporary, open(temporary, "w", encoding="utf-8") as handle:

        def trajectories() -> Iterator[Trajectory]:
            nonlocal set_aside
            for item in read_file(task.path, task.format):
                if isinstance(item, Trajectory):
                    yield item
                else:
                    set_aside += 1
                    handle.write(json.dumps(item.to_row(), ensure_ascii=False) + "\n")

        written = write_trajectories(task.out, trajectories())
    return {"trajectories": written, "set_aside": set_aside}


def _merge_aside(out: Path, rows: Sequence[dict[str, Any]], parts: Sequence[Path]) -> Path:
    """One set-aside file: tasks that gave nothing, then records that could not be read, in order."""
    with atomic_path(out) as temporary, open(temporary, "w", encoding="utf-8") as handle:
        for row in rows:
            handle.write(json.dumps(row, ensure_ascii=False) + "\n")
        for part in parts:
            with open(part, encoding="utf-8") as source:
                shutil.copyfileobj(source, handle)
    for part in parts:
        part.unlink()
    return out
