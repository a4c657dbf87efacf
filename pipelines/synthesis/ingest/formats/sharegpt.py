"""ShareGPT rows: conversations[{from, value}] with function_call / observation turns; `tools` is JSON text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pipelines.synthesis.ingest.assemble import assemble
from pipelines.synthesis.ingest.formats.chat import source_mask
from pipelines.synthesis.ingest.formats.openai_chat import extra_of, outcome_of, task_of
from pipelines.synthesis.ingest.parts import (
    arguments_text,
    canonical_role,
    content_text,
    split_think,
    tools_text,
)
from pipelines.synthesis.ingest.records import Notes, Place, RecordError, SetAside
from schemas.trajectory import Message, ToolCall, Trajectory

__all__ = ["ShareGPT", "sharegpt_messages"]


def function_calls(value: Any, notes: Notes) -> list[ToolCall]:
    """The calls of a function_call turn: one JSON object or a list of them.

    Text that is not JSON is kept whole as the arguments of a call without a name: a malformed call, noted.
    """
    try:
        body = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        body = None
    items = body if isinstance(body, list) else [body]
    calls = []
    for item in items:
        if not isinstance(item, dict) or not isinstance(item.get("name"), str):
            notes.add("function_call turns that are not JSON with a name, kept as they are")
            return [ToolCall("", "", value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))]
        arguments = item.get("arguments", item.get("parameters"))
        calls.append(ToolCall(str(item.get("id") or ""), item["name"], arguments_text(arguments, notes)))
    return calls


def sharegpt_messages(turns: Any, notes: Notes) -> list[Message]:
    """The turns of one conversation. A function_call turn right after a gpt turn of one reply stays its own turn."""
    if not isinstance(turns, list):
        raise RecordError("conversations", "must be a list of turns", turns)
    messages: list[Message] = []
    for index, turn in enumerate(turns):
        field = f"conversations[{index}]"
        if not isinstance(turn, dict):
            raise RecordError(field, "a turn must be an object", turn)
        speaker = turn.get("from", turn.get("role"))
        value = turn.get("value", turn.get("content"))
        train, weight = source_mask(turn)
        if speaker in ("function_call", "tool_call"):
            calls = function_calls(value, notes)
            messages.append(Message(role="assistant", tool_calls=calls, train=train, weight=weight))
            continue
        role = canonical_role(speaker, f"{field}.from")
        message = Message(role=role, content=content_text(value, notes, f"{field}.value"))
        if role == "assistant":
            message.reasoning, message.content = split_think(message.content, notes)
            message.train, message.weight = train, weight
        messages.append(message)
    return messages


class ShareGPT:
    """{conversations: [{from, value}], tools, system}."""

    name = "sharegpt"

    def matches(self, value: Any) -> float:
        """`conversations` whose first turns have `from` and `value`."""
        if not isinstance(value, dict):
            return 0.0
        turns = value.get("conversations", value.get("conversation"))
        if not isinstance(turns, list) or not turns:
            return 0.0
        return 0.8 if all(isinstance(turn, dict) and "from" in turn for turn in turns[:3]) else 0.0

    def read(self, value: Any, place: Place) -> Iterator[Trajectory | SetAside]:
        """One trajectory a row."""
        notes = Notes()
        messages = sharegpt_messages(value.get("conversations", value.get("conversation")), notes)
        system = value.get("system")
        if isinstance(system, str) and system:
            messages.insert(0, Message(role="system", content=system))
        yield assemble(
            source=self.name,
            place=place,
            messages=messages,
            notes=notes,
            task=task_of(value),
            tools=tools_text(value.get("tools"), notes),
            outcome=outcome_of(value),
            extra=extra_of(value),
        )
