"""A task family as a taskset of verifiers (0.4, its v1 API).

    import verifiers.v1 as vf
    from pipelines.synthesis.adapters.verifiers import FamilyConfig, FamilyTaskset

    taskset = FamilyTaskset(FamilyConfig(family="repair", n=64, pool_path="runs/demo/trajectories/pool.jsonl"))

verifiers runs a harness (the program around the model) against tools that a server process offers, and scores the trace
afterwards in another process. So the tools live in `FamilyTools`, an MCP server started for every rollout, and the
reward is a replay: the calls of the trace are run once more on a fresh task, the last reply is taken as the answer, and
the family's own verdict is the reward. That gives what the rollout gave, because every task replays to the same.

Importing this module needs verifiers, which wants an older openai than datamix: use an environment of its own.
"""

# mypy: disable-error-code="misc, untyped-decorator"
from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator
from typing import Any

import verifiers.v1 as vf

from pipelines.synthesis.adapters.signatures import spread_tasks, tool_function
from pipelines.synthesis.environments.base import Environment, TaskSpec, open_environment
from schemas.trajectory import Outcome, ToolCall

__all__ = ["FamilyConfig", "FamilyData", "FamilyTask", "FamilyTaskConfig", "FamilyTaskset", "FamilyTools", "judge"]


class FamilyData(vf.TaskData):
    """A task as data: `spec` is `TaskSpec.to_json`, `pool_path` what its family draws from."""

    spec: str
    pool_path: str | None = None


class FamilyToolsConfig(vf.ToolsetConfig):
    """Where the tool server runs: verifiers' own settings."""


class FamilyTools(vf.Toolset[FamilyToolsConfig]):
    """The tools of one task, under their own names. The task is set up before they are listed."""

    TOOL_PREFIX = None

    async def setup_task(self, task: FamilyData) -> None:
        """Open the family and set the task up."""
        self._environment = _open(task)
        self._exit_stack.callback(self._environment.close)
        self._environment.reset(TaskSpec.from_json(task.spec))

    def register(self, mcp: Any) -> None:
        """Offer the task's tools to the harness."""
        for tool in self._environment.tools:
            described = tool["function"]
            run = tool_function(tool, _caller(self._environment, described["name"]))
            mcp.add_tool(run, name=described["name"], description=described["description"])


class FamilyTaskConfig(vf.TaskConfig):
    """Run-time settings; `tools` says where the tool server runs."""

    tools: FamilyToolsConfig = FamilyToolsConfig()


class FamilyTask(vf.Task[FamilyData, vf.State, FamilyTaskConfig]):
    """One task. `solved` is the reward: 1, or what the family gives for part of it."""

    @classmethod
    def toolsets(cls, config: FamilyTaskConfig) -> list[vf.Toolset[Any]]:
        """A tool server for every rollout."""
        return [FamilyTools(config.tools)]

    @vf.reward
    async def solved(self, trace: vf.Trace) -> float:
        """Run the trace's calls again and take the family's verdict."""
        outcome = await asyncio.to_thread(judge, self.data, trace.assistant_messages)
        trace.info["verified_by"] = outcome.verified_by
        return 1.0 if outcome.success else float(outcome.reward or 0.0)


class FamilyConfig(vf.TasksetConfig):
    """Which tasks: `n` of `family`, difficulties spread over [`easiest`, `hardest`], as in a recipe of this seed."""

    family: str = "reasoning"
    n: int = 64
    seed: int = 1
    easiest: float = 1.0
    hardest: float = 4.0
    pool_path: str | None = None
    task: FamilyTaskConfig = FamilyTaskConfig()


class FamilyTaskset(vf.Taskset[FamilyTask, FamilyConfig]):
    """Tasks of one family. Raises UsageError for an unknown family or a pool without tasks."""

    def load(self) -> Iterator[FamilyTask]:
        """See `vf.Taskset.load`."""
        config = self.config
        with open_environment(config.family, pool_path=config.pool_path) as environment:
            for seed, difficulty in spread_tasks(config.n, config.seed, (config.easiest, config.hardest)):
                task = environment.generate(seed, difficulty)
                data = FamilyData(
                    id=task.id,
                    name=task.id,
                    prompt=environment.reset(task),
                    system_prompt=task.system or None,
                    spec=task.to_json(),
                    pool_path=config.pool_path,
                )
                yield FamilyTask(data, config.task)


def judge(data: FamilyData, turns: Iterable[Any]) -> Outcome:
    """The verdict on assistant turns (`content`, `tool_calls` with `name` and `arguments`): calls run on a fresh task.

    Calls of tools that are the harness's own are passed over: they cannot have changed the task.
    """
    with _open(data) as environment:
        environment.reset(TaskSpec.from_json(data.spec))
        own = {tool["function"]["name"] for tool in environment.tools}
        answer = ""
        for turn in turns:
            answer = turn.content or answer
            for number, call in enumerate(turn.tool_calls or []):
                name = call.name if call.name in own else call.name.rpartition("__")[2]
                if name in own:
                    environment.invoke(ToolCall(f"call_{number}", name, call.arguments))
        environment.answer(answer)
        return environment.verify()


def _open(data: FamilyData) -> Environment:
    return open_environment(TaskSpec.from_json(data.spec).family, pool_path=data.pool_path, split="all")


def _caller(environment: Environment, name: str) -> Any:
    def run(**arguments: Any) -> str:
        return environment.invoke(ToolCall("call", name, json.dumps(arguments, ensure_ascii=False))).text

    return run


if __name__ == "__main__":  # how verifiers starts the tool server
    FamilyTools.run()
