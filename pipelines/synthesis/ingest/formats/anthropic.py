"""Anthropic content blocks (text, thinking, tool_use, tool_result, image) and API-log rows made of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pipelines.synthesis.ingest.assemble import assemble
from pipelines.synthesis.ingest.formats.openai_chat import extra_of, outcome_of, task_of
from pipelines.synthesis.ingest.parts import canonical_role, content_text, json_text, tools_text
from pipelines.synthesis.ingest.records import Notes, Place, RecordError, SetAside
from schemas.trajectory import Message, ToolCall, Trajectory

__all__ = ["Anthropic", "assistant_message", "has_blocks", "user_messages"]

_BLOCKS = {"tool_use", "tool_result", "thinking", "redacted_thinking"}
_FOREIGN = {"tool_calls", "tool_call_id", "trainable"}
_EXIT_CODE = re.compile(r"(?:Error: )?Exit code (\d+)")


def has_blocks(value: Any) -> bool:
    """A list of messages of which one holds a block that only Anthropic writes, and none a key of another format."""
    if not isinstance(value, list) or any(
        isinstance(item, dict) and not item.keys().isdisjoint(_FOREIGN) for item in value[:12]
    ):
        return False
    return any(
        isinstance(block, dict) and str(block.get("type")) in _BLOCKS
        for item in value[:12]
        if isinstance(item, dict) and isinstance(item.get("content"), list)
        for block in item["content"]
    )


def assistant_message(blocks: Any, notes: Notes, field: str) -> Message:
    """One assistant turn from its blocks (or plain text). Raises RecordError."""
    message = Message(role="assistant")
    if not isinstance(blocks, list):
        message.content = content_text(blocks, notes, field)
        return message
    texts: list[str] = []
    thoughts: list[str] = []
    for index, block in enumerate(blocks):
        kind = block.get("type") if isinstance(block, dict) else None
        if kind == "tool_use":
            identity, name = block.get("id"), block.get("name")
            if not isinstance(name, str):
                raise RecordError(f"{field}[{index}].name", "a call must have a name", name)
            message.tool_calls.append(ToolCall(str(identity or ""), name, json_text(block.get("input", {}))))
        elif kind == "thinking":
            thoughts.append(str(block.get("thinking") or ""))
        elif kind == "redacted_thinking":
            notes.add("thinking blocks redacted by the source")
        else:
            if message.tool_calls:
                notes.add("text after a call, moved before it")
            texts.append(content_text([block], notes, f"{field}[{index}]"))
    if len(texts) > 1:
        notes.add("text blocks of one turn joined by a blank line")
    message.content = "\n\n".join(texts)
    message.reasoning = "\n\n".join(thoughts) or None
    return message


def user_messages(content: Any, notes: Notes, field: str) -> list[Message]:
    """The turns of one user message: a tool turn for every tool_result, one user turn for each run of other blocks."""
    if not isinstance(content, list):
        return [Message(role="user", content=content_text(content, notes, field))]
    messages: list[Message] = []
    pending: list[Any] = []

    def flush() -> None:
        if pending:
            messages.append(Message(role="user", content=content_text(list(pending), notes, field)))
            pending.clear()

    for index, block in enumerate(content):
        if isinstance(block, dict) and block.get("type") == "tool_result":
            flush()
            messages.append(_result(block, notes, f"{field}[{index}].content"))
        else:
            pending.append(block)
    flush()
    return messages


def _result(block: Mapping[str, Any], notes: Notes, field: str) -> Message:
    text = content_text(block.get("content"), notes, field)
    identity, flag = block.get("tool_use_id"), block.get("is_error")
    message = Message(role="tool", content=text, tool_call_id=str(identity) if identity else None)
    if isinstance(flag, bool):
        message.error = flag
    if flag is True:
        code = _EXIT_CODE.match(text)
        message.signal = f"exit_code={code.group(1)}" if code else "is_error"
    return message


class Anthropic:
    """{messages, system, tools} rows of the Messages API, or a bare list of such messages."""

    name = "anthropic"

    def matches(self, value: Any) -> float:
        """Messages that hold tool_use, tool_result or thinking blocks, or tools with input_schema."""
        if isinstance(value, dict):
            if has_blocks(value.get("messages")):
                return 0.85
            tools = value.get("tools")
            first = tools[0] if isinstance(tools, list) and tools else None
            shaped = isinstance(first, dict) and "input_schema" in first
            return 0.8 if shaped and isinstance(value.get("messages"), list) else 0.0
        return 0.85 if has_blocks(value) else 0.0

    def read(self, value: Any, place: Place) -> Iterator[Trajectory | SetAside]:
        """One trajectory a row. A `response` beside the request (an API log) is its last turn."""
        row: Mapping[str, Any] = value if isinstance(value, dict) else {"messages": value}
        notes = Notes()
        messages: list[Message] = []
        if row.get("system"):
            messages.append(Message(role="system", content=content_text(row["system"], notes, "system")))
        items = row.get("messages")
        if not isinstance(items, list):
            raise RecordError("messages", "must be a list of messages", items)
        response = row.get("response")
        if isinstance(response, dict) and response.get("role") == "assistant":
            items = [*items, response]
        for index, raw in enumerate(items):
            field = f"messages[{index}]"
            if not isinstance(raw, dict):
                raise RecordError(field, "a message must be an object", raw)
            role = canonical_role(raw.get("role"), f"{field}.role")
            if role == "assistant":
                message = assistant_message(raw.get("content"), notes, f"{field}.content")
                stop = raw.get("stop_reason")
                message.stop = stop if isinstance(stop, str) else None
                messages.append(message)
            elif role == "user":
                messages.extend(user_messages(raw.get("content"), notes, f"{field}.content"))
            else:
                messages.append(Message(role=role, content=content_text(raw.get("content"), notes, f"{field}.content")))
        yield assemble(
            source=self.name,
            place=place,
            messages=messages,
            notes=notes,
            task=task_of(row),
            tools=tools_text(row.get("tools"), notes),
            outcome=outcome_of(row),
            extra=extra_of(row),
        )
