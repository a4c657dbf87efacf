"""Repair steps: CPU of a step in the forked warm interpreter beside a fresh `python -c` for every step.

    python benchmarks/repair_steps.py [--json] [--tasks N] [--difficulty LOW HIGH] [--level auto|limits|…]

The pool is made from a few modules of the standard library. The scripted teacher plays N tasks with 30 % mistakes; then
the same calls are run again in two ways and the CPU seconds of this process and all of its children are taken:

    warm    replay in one environment; what starting the sandbox, setting up and judging cost alone is subtracted
    fresh   one `python -c` a call, without a sandbox: tests and programs do the same work, all other tools only `pass`
            (so the figure is a lower bound of what that way costs)
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from pipelines.synthesis.environments.base import open_environment
from pipelines.synthesis.environments.functions import (
    INSIDE,
    PoolModule,
    open_probe_sandbox,
    probe_source,
    standard_library,
    write_pool,
)
from pipelines.synthesis.environments.repair import RepairEnvironment
from pipelines.synthesis.replay import replay, task_of
from pipelines.synthesis.rollout import rollout
from pipelines.synthesis.sandbox import Sandbox
from pipelines.synthesis.teachers.scripted import open_teacher
from schemas.trajectory import ToolCall, Trajectory

NAMES = ("bisect", "base64", "calendar", "colorsys", "cookies", "heapq", "parse", "quoprimime", "shlex", "statistics")


def cpu() -> float:
    """CPU seconds of this process and of the children that it has waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def make_pool(path: Path) -> None:
    """A small pool."""
    with open_probe_sandbox() as sandbox:
        workspace = sandbox.workspace()
        sources = [s for s in standard_library() if Path(s.origin).stem in NAMES]
        found = [probe_source(source, sandbox, workspace) for source in sources]
    write_pool(path, [module for module in found if isinstance(module, PoolModule)])


def play(pool: Path, tasks: int, low: float, high: float) -> list[Trajectory]:
    """Trajectories with mistakes, difficulties spread over the range."""
    with open_environment("repair", pool_path=pool, split="all") as environment:
        runs = []
        for number in range(tasks):
            task = environment.generate(number, low + (high - low) * number / max(1, tasks - 1))
            runs.append(rollout(environment, task, open_teacher("repair", environment, task, 0.3, 0), 3000))
    return runs


def warm(pool: Path, runs: list[Trajectory], level: Any, steps: bool) -> tuple[float, str]:
    """CPU seconds of replaying everything (or, without `steps`, of setting up and judging alone), and the level."""
    start = cpu()
    with Sandbox(level=level, plugins=[INSIDE / "probing.py", INSIDE / "testing.py"]) as sandbox:
        environment = RepairEnvironment(pool_path=pool, split="all", sandbox=sandbox)
        for run in runs:
            if not steps:
                environment.reset(task_of(run))
                environment.verify()
            elif replay(environment, run):
                raise SystemExit(f"{run.task.id} does not replay")
    return cpu() - start, sandbox.level


def fresh(pool: Path, runs: list[Trajectory]) -> float:
    """CPU seconds of one interpreter a call."""
    seconds = 0.0
    with open_environment("repair", pool_path=pool, split="all") as environment:
        assert isinstance(environment, RepairEnvironment)
        for run in runs:
            environment.reset(task_of(run))
            workspace = environment.folder()
            for call in [call for message in run.messages for call in message.tool_calls]:
                start = cpu()
                argv = [sys.executable, "-c", program_of(call, workspace)]
                subprocess.run(argv, cwd=workspace, capture_output=True, check=False)
                seconds += cpu() - start
                environment.invoke(call)  # the workspace goes on as it did
    return seconds


def program_of(call: ToolCall, workspace: Path) -> str:
    """What a fresh interpreter has to run for a call."""
    try:
        arguments = json.loads(call.arguments)
    except ValueError:
        arguments = {}
    if call.name == "run_code" and isinstance(arguments, dict):
        return str(arguments.get("code", "pass"))
    if call.name == "run_tests" and isinstance(arguments, dict):
        every = [path.relative_to(workspace).as_posix() for path in sorted(workspace.glob("tests/test_*.py"))]
        paths = [arguments["path"]] if isinstance(arguments.get("path"), str) else every
        payload = {"paths": paths, "details": 12}
        return (
            f"import sys; sys.path[:0] = ['.', {str(INSIDE)!r}]; import testing; print(testing.run_tests({payload!r}))"
        )
    return "pass"


def main() -> None:
    """Run the comparison and print it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--tasks", type=int, default=24)
    parser.add_argument("--difficulty", type=float, nargs=2, default=(1.0, 4.0))
    parser.add_argument("--level", default="auto", choices=["auto", "bubblewrap", "limits", "plain"])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        pool = Path(folder) / "pool.jsonl"
        make_pool(pool)
        runs = play(pool, options.tasks, *options.difficulty)
        steps = sum(len(message.tool_calls) for run in runs for message in run.messages)
        all_seconds, level = warm(pool, runs, options.level, steps=True)
        frame_seconds, _ = warm(pool, runs, options.level, steps=False)
        warm_seconds = all_seconds - frame_seconds
        fresh_seconds = fresh(pool, runs)
    figures = {
        "level": level,
        "tasks": len(runs),
        "steps": steps,
        "warm_steps_per_cpu_second": steps / warm_seconds,
        "fresh_steps_per_cpu_second": steps / fresh_seconds,
        "times": fresh_seconds / warm_seconds,
        "times_with_start_and_verdicts": fresh_seconds / all_seconds,
    }
    if options.json:
        print(json.dumps(figures, indent=1))
        return
    for name, value in figures.items():
        print(f"{name:32} {value:.1f}" if isinstance(value, float) else f"{name:32} {value}")


if __name__ == "__main__":
    main()
