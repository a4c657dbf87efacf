"""Task families: distinct, solvable, honest about mistakes, repeatable, and as long as their difficulty says.

    python benchmarks/synthesis.py [--families repair,reasoning] [--tasks 1000] [--replays 200] [--lengths 5] [--json]

For every family, with the scripted teacher:

    distinct     of --tasks tasks (difficulties 1 to 3), how many differ in instruction and state; the state is the
                 task's data without seeds and the keys made of them
    solved       of the same tasks, how many the teacher solves without mistakes
    mistakes     of --replays trajectories at 30 % mistakes (difficulties 1 to 4): mistakes in the teacher's log, and
                 how many of them an observation (or, for the final answer, the verdict) shows
    precision,   turns that filters.trajectory calls mistakes (labels taken away) against the teacher's log
    recall
    replays      how many of these trajectories come out the same again
    tokens       median length (bytes / 4) of --lengths trajectories without mistakes at each difficulty 6 … 10, and of
                 eight times as many at 1 … 5

CPU seconds are of this process and its sandboxes. Pools come from the running Python's standard library.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from filters.trajectory.detectors import MISTAKE_RULES, detect
from pipelines.context import RunContext
from pipelines.engine import InProcess
from pipelines.synthesis.environments.base import Environment, TaskSpec, family_names, open_environment
from pipelines.synthesis.lengths import estimated_tokens
from pipelines.synthesis.pools.build import build_pools, pool_place
from pipelines.synthesis.ranges import spread_difficulties
from pipelines.synthesis.replay import replay
from pipelines.synthesis.rollout import rollout
from pipelines.synthesis.teachers.scripted import open_teacher
from schemas.errors import UsageError
from schemas.files import digest_of
from schemas.progress import Quiet
from schemas.recipe import Recipe
from schemas.trajectory import Trajectory

EASY, MIXED = (1.0, 3.0), (1.0, 4.0)
MISTAKE_RATE = 0.3
MAX_STEPS = 4000
FIRST_LENGTH_SEED = 500_000
LONG_FROM, SHORT_TIMES = 6, 8  # below, lengths vary more and cost little: so many times the trajectories


def cpu() -> float:
    """CPU seconds of this process and of the children that it has waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def play(environment: Environment, task: TaskSpec, rate: float) -> Trajectory:
    """One trajectory of the scripted teacher."""
    teacher = open_teacher(task.family, environment, task, rate, 0)
    return rollout(environment, task, teacher, MAX_STEPS)


def state_of(task: TaskSpec) -> str:
    """A digest of what a task asks and what lies there, without the seeds that made it."""
    return digest_of([task.system, task.instruction, _without_seeds(task.data)])


def _without_seeds(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_seeds(inner) for name, inner in value.items() if name not in ("key", "seed")}
    return [_without_seeds(inner) for inner in value] if isinstance(value, list) else value


def shown(trajectory: Trajectory, turn: int) -> bool:
    """Whether something that was observed shows the mistake of a turn.

    A failed result of its calls; for an edit that was the wrong fix, the next test run (tests_unfixed); for the last
    turn, the verdict.
    """
    messages = trajectory.messages
    if not messages[turn].tool_calls:
        return trajectory.outcome.success is False
    results = messages[turn + 1 : turn + 1 + len(messages[turn].tool_calls)]
    if any(result.error for result in results):
        return True
    later = (m.signal for m in messages[turn + 1 :] if m.role == "tool" and (m.signal or "").startswith("tests_"))
    return next(later, None) == "tests_unfixed"


def first_tasks(environment: Environment, tasks: int) -> dict[str, Any]:
    """How many of the tasks are distinct, and how many are solved without mistakes."""
    states: set[str] = set()
    instructions: set[str] = set()
    solved = steps = 0
    for seed, difficulty in enumerate(spread_difficulties(tasks, *EASY)):
        task = environment.generate(seed, difficulty)
        states.add(state_of(task))
        instructions.add(task.instruction)
        run = play(environment, task, 0.0)
        solved += run.outcome.success is True
        steps += run.stats.turns
    return {
        "tasks": tasks,
        "distinct": len(states),
        "distinct_instructions": len(instructions),
        "solved_without_mistakes": solved,
        "steps": steps,
    }


def mistakes(environment: Environment, replays: int) -> dict[str, Any]:
    """What mistakes show, whether detectors find them, and whether everything comes out the same again."""
    logged = seen = found = both = equal = steps = solved = recoveries = 0
    runs = []
    for seed, difficulty in enumerate(spread_difficulties(replays, *MIXED)):
        run = play(environment, environment.generate(10_000 + seed, difficulty), MISTAKE_RATE)
        runs.append(run)
        labels = {i: m.label or "" for i, m in enumerate(run.messages) if m.role == "assistant"}
        log = {turn for turn, label in labels.items() if label.startswith("mistake:")}
        blind = replace(run, messages=[replace(message, label=None) for message in run.messages])
        caught = {f.message for f in detect(blind).findings if f.rule in MISTAKE_RULES and f.message is not None}
        logged += len(log)
        seen += sum(shown(run, turn) for turn in log)
        found += len(caught)
        both += len(log & caught)
        steps += len(labels)
        recoveries += list(labels.values()).count("recovery")
        solved += run.outcome.success is True
    for run in runs:
        equal += replay(environment, run) == []
    return {
        "trajectories": replays,
        "solved": solved,
        "steps": steps,
        "mistakes": logged,
        "mistakes_shown": seen,
        "recoveries": recoveries,
        "precision": round(both / found, 4) if found else None,
        "recall": round(both / logged, 4) if logged else None,
        "replays_equal": equal,
    }


def lengths(environment: Environment, count: int) -> dict[str, Any]:
    """Median tokens by difficulty, without mistakes."""
    medians = {}
    for difficulty in range(1, 11):
        made = [
            estimated_tokens(play(environment, environment.generate(FIRST_LENGTH_SEED + n, difficulty), 0.0))
            for n in range(count * (SHORT_TIMES if difficulty < LONG_FROM else 1))
        ]
        medians[str(difficulty)] = round(statistics.median(made))
    rising = list(medians.values()) == sorted(set(medians.values()))
    return {"median_tokens": medians, "rising": rising}


def measure(family: str, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """All figures of one family. Each part has its own sandbox, whose CPU is known when it is closed."""
    figures: dict[str, Any] = {}
    parts: list[tuple[str, Callable[[Environment, int], dict[str, Any]], int]] = [
        ("tasks", first_tasks, options.tasks),
        ("mistakes", mistakes, options.replays),
        ("lengths", lengths, options.lengths),
    ]
    for name, part, count in parts:
        if count:
            start = cpu()
            with open_environment(family, pool_path=pool_place(folder, family)) as environment:
                figures[name] = part(environment, count)
            figures[name]["cpu_seconds"] = round(cpu() - start, 1)
    return figures


def make_pools(folder: Path, families: list[str]) -> float:
    """Build the pools that the families draw from; returns the CPU seconds."""
    nothing: dict[str, Any] = {
        "name": "benchmark",
        "seed": 1,
        "sources": [{"name": "python", "kind": "python-environment"}],
        "mixture": {"method": "proportional", "budget_tokens": 1},
        "tokenizer": {"train": {}},
        "curriculum": {},
        "model": {
            "hidden_size": 8,
            "num_hidden_layers": 1,
            "num_attention_heads": 1,
            "num_key_value_heads": 1,
            "intermediate_size": 8,
        },
    }
    start = cpu()
    build_pools(RunContext(folder, Recipe.model_validate(nothing), InProcess(), Quiet()), folder, families)
    return round(cpu() - start, 1)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--families", default="all", help="names with commas (default: all)")
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--replays", type=int, default=200)
    parser.add_argument("--lengths", type=int, default=5, help="trajectories at each difficulty")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    families = family_names() if options.families == "all" else options.families.split(",")
    unknown = sorted(set(families) - set(family_names()))
    if unknown:
        raise UsageError(f"--families {unknown[0]!r}: families are {', '.join(family_names())}, all")
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        results["pools_cpu_seconds"] = make_pools(folder, families)
        for family in families:
            results[family] = measure(family, folder, options)
            if not options.json:
                print(family)
                for part, figures in results[family].items():
                    print(f"  {part:9} " + ", ".join(f"{key} {value}" for key, value in figures.items()), flush=True)
    if options.json:
        print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
