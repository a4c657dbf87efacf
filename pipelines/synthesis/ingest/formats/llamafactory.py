"""LLaMA-Factory v1 rows: messages of typed parts {type, value}, with `loss_weight`; `tools` a JSON string."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pipelines.synthesis.ingest.assemble import assemble
from pipelines.synthesis.ingest.formats.chat import source_mask
from pipelines.synthesis.ingest.formats.openai_chat import extra_of, outcome_of, task_of
from pipelines.synthesis.ingest.parts import arguments_text, canonical_role, omitted, split_think, tools_text
from pipelines.synthesis.ingest.records import Notes, Place, RecordError, SetAside
from schemas.trajectory import Message, ToolCall, Trajectory

__all__ = ["LlamaFactory"]


def _typed(message: Any) -> bool:
    content = message.get("content") if isinstance(message, dict) else None
    return (
        isinstance(content, list)
        and bool(content)
        and all(isinstance(part, dict) and "type" in part and "value" in part for part in content)
    )


class LlamaFactory:
    """{messages: [{role, content: [{type, value}], loss_weight}], tools}."""

    name = "llamafactory"

    def matches(self, value: Any) -> float:
        """Messages whose parts carry `value`."""
        messages = value.get("messages") if isinstance(value, dict) else None
        if not isinstance(messages, list) or not messages:
            return 0.0
        return 0.9 if all(_typed(message) for message in messages[:3]) else 0.0

    def read(self, value: Any, place: Place) -> Iterator[Trajectory | SetAside]:
        """One trajectory a row."""
        notes = Notes()
        messages = [_message(raw, notes, f"messages[{index}]") for index, raw in enumerate(value["messages"])]
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


def _message(raw: Any, notes: Notes, field: str) -> Message:
    if not isinstance(raw, dict):
        raise RecordError(field, "a message must be an object", raw)
    message = Message(role=canonical_role(raw.get("role"), f"{field}.role"))
    content = raw.get("content")
    parts = content if isinstance(content, list) else [{"type": "text", "value": content}]
    texts, thoughts = [], []
    for index, part in enumerate(parts):
        kind, value = (part.get("type"), part.get("value")) if isinstance(part, dict) else (None, None)
        if kind == "text":
            texts.append(str(value if value is not None else ""))
        elif kind == "reasoning":
            thoughts.append(str(value or ""))
        elif kind == "tool_call":
            message.tool_calls.append(_call(value, notes, f"{field}.content[{index}]"))
        else:
            texts.append(omitted(str(kind).removesuffix("_url"), notes))
    message.content = "".join(texts)
    message.reasoning = "\n\n".join(thoughts) or None
    if message.role == "assistant":
        if message.reasoning is None:
            message.reasoning, message.content = split_think(message.content, notes)
        message.train, message.weight = source_mask(raw)
    return message


def _call(value: Any, notes: Notes, field: str) -> ToolCall:
    try:
        body = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        body = None
    if not isinstance(body, dict) or not isinstance(body.get("name"), str):
        notes.add("tool_call parts that are not JSON with a name, kept as they are")
        return ToolCall("", "", str(value))
    return ToolCall(str(body.get("id") or ""), body["name"], arguments_text(body.get("arguments"), notes))
