"""Small trajectories in a few words: the `make` fixture."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from schemas.trajectory import Message, Outcome, Task, ToolCall, Trajectory


def user(text: str = "do it", **fields: Any) -> Message:
    return Message("user", text, **fields)


def say(text: str, **fields: Any) -> Message:
    return Message("assistant", text, **fields)


def call(name: str = "bash", arguments: Any = None, **fields: Any) -> Message:
    """An assistant turn with one call; `arguments` an object, or text as the model wrote it."""
    return calls([(name, arguments)], **fields)


def calls(pairs: list[tuple[str, Any]], content: str = "", **fields: Any) -> Message:
    made = [ToolCall("", name, a if isinstance(a, str) else json.dumps(a or {})) for name, a in pairs]
    return Message("assistant", content, tool_calls=made, **fields)


def bash(command: str, **fields: Any) -> Message:
    return call("bash", {"command": command}, **fields)


def edit(path: str, old: str, new: str, **fields: Any) -> Message:
    return call("edit_file", {"path": path, "old_string": old, "new_string": new}, **fields)


def result(text: str = "fine", error: bool | None = None, signal: str | None = None) -> Message:
    return Message("tool", text, error=error, signal=signal)


def fine(text: str = "fine") -> Message:
    return result(text, error=False)


def failed(text: str = "bad", signal: str = "exit_code=2") -> Message:
    return result(text, error=True, signal=signal)


def build(*messages: Message, **fields: Any) -> Trajectory:
    """A run whose results answer the open calls in order."""
    waiting: list[str] = []
    number = 0
    listed = list(messages)
    if not listed or listed[0].role != "user":
        listed.insert(0, user())
    for message in listed:
        for made in message.tool_calls:
            made.id = f"call_{number}"
            waiting.append(made.id)
            number += 1
        if message.role == "tool" and message.tool_call_id is None and waiting:
            message.tool_call_id = waiting.pop(0)
    success = fields.pop("success", None)
    difficulty = fields.pop("difficulty", None)
    fields.setdefault("source", "test")
    fields.setdefault("family", "recorded")
    return Trajectory(
        id="0123456789abcdef0123456789abcdef",
        messages=listed,
        outcome=Outcome(success),
        task=Task(fields.pop("task_id", None), difficulty=difficulty),
        **fields,
    )


def tool(name: str, properties: dict[str, Any] | None = None, required: list[str] | None = None) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties or {}, "required": required or []}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


@pytest.fixture(scope="session")
def make() -> SimpleNamespace:
    """user, say, call, calls, bash, edit, result, fine, failed, tool, build."""
    names = (user, say, call, calls, bash, edit, result, fine, failed, tool, build)
    return SimpleNamespace(**{function.__name__: function for function in names})
