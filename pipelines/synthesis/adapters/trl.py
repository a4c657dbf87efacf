"""A task family as TRL's `environment_factory` (GRPOTrainer, TRL 1.16 and later).

    from datasets import Dataset
    from pipelines.synthesis.adapters.trl import environment_class, task_rows

    rows = task_rows("repair", n=64, seed=1, difficulty=(1, 2), pool_path="runs/demo/trajectories/pool.jsonl")
    trainer = GRPOTrainer(
        model=…, args=…, train_dataset=Dataset.from_list(rows),
        environment_factory=environment_class("repair", rows, pool_path="runs/demo/trajectories/pool.jsonl"),
    )

TRL makes an instance for every rollout of a batch, calls `reset` with the columns of the row, and appends what it gives
to the prompt's last user turn; it offers every public method as a tool; it takes the reward from `get_reward`, which
gets no completion. Hence the answer is a tool too: `final_answer`. Tools are those that any task of the rows has; a
call of one that the task at hand lacks gets the error that a model gets everywhere.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipelines.synthesis.adapters.signatures import spread_tasks, tool_function, tool_union
from pipelines.synthesis.environments.base import Environment, TaskSpec, open_environment
from schemas.errors import UsageError
from schemas.trajectory import ToolCall

__all__ = ["FamilyEnvironment", "environment_class", "task_rows"]

FINAL_ANSWER = {
    "type": "function",
    "function": {
        "name": "final_answer",
        "description": "Give the final answer, or the summary of what was done, and end the task.",
        "parameters": {
            "type": "object",
            "properties": {"text": {"type": "string", "description": "the answer as the task wants it"}},
            "required": ["text"],
        },
    },
}


def task_rows(
    family: str,
    n: int,
    seed: int = 1,
    difficulty: tuple[float, float] = (1, 4),
    pool_path: str | Path | None = None,
) -> list[dict[str, Any]]:
    """Rows of a training dataset: `prompt` (system turn and an empty user turn) and `task` (JSON, what `reset` takes).

    The tasks are those of a recipe with this seed. Raises UsageError for an unknown family or a pool without tasks.
    """
    rows = []
    with open_environment(family, pool_path=pool_path) as environment:
        for task_seed, level in spread_tasks(n, seed, difficulty):
            task = environment.generate(task_seed, level)
            system = [{"role": "system", "content": task.system}] if task.system else []
            rows.append({"prompt": [*system, {"role": "user", "content": ""}], "task": task.to_json()})
    return rows


def environment_class(
    family: str, rows: Sequence[Mapping[str, Any]], pool_path: str | Path | None = None
) -> type[FamilyEnvironment]:
    """A class for `environment_factory`, with a method for every tool of the rows' tasks, and `final_answer`.

    Every task of the rows is set up once to see its tools. Raises UsageError for rows without a task.
    """
    with open_environment(family, pool_path=pool_path, split="all") as environment:
        lists = []
        for number, row in enumerate(rows):
            try:
                task = TaskSpec.from_json(row["task"])
            except (KeyError, TypeError, ValueError) as error:
                raise UsageError(f"row {number}: 'task' holds no task. Make the rows with task_rows") from error
            environment.reset(task)
            lists.append(list(environment.tools))
    methods: dict[str, Any] = {"_family": family, "_pool_path": pool_path}
    for tool in tool_union(lists):
        methods[tool["function"]["name"]] = _method(tool)
    methods["final_answer"] = tool_function(FINAL_ANSWER, FamilyEnvironment._answer, method=True)
    return type(f"{family.title()}Environment", (FamilyEnvironment,), methods)


def _method(tool: Mapping[str, Any]) -> Any:
    name = tool["function"]["name"]

    def run(self: FamilyEnvironment, **arguments: Any) -> str:
        return self._call(name, arguments)

    return tool_function(tool, run, method=True)


class FamilyEnvironment:
    """One rollout at a time. Subclasses are made by `environment_class`; public methods are tools."""

    _family: str
    _pool_path: str | Path | None

    def __init__(self) -> None:
        self._environment: Environment = open_environment(self._family, pool_path=self._pool_path, split="all")
        self._calls = 0
        self._reward: float | None = None

    def reset(self, task: str, **_columns: Any) -> str:
        """Set the task of a row up; gives the text for the user turn."""
        self._calls, self._reward = 0, None
        return self._environment.reset(TaskSpec.from_json(task))

    def get_reward(self) -> float:
        """1 for a solved task, else what the family gives for part of it (0 to 1)."""
        if self._reward is None:
            self._reward = _reward_of(self._environment)
        return self._reward

    def _call(self, name: str, arguments: dict[str, Any]) -> str:
        """Run a tool of the family; after the final answer nothing counts any more."""
        if self._reward is not None:
            return "Error: the final answer was given"
        self._calls += 1
        text = json.dumps(arguments, ensure_ascii=False)
        return self._environment.invoke(ToolCall(f"call_{self._calls}", name, text)).text

    def _answer(self, text: str = "", **_others: Any) -> str:
        if self._reward is not None:
            return "Error: the final answer was given"
        self._environment.answer(str(text))
        self._reward = _reward_of(self._environment)
        return "The answer was taken."


def _reward_of(environment: Environment) -> float:
    outcome = environment.verify()
    if outcome.success:
        return 1.0
    return float(outcome.reward or 0.0)
