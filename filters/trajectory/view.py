"""A trajectory with its calls linked to their results: what every detector looks at.

Results are paired by call id with the latest open call (ids are reused by some agents), by position when ids are
missing. A result that follows an assistant turn without structured calls belongs to the turn as a whole (text
actions, replies that could not be parsed).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from filters.trajectory.calls import call_key
from schemas.trajectory import Message, ToolCall, Trajectory

__all__ = ["Step", "View", "is_observation", "view_of"]


@dataclass(frozen=True, slots=True)
class Step:
    """One action: `message` is the assistant turn, `call` the index of its call (None: action in text),
    `result` the index of the message with its result (None: unanswered)."""

    message: int
    call: int | None
    result: int | None


@dataclass(slots=True)
class View:
    """`steps` in order; `orphans` are indices of results that answer no call; `keys` name equal actions."""

    trajectory: Trajectory
    steps: list[Step]
    orphans: list[int]
    keys: list[str]
    turns: list[int] = field(default_factory=list)

    def call_of(self, step: Step) -> ToolCall | None:
        """The call of a step, None for an action in text."""
        return None if step.call is None else self.trajectory.messages[step.message].tool_calls[step.call]

    def result_of(self, step: Step) -> Message | None:
        """The message that answers a step."""
        return None if step.result is None else self.trajectory.messages[step.result]


def is_observation(message: Message) -> bool:
    """Whether the message says what an action did: a tool message, or a user turn that the source ties to an action."""
    return message.role == "tool" or (
        message.role == "user" and (message.error is not None or bool(message.signal) or bool(message.tool_call_id))
    )


def view_of(trajectory: Trajectory) -> View:
    """Link calls and results. One pass; cost linear in messages and argument text."""
    open_calls: list[tuple[int, int]] = []
    answers: dict[tuple[int, int], int] = {}
    whole_turn: dict[int, int] = {}
    orphans: list[int] = []
    messages = trajectory.messages
    turns: list[int] = []
    last_turn: int | None = None
    for index, message in enumerate(messages):
        if message.role == "assistant":
            turns.append(index)
            last_turn = index
            open_calls.extend((index, call) for call in range(len(message.tool_calls)))
        elif is_observation(message):
            place = _answered(message, open_calls, messages)
            if place is not None:
                open_calls.remove(place)
                answers[place] = index
            elif last_turn is not None and not messages[last_turn].tool_calls and last_turn not in whole_turn:
                whole_turn[last_turn] = index
            else:
                orphans.append(index)
    steps: list[Step] = []
    keys: list[str] = []
    for index in turns:
        message = messages[index]
        for number, call in enumerate(message.tool_calls):
            steps.append(Step(index, number, answers.get((index, number))))
            keys.append(call_key(call))
        if not message.tool_calls and index in whole_turn:
            steps.append(Step(index, None, whole_turn[index]))
            keys.append(f"\0{' '.join(message.content.split())}")
    return View(trajectory, steps, orphans, keys, turns)


def _answered(result: Message, open_calls: list[tuple[int, int]], messages: list[Message]) -> tuple[int, int] | None:
    """The open call that a result answers: the latest with its id; without one, the first of the latest turn."""
    if result.tool_call_id:
        for place in reversed(open_calls):
            if messages[place[0]].tool_calls[place[1]].id == result.tool_call_id:
                return place
        return None
    if not open_calls:
        return None
    turn = open_calls[-1][0]
    return next(place for place in open_calls if place[0] == turn)
