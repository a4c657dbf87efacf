"""Agent Data Protocol rows: {id, content: [text_observation, message_action, api_action, code_action, …], details}.

Older rows carry no ids: an observation from the environment answers the action before it. Newer ones have a
`tool_call_id` on both. A `description` is what the agent said before acting: it opens the turn's text.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pipelines.synthesis.ingest.assemble import assemble
from pipelines.synthesis.ingest.parts import content_text, json_text, mapping, omitted, tools_text
from pipelines.synthesis.ingest.records import Notes, Place, RecordError, SetAside
from schemas.trajectory import Message, Outcome, Task, ToolCall, Trajectory

__all__ = ["AgentData"]

_KINDS = {"text_observation", "message_action", "api_action", "code_action", "web_observation"}


def _kind(item: Any) -> str | None:
    found = item.get("class_", item.get("type")) if isinstance(item, dict) else None
    return found if isinstance(found, str) and found in _KINDS else None


class AgentData:
    """One trajectory a row."""

    name = "agent-data-protocol"

    def matches(self, value: Any) -> float:
        """`content` whose items name one of the protocol's classes."""
        content = value.get("content") if isinstance(value, dict) else None
        if not isinstance(content, list) or not content:
            return 0.0
        return 0.95 if all(_kind(item) for item in content[:3]) else 0.0

    def read(self, value: Any, place: Place) -> Iterator[Trajectory | SetAside]:
        """One trajectory a row."""
        notes = Notes()
        messages: list[Message] = []
        for index, item in enumerate(value["content"]):
            messages.append(_message(item, messages, notes, f"content[{index}]"))
        details = mapping(value.get("details"))
        success = details.get("resolved", details.get("success"))
        yield assemble(
            source=self.name,
            place=place,
            messages=messages,
            notes=notes,
            task=Task(id=str(value["id"]) if value.get("id") is not None else None),
            tools=tools_text(details.get("tools"), notes),
            outcome=Outcome(success, None, "details") if isinstance(success, bool) else Outcome(),
        )


def _message(item: Any, before: list[Message], notes: Notes, field: str) -> Message:
    kind = _kind(item)
    if kind is None:
        raise RecordError(f"{field}.class_", "must be one of " + ", ".join(sorted(_KINDS)), item)
    thought = item.get("description")
    content = thought if isinstance(thought, str) else ""
    identity = str(item.get("tool_call_id") or "")
    if kind == "message_action":
        said = content_text(item.get("content"), notes, field)
        return Message(role="assistant", content=f"{content}\n\n{said}" if content and said else content or said)
    if kind in ("api_action", "code_action"):
        if kind == "api_action":
            name = item.get("function")
            if not isinstance(name, str):
                raise RecordError(f"{field}.function", "an api_action must name its function", name)
            call = ToolCall(identity, name, json_text(item.get("kwargs") or {}))
        else:
            call = ToolCall(identity, str(item.get("language") or "code"), json_text({"code": item.get("content")}))
        return Message(role="assistant", content=content, tool_calls=[call])
    if kind == "web_observation":
        text = content_text(item.get("axtree") or item.get("html") or "", notes, field)
        if item.get("url"):
            text = f"URL: {item['url']}\n{text}"
        if item.get("image_observation"):
            text += omitted("image", notes)
    else:
        text = content_text(item.get("content"), notes, field)
    answers = bool(before) and before[-1].role == "assistant" and bool(before[-1].tool_calls)
    if identity or (answers and item.get("source") != "user"):
        return Message(role="tool", content=text, tool_call_id=identity or None)
    spoken = any(message.role == "assistant" for message in before)
    return Message(role="user", content=text, name="observation" if spoken and item.get("source") != "user" else None)
