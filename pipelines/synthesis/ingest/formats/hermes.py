"""Rows whose calls are written as text: Hermes / Qwen `<tool_call>` turns and `<function=…>` turns (SWE-smith XML,
OpenHands without native calls, Qwen3-Coder), in `messages` or in ShareGPT `conversations`.

Texts are parsed only where the row says that tools are in play (declared in the system prompt or in `tools`, or
answered by `<tool_response>` / "OBSERVATION:" turns): a conversation that merely quotes a tag stays text. Tool
definitions found in the system prompt become `tools`; the prompt itself stays as it was.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pipelines.synthesis.ingest.assemble import assemble
from pipelines.synthesis.ingest.formats.chat import chat_messages
from pipelines.synthesis.ingest.formats.openai_chat import extra_of, outcome_of, task_of
from pipelines.synthesis.ingest.formats.sharegpt import sharegpt_messages
from pipelines.synthesis.ingest.formats.text_calls import (
    FUNCTION_TAG,
    function_calls,
    hermes_calls,
    tool_responses,
)
from pipelines.synthesis.ingest.parts import json_text, tools_text
from pipelines.synthesis.ingest.records import Notes, Place, RecordError, SetAside
from schemas.trajectory import Message, Trajectory

__all__ = ["FunctionText", "Hermes"]

_TOOLS = re.compile(r"<tools>\s*(.*?)\s*</tools>", re.S)
_FUNCTION_BLOCK = re.compile(
    r"-{2,} BEGIN FUNCTION #\d+: (?P<name>\S+) -{2,}\n(?P<body>.*?)-{2,} END FUNCTION #\d+ -{2,}", re.S
)
_PARAMETER_LINE = re.compile(r"^\s*\(\d+\) (?P<name>\S+) \((?P<type>[a-z]+), (?P<need>required|optional)\)", re.M)
_HEAD = 24


def _texts(row: Any, role_names: tuple[str, ...]) -> Iterator[str]:
    """The texts of the first turns of some roles, whatever the row's shape."""
    turns = row if isinstance(row, list) else None
    if isinstance(row, dict):
        turns = row.get("messages", row.get("conversations"))
    for turn in turns[:_HEAD] if isinstance(turns, list) else []:
        if isinstance(turn, dict) and turn.get("role", turn.get("from")) in role_names:
            text = turn.get("content", turn.get("value"))
            if isinstance(text, list):
                text = "".join(str(part.get("text", "")) for part in text if isinstance(part, dict))
            if isinstance(text, str):
                yield text


_ASSISTANT = ("assistant", "gpt")
_USER = ("user", "human", "tool")
_SYSTEM = ("system",)


def _messages(value: Any, notes: Notes) -> list[Message]:
    row: Mapping[str, Any] = value if isinstance(value, dict) else {"messages": value}
    if "conversations" in row:
        turns = row["conversations"]
        spoken = isinstance(turns, list) and any(isinstance(turn, dict) and "from" in turn for turn in turns)
        messages = sharegpt_messages(turns, notes) if spoken else chat_messages(turns, notes, "conversations")
        if isinstance(row.get("system"), str) and row["system"]:
            messages.insert(0, Message(role="system", content=row["system"]))
        return messages
    return chat_messages(row.get("messages"), notes)


class Hermes:
    """`<tool_call>` text."""

    name = "hermes"

    def matches(self, value: Any) -> float:
        """An assistant turn with `<tool_call>`, and tools declared or answered."""
        if not isinstance(value, dict | list) or not any("<tool_call>" in text for text in _texts(value, _ASSISTANT)):
            return 0.0
        declared = isinstance(value, dict) and bool(value.get("tools"))
        declared = declared or any("<tools>" in text for text in _texts(value, _SYSTEM))
        answered = any("<tool_response>" in text for text in _texts(value, _USER))
        return 0.9 if declared or answered else 0.0

    def read(self, value: Any, place: Place) -> Iterator[Trajectory | SetAside]:
        """One trajectory a row."""
        notes = Notes()
        messages: list[Message] = []
        tools = tools_text(value.get("tools") if isinstance(value, dict) else None, notes)
        for message in _messages(value, notes):
            if message.role == "assistant" and not message.tool_calls:
                message.tool_calls, message.content = hermes_calls(message.content, notes)
                messages.append(message)
            elif message.role in ("user", "tool") and (texts := tool_responses(message.content)) is not None:
                messages.extend(Message(role="tool", content=text) for text in texts)
            else:
                if message.role == "system" and tools == "[]":
                    tools = _declared(message.content, notes)
                messages.append(message)
        yield _build(self.name, value, place, messages, notes, tools)


class FunctionText:
    """`<function=NAME>` text with "OBSERVATION:" turns."""

    name = "function-text"

    def matches(self, value: Any) -> float:
        """An assistant turn with `<function=…>`, and functions declared or observations as user turns."""
        if not isinstance(value, dict | list):
            return 0.0
        if not any(FUNCTION_TAG.search(text) for text in _texts(value, _ASSISTANT)):
            return 0.0
        if any("<tool_call>" in text for text in _texts(value, _ASSISTANT)):
            return 0.0
        declared = any("BEGIN FUNCTION" in text or "<function=" in text for text in _texts(value, _SYSTEM))
        answered = any(_observation(text) is not None for text in _texts(value, _USER))
        declared = declared or (isinstance(value, dict) and bool(value.get("tools")))
        return 0.9 if declared or answered else 0.0

    def read(self, value: Any, place: Place) -> Iterator[Trajectory | SetAside]:
        """One trajectory a row."""
        notes = Notes()
        messages: list[Message] = []
        tools = tools_text(value.get("tools") if isinstance(value, dict) else None, notes)
        kinds: dict[tuple[str, str], str] = {}

        def kind_of(function: str, parameter: str) -> str | None:
            return kinds.get((function, parameter))

        called = False
        for message in _messages(value, notes):
            if message.role == "system" and tools == "[]":
                tools, described = _described(message.content, notes)
                kinds.update(described)
            if message.role == "assistant" and not message.tool_calls:
                message.tool_calls, message.content = function_calls(message.content, notes, kind_of)
                called = bool(message.tool_calls)
            elif message.role == "user" and called:
                message.role = "tool"
                if _observation(message.content) is None:
                    notes.add("user turns right after a call, read as its result")
                called = False
            messages.append(message)
        yield _build(self.name, value, place, messages, notes, tools)


def _observation(text: str) -> str | None:
    return text if text.startswith(("OBSERVATION:", "EXECUTION RESULT of [")) else None


def _build(name: str, value: Any, place: Place, messages: list[Message], notes: Notes, tools: str) -> Trajectory:
    row: Mapping[str, Any] = value if isinstance(value, dict) else {}
    if not messages:
        raise RecordError("messages", "the run has no messages")
    return assemble(
        source=name,
        place=place,
        messages=messages,
        notes=notes,
        task=task_of(row),
        tools=tools,
        outcome=outcome_of(row),
        extra=extra_of(row),
    )


def _declared(system: str, notes: Notes) -> str:
    """The definitions inside `<tools>`: a JSON list, or one JSON object a line."""
    found = _TOOLS.search(system)
    if found is None:
        return "[]"
    body = found.group(1)
    try:
        tools = json.loads(body)
    except ValueError:
        try:
            tools = [json.loads(line) for line in body.splitlines() if line.strip()]
        except ValueError:
            notes.add("tools in the system prompt are not JSON, left out")
            return "[]"
    notes.add("tools read from the system prompt, which still holds them")
    return tools_text(tools, notes)


def _described(system: str, notes: Notes) -> tuple[str, dict[tuple[str, str], str]]:
    """The definitions of a `---- BEGIN FUNCTION #1: name ----` prompt, and the type of each parameter."""
    tools, kinds = [], {}
    for block in _FUNCTION_BLOCK.finditer(system):
        name, body = block.group("name"), block.group("body")
        head, _, rest = body.partition("\nParameters:")
        properties: dict[str, Any] = {}
        required = []
        for line in _PARAMETER_LINE.finditer(rest):
            properties[line.group("name")] = {"type": line.group("type")}
            kinds[name, line.group("name")] = line.group("type")
            if line.group("need") == "required":
                required.append(line.group("name"))
        description = (
            head.removeprefix("Description:").strip().removesuffix("No parameters are required for this function.")
        )
        schema = {"type": "object", "properties": properties, "required": required}
        tools.append(
            {"type": "function", "function": {"name": name, "description": description.strip(), "parameters": schema}}
        )
    if tools:
        notes.add("tools read from the system prompt, which still holds them")
    return json_text(tools), kinds
