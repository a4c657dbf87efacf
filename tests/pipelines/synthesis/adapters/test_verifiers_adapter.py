"""A family as a taskset of verifiers: its tasks, its tools at a real MCP server, its reward by replay."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from pipelines.synthesis.environments.base import TaskSpec, open_environment
from pipelines.synthesis.ranges import task_seed
from pipelines.synthesis.rollout import rollout
from pipelines.synthesis.teachers.scripted import open_teacher
from schemas.trajectory import Trajectory

vf = pytest.importorskip("verifiers.v1")
adapter = pytest.importorskip("pipelines.synthesis.adapters.verifiers")


def taskset(n: int = 12) -> Any:
    return adapter.FamilyTaskset(adapter.FamilyConfig(family="reasoning", n=n, seed=3, easiest=1, hardest=4))


def play(spec: str, rate: float) -> Trajectory:
    task = TaskSpec.from_json(spec)
    with open_environment(task.family) as environment:
        return rollout(environment, task, open_teacher(task.family, environment, task, rate, 0))


def turns(run: Trajectory) -> list[Any]:
    """The assistant turns as verifiers keeps them in a trace."""
    return [
        vf.AssistantMessage(
            content=message.content or None,
            tool_calls=[vf.ToolCall(id=c.id, name=c.name, arguments=c.arguments) for c in message.tool_calls] or None,
        )
        for message in run.messages
        if message.role == "assistant"
    ]


def test_tasks_are_those_of_a_recipe_and_carry_their_prompts() -> None:
    tasks = list(taskset())
    specs = [TaskSpec.from_json(task.data.spec) for task in tasks]
    assert [task.data.idx for task in tasks] == list(range(12))
    assert [(t.data.id, t.data.prompt, t.data.system_prompt) for t in tasks] == [
        (spec.id, spec.instruction, spec.system) for spec in specs
    ]
    assert specs[5].seed == task_seed(3, 0, 5)
    assert len({task.key for task in tasks}) == 12
    assert [task.data.id for task in taskset().skip(2).take(2)] == [spec.id for spec in specs[2:4]]


def test_the_tool_server_offers_the_tasks_tools_and_runs_them() -> None:
    from mcp.server.mcpserver import MCPServer

    task = next(t for t in taskset(30) if TaskSpec.from_json(t.data.spec).data["mode"] == "calculator")
    tools = type(task).toolsets(task.config)
    assert [type(server) for server in tools] == [adapter.FamilyTools]

    async def use() -> tuple[Any, Any, Any]:
        server, mcp = tools[0], MCPServer("family")
        async with contextlib.AsyncExitStack() as stack:
            server._exit_stack = stack
            await server.setup_task(task.data)
            server.register(mcp)
            listed = await mcp.list_tools()
            good = await mcp.call_tool("calculator", {"expression": "6 * 7"})
            return listed, good, await mcp.call_tool("calculator", {"expression": "6 *"})

    listed, good, bad = asyncio.run(use())
    assert [tool.name for tool in listed] == ["calculator"]
    schema = listed[0].model_dump(by_alias=True)["inputSchema"]
    assert (schema["required"], schema["properties"]["expression"]["type"]) == (["expression"], "string")
    assert "42" in str(good)
    assert "not an arithmetic expression" in str(bad)


def test_the_reward_is_the_familys_verdict_on_the_calls_of_the_trace() -> None:
    for task in taskset(16):
        run = play(task.data.spec, 0.3)
        outcome = adapter.judge(task.data, turns(run))
        assert outcome == run.outcome
        wrong = [*turns(run)[:-1], vf.AssistantMessage(content="Answer: banana")]
        assert adapter.judge(task.data, wrong).success is False
    assert adapter.judge(task.data, []).reward == 0.0


def test_calls_of_the_harness_itself_are_passed_over() -> None:
    task = next(t for t in taskset(30) if TaskSpec.from_json(t.data.spec).data["mode"] == "calculator")
    made = turns(play(task.data.spec, 0.0))
    for turn in made:
        for call in turn.tool_calls or []:
            call.name = f"mcp__family__{call.name}"
    foreign = vf.AssistantMessage(tool_calls=[vf.ToolCall(id="x", name="bash", arguments='{"command": "rm -rf /"}')])
    assert adapter.judge(task.data, [foreign, *made]).success is True
