"""A range of tasks with a model behind an endpoint as teacher: played by threads of this process, not by an engine.

The key, the journal, the rate limit and the cost cap are of one process; the engine's workers could be anywhere. Every
trajectory is replayed before it is accepted, as the scripted ones are. When the endpoint is down or the cap is reached,
what was not finished is set aside with that reason; the same command goes on from the journal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipelines.synthesis.endpoint.rollouts import EndpointReport, roll_out_endpoint
from pipelines.synthesis.environments.base import open_environment
from pipelines.synthesis.ranges import Ledger, TaskRange, write_rollouts
from schemas.errors import UsageError
from schemas.progress import Progress
from schemas.trajectory import Trajectory

__all__ = ["roll_out_with_endpoint"]


def roll_out_with_endpoint(work: TaskRange, journal: Path, progress: Progress) -> dict[str, Any]:
    """As `ranges.roll_out_range`; the result also has `endings`, `problems` and `pass_rates` {"1/4": tasks}.

    `usage` is what this process asked and paid, which depends on what the journal held. `journal` is used where the
    settings name none. Raises UsageError and DatamixError as `roll_out_endpoint` does.
    """
    settings = work.config.endpoint
    if settings is None:
        raise UsageError("teacher openai needs an endpoint")
    ledger, report = Ledger(work), EndpointReport()
    done: Counter[tuple[int, float]] = Counter()

    def rolled() -> Iterator[Trajectory]:
        with open_environment(work.config.family, pool_path=work.pool) as environment:
            seen: set[str] = set()
            made = roll_out_endpoint(
                ledger.generated(environment),
                lambda family: open_environment(family, pool_path=work.pool),
                settings,
                settings.journal or journal,
                progress,
                report,
                label=f"endpoint ({work.config.family})",
                count=len(work.tasks),
            )
            try:
                for trajectory in made:
                    place = (trajectory.task.seed or 0, trajectory.task.difficulty or 0.0)
                    done[place] += 1
                    if trajectory.id in seen:
                        ledger.reject(*place, "same_as_another_sample", trajectory.id)
                    elif ledger.replays(environment, trajectory):
                        seen.add(trajectory.id)
                        ledger.accept(trajectory)
                        yield trajectory
            except KeyboardInterrupt as interrupt:  # here or there: nothing that is under way is waited for
                made.throw(interrupt)

    write_rollouts(work.out, rolled())
    if report.stopped:
        ledger.counts["tasks"] = len(work.tasks)  # those that were not begun are tasks too
        unmade = {(row["seed"], row["difficulty"]) for row in ledger.aside if row["problem"] == "no_task"}
        for place in work.tasks:
            if place not in unmade and done[place] < settings.samples:
                ledger.reject(*place, report.stopped, f"{done[place]} of {settings.samples} samples were finished")
    usage = report.to_counts()
    return {
        **ledger.result(),
        "endings": dict(sorted(report.endings.items())),
        "problems": dict(sorted(report.problems.items())),
        "pass_rates": dict(sorted(Counter(f"{r['solved']}/{r['samples']}" for r in report.pass_rates).items())),
        "usage": {name: value for name, value in usage.items() if name not in ("endings", "problems")},
    }
