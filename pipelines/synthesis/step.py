"""Step `synthesize`: roll out the recipe's tasks with their teachers, and read its recorded runs.

    corpus/kept/part-k ─► pools ─► tasks by ranges of (family, seed) ─► raw/FAMILY-i-k.parquet
    recorded runs of the recipe ────────────────────────────────────────► raw/recorded-i-k.parquet

Training tasks use seeds below HELDOUT_SEEDS and the training split of the pools; evaluation tasks use seeds from
HELDOUT_SEEDS on and the held-out split (about 15 % of the modules, by hash), so no function is in both. Ranges depend
on the recipe alone: the files are the same at every worker count.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.context import RunContext, StepOutput
from pipelines.synthesis.environments.base import environment_class
from pipelines.synthesis.pools.build import build_pools, pool_place
from pipelines.synthesis.ranges import TaskRange, add_counts, cut_ranges, roll_out_range
from pipelines.synthesis.requests import check_requests
from pipelines.synthesis.sandbox import Sandbox
from pipelines.synthesis.sandbox.bubblewrap import bubblewrap_program
from pipelines.synthesis.sandbox.folders import remove_leftovers
from schemas.errors import DatamixError
from schemas.files import atomic_path
from schemas.recipe import Recipe
from schemas.trajectory import Trajectory

__all__ = ["Rolled", "roll_out", "step"]


@dataclass(frozen=True, slots=True)
class _Recorded:
    path: str
    format: str
    out: str
    aside: str


@dataclass(frozen=True, slots=True)
class Rolled:
    """What the recipe's tasks gave: files, the step's counts, set-aside rows, and what each endpoint was asked."""

    files: list[Path]
    counts: dict[str, Any]
    aside: list[dict[str, Any]]
    usage: list[dict[str, Any]]


def step(context: RunContext) -> StepOutput:
    """Write trajectories/raw and trajectories/set_aside.jsonl.

    Counts: those of `roll_out`, and recorded {files, trajectories, set_aside}. Raises RecipeError for an unknown family
    and, with `on_error: fail`, the first problem of a task or recorded file.
    """
    folder = context.run / "trajectories"
    rolled = roll_out(context)
    recorded, aside = _recorded(context, folder / "raw")
    for name, number in rolled.counts["rejected"].items():
        context.progress.say(
            f"synthesize: {number} tasks gave no trajectory ({name}); see trajectories/set_aside.jsonl"
        )
    files = rolled.files + sorted(path for path in (folder / "raw").glob("recorded-*.parquet"))
    files.append(_merge_aside(folder / "set_aside.jsonl", rolled.aside, aside))
    return StepOutput(files, {**rolled.counts, "recorded": recorded})


def roll_out(context: RunContext, pool: Path | None = None) -> Rolled:
    """Build what the recipe's tasks draw from and play them into trajectories/raw; `pool` is used in place of building.

    Counts: tasks, trajectories, solved, mistakes, recoveries, steps (assistant turns), tokens (bytes / 4), rejected
    {reason: n}, the same by_family, and pool and search_pool as their builders give them; with models as teachers also
    endpoint (endings, problems, pass_rates by family). The journal of an endpoint is RUN/journals/FAMILY-i.jsonl unless
    the recipe names one: it outlives the step, so that no finished request is made twice. However it ends, no folder of
    a sandbox stays.
    """
    check_requests(context.recipe)
    try:
        _say_level(context.recipe)
        return _rolled(context, pool)
    finally:
        remove_leftovers()  # of workers that were ended in the middle


def _say_level(recipe: Recipe) -> None:
    """Warn here, once, where the workers' sandboxes will be of a lower level (sandbox/notice.py)."""
    wanted = {config.family for config in recipe.trajectories.synthesized}
    if any(environment_class(family).runs_programs for family in wanted) and bubblewrap_program() is None:
        Sandbox().close()


def _rolled(context: RunContext, pool: Path | None) -> Rolled:
    recipe, folder = context.recipe, context.run / "trajectories"
    raw = folder / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    wanted = recipe.trajectories.synthesized
    families = {config.family for config in wanted} | set(recipe.evaluate.measured)
    files, counts = build_pools(context, folder, families if pool is None else ())
    fail = recipe.on_error == "fail"
    ranges = [
        work
        for position, config in enumerate(wanted)
        for work in cut_ranges(config, position, recipe.seed, raw, pool or pool_place(folder, config.family), fail=fail)
    ]
    scripted = [work for work in ranges if work.config.teacher == "scripted"]
    done = context.engine.map(roll_out_range, scripted, label="synthesize: roll out", progress=context.progress)
    asked = [work for work in ranges if work.config.teacher == "openai"]
    answered = [_ask(context, work) for work in asked]
    counts |= add_counts([*done, *answered])
    if answered:
        kept = ("endings", "problems", "pass_rates")
        counts["endpoint"] = [{"family": r["family"], **{name: r[name] for name in kept}} for r in answered]
    files += [Path(work.out) for work in ranges]
    aside = [row for result in [*done, *answered] for row in result["aside"]]
    return Rolled(files, counts, aside, [result["usage"] for result in answered])


def _ask(context: RunContext, work: TaskRange) -> dict[str, Any]:
    from pipelines.synthesis.endpoint.range import roll_out_with_endpoint

    name = Path(work.out).stem.rpartition("-")[0]
    return roll_out_with_endpoint(work, context.run / "journals" / f"{name}.jsonl", context.progress)


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
