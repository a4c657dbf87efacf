"""Held-out tasks that every agent is measured on, and the figures of what it did: nothing here needs a model.

A checkpoint (agent.py) and a model behind an endpoint (endpoint.py) do the same tasks and get the same figures.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filters.trajectory.detectors import MISTAKE_RULES, detect
from pipelines.synthesis.environments.base import Environment, TaskSpec, open_environment
from pipelines.synthesis.pools.build import pool_place
from pipelines.synthesis.rollout import HELDOUT_SEEDS
from schemas.recipe import EvaluateConfig
from schemas.trajectory import Trajectory

__all__ = ["TaskRun", "agent_results", "heldout_tasks", "open_heldout"]


@dataclass(frozen=True, slots=True)
class TaskRun:
    """One task: what happened and how many tokens the model wrote."""

    trajectory: Trajectory
    tokens: int


def open_heldout(family: str, folder: Path | None) -> Environment:
    """The environment of a family's held-out tasks; what they draw from lies in `folder`, the run's trajectories.

    Raises DatamixError for an unknown family, or one that needs a pool which is not there.
    """
    place = pool_place(folder, family) if folder is not None else None
    return open_environment(family, pool_path=place if place is not None and place.exists() else None, split="heldout")


def heldout_tasks(environment: Environment, config: EvaluateConfig) -> Iterator[TaskSpec]:
    """`config.tasks` tasks with seeds from HELDOUT_SEEDS on, difficulties spread evenly over `config.difficulty`."""
    low, high = config.difficulty
    for number in range(config.tasks):
        difficulty = low + (high - low) * number / max(1, config.tasks - 1)
        yield environment.generate(seed=HELDOUT_SEEDS + number, difficulty=difficulty)


def agent_results(runs: Sequence[TaskRun]) -> dict[str, Any]:
    """Figures over task runs; a rate whose denominator is 0 is None.

    success_rate: of tasks. error_rate: of assistant turns, those with a mistake (rules R2, R3, R4, R5, R13, R19).
    repeated_mistake_rate: of mistaken turns, those that repeat an earlier mistake (R5).
    recovery_rate: of mistaken turns, those that a later turn mends (R9).
    by_difficulty: the same figures for the tasks of each difficulty, rounded to a whole number.
    """
    groups: dict[int, list[TaskRun]] = {}
    for run in runs:
        if run.trajectory.task.difficulty is not None:
            groups.setdefault(round(run.trajectory.task.difficulty), []).append(run)
    return {
        **_figures(runs),
        "by_difficulty": {str(level): _figures(groups[level]) for level in sorted(groups)},
        "by_task": [
            {
                "task": run.trajectory.task.id,
                "difficulty": run.trajectory.task.difficulty,
                "success": run.trajectory.outcome.success,
                "steps": run.trajectory.stats.turns,
                "tokens": run.tokens,
                "flags": run.trajectory.flags,
            }
            for run in runs
        ],
    }


def _figures(runs: Sequence[TaskRun]) -> dict[str, Any]:
    turns = mistaken = repeated = recovered = 0
    for run in runs:
        found = detect(run.trajectory)
        wrong = {f.message for f in found.findings if f.rule in MISTAKE_RULES and f.message is not None}
        turns += run.trajectory.stats.turns
        mistaken += len(wrong)
        repeated += len({f.message for f in found.findings if f.rule == "R5" and f.message is not None})
        recovered += len(found.recovered)
    successes = sum(run.trajectory.outcome.success is True for run in runs)
    tokens = sum(run.tokens for run in runs)
    return {
        "tasks": len(runs),
        "successes": successes,
        "success_rate": _rate(successes, len(runs)),
        "steps": turns,
        "steps_per_task": _rate(turns, len(runs)),
        "tokens": tokens,
        "tokens_per_task": _rate(tokens, len(runs)),
        "error_rate": _rate(mistaken, turns),
        "repeated_mistake_rate": _rate(repeated, mistaken),
        "recovery_rate": _rate(recovered, mistaken),
    }


def _rate(part: int, whole: int) -> float | None:
    return part / whole if whole else None
