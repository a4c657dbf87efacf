"""A conversation with a trained model: turns of a person, replies, and tool calls that really run."""

from __future__ import annotations

from collections.abc import Iterator

from pipelines.synthesis.environments.base import Environment, TaskSpec
from pipelines.synthesis.rollout import Agent, tool_results
from schemas.trajectory import Message, Outcome

__all__ = ["Talk"]


class Talk:
    """One conversation. With an environment the model has its tools and a task is set up; without, it only talks."""

    def __init__(
        self, agent: Agent, environment: Environment | None = None, task: TaskSpec | None = None, max_steps: int = 8
    ) -> None:
        """`task` is one of `environment`; its first user turn is in `opening`. `max_steps` bounds replies a turn."""
        self.messages: list[Message] = []
        self.opening = ""
        self._settled = 0
        self._agent, self._environment, self._max_steps = agent, environment, max_steps
        self._tools = "[]" if environment is None else environment.tools_json()
        if environment is not None and task is not None:
            self.opening = environment.reset(task)
            if task.system:
                self.messages.append(Message("system", task.system))
        self._settled = len(self.messages)

    def say(self, text: str) -> Iterator[Message]:
        """Take a user's turn; yields every message that follows as it comes: replies, and results of their calls.

        Ends at a reply without a call, after `max_steps` replies, or when the context is full: the last reply has
        then `stop` "length" and nothing in it.
        """
        self.messages.append(Message("user", text))
        for _ in range(self._max_steps):
            reply = self._agent.act(self.messages, self._tools)
            self.messages.append(reply)
            if not reply.tool_calls:
                self._settled = len(self.messages)
            yield reply
            if not reply.tool_calls:
                if self._environment is not None:
                    self._environment.answer(reply.content)
                return
            results = self._results(reply)
            self.messages += results
            self._settled = len(self.messages)
            yield from results

    def forget_unsettled(self) -> None:
        """After an interrupt: forget the turn that got no reply, or the calls that got no result."""
        del self.messages[self._settled :]

    def _results(self, reply: Message) -> list[Message]:
        if self._environment is not None:
            return tool_results(self._environment, reply)
        text = "Error: there are no tools in this conversation"
        return [Message("tool", text, tool_call_id=c.id, name=c.name, error=True) for c in reply.tool_calls]

    def outcome(self) -> Outcome | None:
        """Whether the task is solved as things stand; None without a task."""
        return self._environment.verify() if self._environment is not None and self.opening else None
