"""A model behind an endpoint, measured on the same held-out tasks and by the same figures as a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from pipelines.synthesis.endpoint.rollouts import EndpointReport, roll_out_endpoint
from pipelines.synthesis.environments.base import TaskSpec
from schemas.errors import DatamixError
from schemas.progress import Progress
from schemas.recipe import EndpointConfig, EvaluateConfig
from trainer.agent_tasks import TaskRun, agent_results, heldout_tasks, open_heldout

__all__ = ["measure_endpoint"]


def measure_endpoint(
    settings: EndpointConfig,
    config: EvaluateConfig,
    families: Sequence[str],
    folder: Path | None,
    progress: Progress,
) -> dict[str, Any]:
    """Let the endpoint do `config.tasks` held-out tasks of each family, one attempt each.

    Steps and tokens are bounded by `config`, all else follows from `settings`. `folder` is a run's trajectories, where
    pools lie; None leaves only families without one. Gives `agent` (the first family) and `agents`, each of the shape
    that `trainer.evaluate.measure` gives, and `usage` by family. `problem` says why tasks are missing: none could be
    made, the cost cap was reached, the endpoint went down. Raises DatamixError for a wrong address, key or model.
    """
    bounds = {"samples": 1, "max_steps": config.max_steps, "max_tokens": config.max_new_tokens}
    settings = settings.model_copy(update=bounds)
    open_family = partial(open_heldout, folder=folder)
    agents: dict[str, Any] = {}
    usage: dict[str, Any] = {}
    for family in families:
        tasks, problem = _tasks(family, config, folder)
        report = EndpointReport()
        rolled = list(
            roll_out_endpoint(
                tasks,
                open_family,
                settings,
                settings.journal,
                progress,
                report,
                label=f"agent ({family})",
                count=len(tasks),
            )
        )
        runs = [TaskRun(trajectory, written) for trajectory, written in zip(rolled, report.written, strict=True)]
        if report.stopped and len(runs) < len(tasks):
            problem = problem or f"stopped ({report.stopped}) after {len(runs)} of {len(tasks)} tasks"
        agents[family] = {"family": family, **agent_results(runs), "problem": problem}
        usage[family] = {**asdict(report.usage), "problems": dict(sorted(report.problems.items()))}
        progress.say(
            f"agent ({family}): {agents[family]['successes']} of {agents[family]['tasks']} held-out tasks solved"
            + (f"; {problem}" if problem else "")
        )
    return {"agent": next(iter(agents.values())), "agents": agents, "usage": usage}


def _tasks(family: str, config: EvaluateConfig, folder: Path | None) -> tuple[list[TaskSpec], str | None]:
    """The tasks of a family, as many as could be made, and why not all."""
    tasks: list[TaskSpec] = []
    try:
        with open_heldout(family, folder) as environment:
            tasks.extend(heldout_tasks(environment, config))
    except DatamixError as problem:
        return tasks, str(problem)
    return tasks, None
