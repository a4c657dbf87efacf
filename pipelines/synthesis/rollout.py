"""Rolling out: an agent and an environment take turns until the agent answers or the steps are used up.

The trainer's evaluation drives an environment with a trained model like this:

    from pipelines.synthesis.environments.base import open_environment
    from pipelines.synthesis.rollout import HELDOUT_SEEDS, rollout

    with open_environment("repair", pool_path=run / "trajectories" / "pool.jsonl", split="heldout") as environment:
        for n in range(tasks):
            task = environment.generate(seed=HELDOUT_SEEDS + n, difficulty=1)
            trajectory = rollout(environment, task, agent, max_steps=12)
            solved = trajectory.outcome.success is True

where `agent.act(messages, tools)` renders the messages (`pipelines.synthesis.chat`), samples, and parses the reply
into one assistant `Message`. A reply that is cut, empty or names no tool is a legal message: without tool calls it
counts as the final answer, and a broken call gets an error observation.
"""

from __future__ import annotations

import itertools
from typing import Protocol

from pipelines.synthesis.environments.base import Environment, TaskSpec, ToolResult
from schemas.trajectory import Message, Stats, Task, Trajectory, trajectory_id

__all__ = ["HELDOUT_SEEDS", "SOURCE", "Agent", "rollout", "tool_results"]

SOURCE = "synthesized"
HELDOUT_SEEDS = 1_000_000_000  # training tasks use seeds below, evaluation tasks this one and above
MAX_CALLS_A_TURN = 16


class Agent(Protocol):
    """Anything that answers: a scripted teacher, a model behind an endpoint, a model being trained."""

    def act(self, messages: list[Message], tools: str) -> Message:
        """The next assistant turn. `messages` is everything so far (not to be changed); `tools` is a JSON list."""


def rollout(environment: Environment, task: TaskSpec, agent: Agent, max_steps: int = 1000) -> Trajectory:
    """Run one task to its end and verify it.

    A step is one assistant turn. The run ends at the first assistant turn without a tool call, or after `max_steps`
    turns (flag "max_steps"). At most 16 calls of one turn are executed; the rest get an error observation.
    `stats.errors` counts turns with a failed call, `stats.recoveries` the failed turns followed by a good one.
    `extra` is the task's JSON, so that the run can be replayed. Exceptions of the agent are not caught.
    """
    observation = environment.reset(task)
    messages = [Message("system", task.system)] if task.system else []
    messages.append(Message("user", observation))
    tools = environment.tools_json()
    flags = ["max_steps"]
    for _ in range(max_steps):
        turn = agent.act(messages, tools)
        messages.append(turn)
        if not turn.tool_calls:
            environment.answer(turn.content)
            flags = []
            break
        messages.extend(tool_results(environment, turn))
    outcome = environment.verify()
    turns, errors, recoveries = _count(messages)
    return Trajectory(
        id=trajectory_id(SOURCE, task.id, messages),
        source=SOURCE,
        family=task.family,
        messages=messages,
        task=Task(task.id, task.instruction, task.seed, task.difficulty),
        tools=tools,
        outcome=outcome,
        stats=Stats(turns=turns, errors=errors, recoveries=recoveries),
        origin=f"{task.family}?seed={task.seed}&difficulty={task.difficulty:g}",
        license=task.license,
        flags=flags,
        extra=task.to_json(),
    )


def tool_results(environment: Environment, turn: Message) -> list[Message]:
    """The tool turns that answer an assistant turn, one a call, in order."""
    results = []
    for number, call in enumerate(turn.tool_calls):
        if number >= MAX_CALLS_A_TURN:
            result = ToolResult(f"Error: at most {MAX_CALLS_A_TURN} calls a turn are run", True, "tool_error")
        else:
            result = environment.invoke(call)
        message = Message("tool", result.text, tool_call_id=call.id, name=call.name)
        message.error, message.signal = result.error, result.signal
        results.append(message)
    return results


def _count(messages: list[Message]) -> tuple[int, int, int]:
    """(assistant turns, turns with a failed call, failed turns whose next turn with calls had none that failed)."""
    failed: list[bool] = []
    turns = 0
    for message in messages:
        if message.role == "assistant":
            turns += 1
            if message.tool_calls:
                failed.append(False)
        elif message.role == "tool" and message.error and failed:
            failed[-1] = True
    recoveries = sum(1 for now, later in itertools.pairwise(failed) if now and not later)
    return turns, sum(failed), recoveries
