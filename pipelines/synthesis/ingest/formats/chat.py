"""Chat messages ({role, content, tool_calls, …}) to canonical ones: shared by every reader of that shape."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pipelines.synthesis.ingest.parts import (
    arguments_text,
    call_from_function,
    canonical_role,
    content_text,
    json_text,
    split_think,
)
from pipelines.synthesis.ingest.records import Notes, RecordError
from schemas.trajectory import Message, ToolCall

__all__ = ["chat_message", "chat_messages", "looks_like_messages", "source_mask"]

_TRAINED_WHEN_TRUE = ("train", "training", "loss", "step_loss_mask", "trainable", "loss_mask")
_MASKED_WHEN_TRUE = ("turn_mask", "masked")
_WEIGHTS = ("weight", "loss_weight", "loss_scale")
_MASK_KEYS = frozenset((*_TRAINED_WHEN_TRUE, *_MASKED_WHEN_TRUE, *_WEIGHTS))


def looks_like_messages(value: Any) -> bool:
    """A list of which one of the first items has a role and either content or calls."""
    if not isinstance(value, list) or not value:
        return False
    return any(
        isinstance(item, dict) and "role" in item and ("content" in item or "tool_calls" in item or len(item) == 1)
        for item in value[:3]
    )


def source_mask(raw: Mapping[str, Any]) -> tuple[bool | None, float | None]:
    """(train, weight) that a training framework's field on the message says; (None, None) when there is none.

    OpenAI `weight`, axolotl `train`, ms-swift `loss` and `loss_scale`, slime `step_loss_mask`, tinker `trainable`,
    verl `loss_mask`, LLaMA-Factory `loss_weight`, SWE-Lego `turn_mask`, torchtune `masked`. Raises RecordError for a
    value that is neither absent (null), a boolean nor a number: a mask that cannot be read must not end as trained.
    """
    if raw.keys().isdisjoint(_MASK_KEYS):
        return None, None
    for name in sorted(raw.keys() & _MASK_KEYS):
        if not isinstance(raw[name], bool | int | float | None):
            raise RecordError(name, "a mask field of a message must be a boolean or a number", raw[name])
    weight: float | None = None
    for name in _WEIGHTS:
        found = raw.get(name)
        if isinstance(found, int | float) and not isinstance(found, bool):
            weight = float(found)
            break
    for name in _TRAINED_WHEN_TRUE:
        found = raw.get(name)
        if isinstance(found, bool | int | float):
            return found == 1, weight
    for name in _MASKED_WHEN_TRUE:
        found = raw.get(name)
        if isinstance(found, bool):
            return not found, weight
    return (None, None) if weight is None else (weight > 0, weight)


def chat_message(raw: Any, notes: Notes, field: str) -> Message:
    """One message of OpenAI shape; errors name `field` (for example 'messages[3]').

    Legacy `function_call`, role names of other frameworks, reasoning in its own key or a leading think block, mask
    fields and `is_error` are understood. Raises RecordError.
    """
    if not isinstance(raw, dict):
        raise RecordError(field, "a message must be an object", raw)
    role = canonical_role(raw.get("role"), f"{field}.role")
    content, thought = _without_thinking(raw.get("content"))
    message = Message(role=role, content=content_text(content, notes, f"{field}.content"))
    name = raw.get("name")
    message.name = name if isinstance(name, str) and name else None
    if role == "assistant":
        _assistant(message, raw, notes, field, thought)
    elif role == "tool" or raw.get("tool_call_id"):
        if role != "tool":
            notes.add(f"results labelled role '{role}', read as tool")
            message.role = "tool"
        _result(message, raw, notes)
    elif raw.get("tool_calls"):
        raise RecordError(f"{field}.tool_calls", f"a {role} message carries calls", raw["tool_calls"])
    return message


def _without_thinking(content: Any) -> tuple[Any, str | None]:
    """(content, reasoning): thinking parts (tinker, Anthropic by way of proxies) apart from the others."""
    if not isinstance(content, list):
        return content, None
    thoughts = [part for part in content if isinstance(part, dict) and part.get("type") == "thinking"]
    if not thoughts:
        return content, None
    rest = [part for part in content if part not in thoughts]
    return rest, "\n\n".join(str(part.get("thinking") or "") for part in thoughts)


def _thinking_blocks(blocks: Any) -> str | None:
    """The thinking that LiteLLM (SWE-agent 1.x) keeps beside the content."""
    if not isinstance(blocks, list):
        return None
    thoughts = (block.get("thinking") for block in blocks if isinstance(block, dict))
    return "\n\n".join(thought for thought in thoughts if isinstance(thought, str)) or None


def _assistant(message: Message, raw: Mapping[str, Any], notes: Notes, field: str, thought: str | None) -> None:
    calls = raw.get("tool_calls") or []
    if not isinstance(calls, list):
        raise RecordError(f"{field}.tool_calls", "calls must be a list or null", calls)
    message.tool_calls = [
        call_from_function(call, notes, f"{field}.tool_calls[{index}]") for index, call in enumerate(calls)
    ]
    legacy = raw.get("function_call")
    if legacy and not (isinstance(legacy, dict) and all(value is None for value in legacy.values())):
        if not isinstance(legacy, dict) or not isinstance(legacy.get("name"), str):
            raise RecordError(f"{field}.function_call", "a call must be an object with a name", legacy)
        if message.tool_calls:
            notes.add("function_call beside tool_calls, left out")
        else:
            message.tool_calls = [ToolCall("", legacy["name"], arguments_text(legacy.get("arguments"), notes))]
    for index, broken in enumerate(raw.get("unparsed_tool_calls") or []):
        text = broken.get("raw_text") if isinstance(broken, dict) else None
        if not isinstance(text, str):
            raise RecordError(f"{field}.unparsed_tool_calls[{index}].raw_text", "must be a string", broken)
        notes.add("calls that the source could not parse, kept raw")
        message.tool_calls.append(ToolCall("", "", text))
    refusal = raw.get("refusal")
    if not message.content and isinstance(refusal, str) and refusal:
        notes.add("refusals, taken as the content")
        message.content = refusal
    thought = thought or _thinking_blocks(raw.get("thinking_blocks"))
    reasoning = raw.get("reasoning_content") or raw.get("reasoning") or raw.get("thinking") or thought
    if isinstance(reasoning, str) and reasoning:
        message.reasoning = reasoning
    else:
        message.reasoning, message.content = split_think(message.content, notes)
    message.train, message.weight = source_mask(raw)
    stop = raw.get("finish_reason") or raw.get("stop_reason") or raw.get("stop")
    message.stop = stop if isinstance(stop, str) else None


def _result(message: Message, raw: Mapping[str, Any], notes: Notes) -> None:
    identity = raw.get("tool_call_id")
    listed = raw.get("tool_call_ids")
    if not identity and isinstance(listed, list) and listed:
        identity = listed[0]
        if len(listed) > 1:
            notes.add("one result for several calls, bound to the first")
    message.tool_call_id = str(identity) if identity else None
    flag = raw.get("is_error")
    if isinstance(flag, bool):
        message.error, message.signal = flag, "is_error" if flag else None


def chat_messages(items: Any, notes: Notes, field: str = "messages") -> list[Message]:
    """A list of chat messages; ms-swift's `tool_call` and `tool_response` turns are folded in. Raises RecordError."""
    if not isinstance(items, list):
        raise RecordError(field, "must be a list of messages", items)
    messages: list[Message] = []
    for index, raw in enumerate(items):
        place = f"{field}[{index}]"
        role = raw.get("role") if isinstance(raw, dict) else None
        if role == "tool_call":
            _swift_call(messages, raw, notes, place)
        else:
            messages.append(chat_message(raw, notes, place))
    return messages


def _swift_call(messages: list[Message], raw: Mapping[str, Any], notes: Notes, field: str) -> None:
    """A turn of role tool_call belongs to the assistant turn before it (ms-swift merges consecutive ones)."""
    content = raw.get("content")
    try:
        body = json.loads(content) if isinstance(content, str) else content
    except ValueError:
        body = None
    if not isinstance(body, dict) or not isinstance(body.get("name"), str):
        raise RecordError(f"{field}.content", "a tool_call turn must be JSON with name and arguments", content)
    if not messages or messages[-1].role != "assistant":
        train, weight = source_mask(raw)
        messages.append(Message(role="assistant", train=train, weight=weight))
    arguments = body.get("arguments", {})
    text = arguments if isinstance(arguments, str) else json_text(arguments)
    messages[-1].tool_calls.append(ToolCall(str(body.get("id") or ""), body["name"], text))
