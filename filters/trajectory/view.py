"""A trajectory with its calls linked to their results: what every detector looks at.

Results are paired by call id with the latest open call (ids are reused by some agents), by position when ids are
missing. A result that follows an assistant turn without structured calls belongs to the turn as a whole (text
actions, replies that could not be parsed); the turn's last fenced block, if it has one, is read as a shell call.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import orjson

from filters.trajectory.calls import call_key
from schemas.trajectory import Message, ToolCall, Trajectory

__all__ = ["COMPACTION_NAMES", "TEXT_ACTION", "Step", "View", "is_observation", "view_of"]

TEXT_ACTION = "text_action"
"""The name of the call that stands for an action written in a fenced block."""

COMPACTION_NAMES = frozenset({"condensation", "compaction", "compactionSummary", "context_summary"})
_FENCED = re.compile(r"```[\w+-]*\n(.*?)```", re.S)
_ACTION_CHARS = 20_000  # an action stands at the end of a reply


@dataclass(frozen=True, slots=True)
class Step:
    """One action.

    `message` is the assistant turn, `call` the index of its call (None: action in text), `result` the index of the
    message with its result (None: unanswered). `action` is what was called, None when a text has no fenced block;
    `key` is equal for equal actions.
    """

    message: int
    call: int | None
    result: int | None
    action: ToolCall | None
    key: str


@dataclass(frozen=True, slots=True)
class View:
    """`steps` in order; `orphans` are indices of results that answer no call, `turns` of assistant messages."""

    trajectory: Trajectory
    steps: list[Step]
    orphans: list[int]
    turns: list[int]

    def result_of(self, step: Step) -> Message | None:
        """The message that answers a step."""
        return None if step.result is None else self.trajectory.messages[step.result]


def is_observation(message: Message) -> bool:
    """Whether the message says what an action did: a tool message, or a user turn that the source ties to an action."""
    if message.role == "tool":
        return True
    return message.role == "user" and (
        message.name == "observation"
        or message.error is not None
        or bool(message.tool_call_id)
        or (bool(message.signal) and message.name not in COMPACTION_NAMES)
    )


def view_of(trajectory: Trajectory) -> View:
    """Link calls and results. One pass; cost linear in messages and argument text."""
    answers, whole_turn, orphans, turns = _link(trajectory.messages)
    steps: list[Step] = []
    for index in turns:
        message = trajectory.messages[index]
        for number, call in enumerate(message.tool_calls):
            steps.append(Step(index, number, answers.get((index, number)), call, call_key(call)))
        if not message.tool_calls and index in whole_turn:
            action = _text_action(message.content)
            said = " ".join(message.content.split())
            key = call_key(action) if action else f"\0{said or index}"  # an empty text is like no other
            steps.append(Step(index, None, whole_turn[index], action, key))
    return View(trajectory, steps, orphans, turns)


def _text_action(content: str) -> ToolCall | None:
    blocks = _FENCED.findall(content[-_ACTION_CHARS:])
    if not blocks:
        return None
    return ToolCall("", TEXT_ACTION, orjson.dumps({"command": _encodable(blocks[-1])}).decode())


def _encodable(text: str) -> str:
    """Without lone surrogates, which orjson refuses."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _link(
    messages: list[Message],
) -> tuple[dict[tuple[int, int], int], dict[int, int], list[int], list[int]]:
    """(result of each answered call, result of each turn without calls, orphan results, assistant turns)."""
    open_by_id: dict[str, list[tuple[int, int]]] = {}
    waiting: set[tuple[int, int]] = set()
    answers: dict[tuple[int, int], int] = {}
    whole_turn: dict[int, int] = {}
    orphans: list[int] = []
    turns: list[int] = []
    for index, message in enumerate(messages):
        if message.role == "assistant":
            turns.append(index)
            for number, call in enumerate(message.tool_calls):
                waiting.add((index, number))
                open_by_id.setdefault(call.id, []).append((index, number))
            continue
        if not is_observation(message):
            continue
        place = _answered(message, turns[-1] if turns else -1, messages, waiting, open_by_id)
        if place is not None:
            waiting.discard(place)
            answers[place] = index
        elif turns and not messages[turns[-1]].tool_calls and turns[-1] not in whole_turn:
            whole_turn[turns[-1]] = index
        else:
            orphans.append(index)
    return answers, whole_turn, orphans, turns


def _answered(
    result: Message,
    turn: int,
    messages: list[Message],
    waiting: set[tuple[int, int]],
    open_by_id: dict[str, list[tuple[int, int]]],
) -> tuple[int, int] | None:
    """The open call that a result answers: the latest with its id; without one, the first of the latest turn."""
    if result.tool_call_id:
        places = open_by_id.get(result.tool_call_id, [])
        while places and places[-1] not in waiting:
            places.pop()
        return min((place for place in places if place[0] == places[-1][0] and place in waiting), default=None)
    calls = len(messages[turn].tool_calls) if turn >= 0 else 0
    return next(((turn, number) for number in range(calls) if (turn, number) in waiting), None)
