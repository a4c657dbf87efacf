"""Replay: a synthesized trajectory's calls once more, and whether all results and the verdict come out the same."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.synthesis.environments.base import Environment, TaskSpec
from pipelines.synthesis.rollout import tool_results
from schemas.errors import InputError
from schemas.trajectory import Trajectory

__all__ = ["Difference", "replay", "task_of"]


@dataclass(frozen=True, slots=True)
class Difference:
    """What came out otherwise. `message` is the index of the recorded turn, -1 for the verdict."""

    message: int
    recorded: str
    replayed: str


def task_of(trajectory: Trajectory) -> TaskSpec:
    """The task that a synthesized trajectory carries. Raises InputError when it carries none."""
    try:
        return TaskSpec.from_json(trajectory.extra or "")
    except (ValueError, TypeError) as error:
        problem = f"trajectory {trajectory.id} carries no task, so it cannot be replayed"
        raise InputError(problem, field="extra", todo="Give a trajectory made by the synthesize step") from error


def replay(environment: Environment, trajectory: Trajectory) -> list[Difference]:
    """Run the recorded calls on a fresh task and compare text, error and signal of every result, then the verdict.

    An empty list means that all are equal. Stops at the first difference of a result: later ones would follow from it.
    Raises InputError for a trajectory without its task. Cost: that of the rollout.
    """
    observation = environment.reset(task_of(trajectory))
    first = next((i for i, message in enumerate(trajectory.messages) if message.role == "user"), 0)
    if trajectory.messages[first].content != observation:
        return [Difference(first, trajectory.messages[first].content, observation)]
    position = first + 1
    while position < len(trajectory.messages):
        turn = trajectory.messages[position]
        position += 1
        if turn.role != "assistant":
            continue
        if not turn.tool_calls:
            environment.answer(turn.content)
        for result in tool_results(environment, turn):
            if position >= len(trajectory.messages) or trajectory.messages[position].role != "tool":
                return [Difference(position, "", "a result is missing")]
            recorded = trajectory.messages[position]
            if (recorded.content, recorded.error, recorded.signal) != (result.content, result.error, result.signal):
                shown = _shown(recorded.content, recorded.signal), _shown(result.content, result.signal)
                return [Difference(position, *shown)]
            position += 1
    outcome = environment.verify()
    if outcome != trajectory.outcome:
        return [Difference(-1, str(trajectory.outcome), str(outcome))]
    return []


def _shown(text: str, signal: str | None) -> str:
    return f"[{signal or 'ok'}] {text}"
