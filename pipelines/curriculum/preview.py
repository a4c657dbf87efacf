"""The SFT stages of trajectories whose masks are made, before any shard is written.

The same rendering and the same planner as the `shards` step, so rows, fill, shares and shortfalls are those that it
will reach; tokens are counted and forgotten.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from pipelines.curriculum.stages import plan_stages, records_of
from pipelines.curriculum.token_files import TokenizeTask, measure_trajectories
from pipelines.engine import Engine
from schemas.errors import InputError
from schemas.progress import Progress
from schemas.recipe import Recipe

__all__ = ["preview_stages"]


def preview_stages(recipe: Recipe, run: Path, engine: Engine, progress: Progress) -> dict[str, Any]:
    """Plan `recipe.curriculum.sft` for RUN/trajectories/kept with RUN/tokenizer; nothing is written.

    Returns trajectories, records (parts of split ones), stages (name, context_tokens and the planner's report) and
    left_out by reason: {records, tokens, trained_tokens}. Raises InputError when the run has no tokenizer or no masked
    trajectories yet. Cost: the tokenizing of all trajectories.
    """
    paths = sorted((run / "trajectories" / "kept").glob("part-*.parquet"))
    for there, wanted, step in (
        (bool(paths), run / "trajectories" / "kept", "masks"),
        ((run / "tokenizer" / "tokenizer.json").is_file(), run / "tokenizer", "tokenizer"),
    ):
        if not there:
            raise InputError(
                "not made yet", path=str(wanted), todo=f"Run the recipe with --until {step} first, then plan again"
            )
    curriculum = recipe.curriculum
    tokenizer = str(run / "tokenizer")
    tasks = [
        TokenizeTask(part, str(path), "", tokenizer, "", False, curriculum.history, curriculum.thinking)
        for part, path in enumerate(paths)
    ]
    found = engine.map(measure_trajectories, tasks, label="measure trajectories", progress=progress)
    columns = {key: [value for one in found for value in one[key]] for key in found[0]}
    records, _ = records_of(columns)
    plan = plan_stages(records, curriculum.sft, recipe.seed, cost_window=curriculum.cost_window)
    left_out: dict[str, Counter[str]] = {}
    for index, reason in plan.left_out:
        bill = Counter(records=1, tokens=int(records.lengths[index]), trained_tokens=int(records.trained[index]))
        left_out.setdefault(reason, Counter()).update(bill)
    refused = sum(problem is not None for problem in columns["problem"])
    if refused:
        left_out["cannot_render"] = Counter(records=refused, tokens=0, trained_tokens=0)
    return {
        "run": str(run),
        "records": len(columns["id"]),
        "stages": [
            {"name": f"sft-{place}-{stage.capacity}", "context_tokens": stage.capacity, **stage.report}
            for place, stage in enumerate(plan.stages)
        ],
        "left_out": {reason: dict(bill) for reason, bill in sorted(left_out.items())},
    }
