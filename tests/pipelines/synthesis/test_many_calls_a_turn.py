"""A turn with more calls than are run: the rest are refused, in the roll-out and in its replay alike."""

from __future__ import annotations

from pipelines.synthesis.environments.office import OfficeEnvironment
from pipelines.synthesis.replay import replay
from pipelines.synthesis.rollout import MAX_CALLS_A_TURN, rollout
from schemas.trajectory import Message, ToolCall


class Eager:
    """Calls a tool twenty times at once, then answers."""

    def act(self, messages: list[Message], tools: str) -> Message:
        if messages[-1].role == "tool":
            return Message("assistant", "done")
        return Message("assistant", tool_calls=[ToolCall(f"call_{n}", "list_folder", "{}") for n in range(20)])


def test_calls_beyond_the_limit_are_refused_and_replay_equal() -> None:
    with OfficeEnvironment() as environment:
        trajectory = rollout(environment, environment.generate(1, 1), Eager())
        results = [message for message in trajectory.messages if message.role == "tool"]
        assert [message.error for message in results] == [False] * MAX_CALLS_A_TURN + [True] * (20 - MAX_CALLS_A_TURN)
        assert replay(environment, trajectory) == []
