"""Small shared readings: content parts to text, arguments, tools, roles, think blocks. No guess goes unnoted."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from pipelines.synthesis.ingest.records import Notes, RecordError, shorten
from schemas.trajectory import Message, ToolCall

__all__ = [
    "OMITTED",
    "arguments_text",
    "call_from_function",
    "canonical_role",
    "content_text",
    "json_text",
    "mapping",
    "omitted",
    "split_think",
    "task_text",
    "tools_text",
]

OMITTED = re.compile(r"\[(image|audio|video|file|document|[a-z_]+) omitted\]")
_MEDIA = {
    "image": "image",
    "image_url": "image",
    "input_image": "image",
    "audio": "audio",
    "input_audio": "audio",
    "video": "video",
    "video_url": "video",
    "file": "file",
    "document": "document",
}
_TEXT_PARTS = {"text", "input_text", "output_text", "refusal"}
_ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "ai": "assistant",
    "gpt": "assistant",
    "model": "assistant",
    "chatgpt": "assistant",
    "bot": "assistant",
    "tool": "tool",
    "function": "tool",
    "ipython": "tool",
    "observation": "tool",
    "tool_response": "tool",
    "function_response": "tool",
    "environment": "tool",
}


def json_text(value: Any) -> str:
    """JSON text of a parsed value: key order kept, non-ASCII as it is, `", "` and `": "` as separators."""
    return json.dumps(value, ensure_ascii=False)


def mapping(value: Any) -> Mapping[str, Any]:
    """`value` when it is an object, else an empty one: for optional parts of a record."""
    return value if isinstance(value, dict) else {}


def canonical_role(role: Any, field: str) -> str:
    """system, user, assistant or tool. Raises RecordError for a role that no known format uses."""
    known = _ROLES.get(role) if isinstance(role, str) else None
    if known is None:
        raise RecordError(field, "unknown role; known: " + ", ".join(sorted(_ROLES)), role)
    return known


def omitted(kind: str, notes: Notes) -> str:
    """The marker that stands for a part that text cannot hold; counted in the notes."""
    marker = f"[{kind} omitted]"
    notes.add(f"parts replaced by '{marker}'")
    return marker


def content_text(content: Any, notes: Notes, field: str) -> str:
    """The text of a content field: None, a string, or parts (text joined as it is, media as markers).

    Raises RecordError for content that is neither.
    """
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        content = [content]
    if not isinstance(content, list):
        raise RecordError(field, "content must be text, a list of parts or null", content)
    return "".join(_part_text(part, notes, f"{field}[{index}]") for index, part in enumerate(content))


def _part_text(part: Any, notes: Notes, field: str) -> str:
    if isinstance(part, str):
        notes.add("content parts that are bare strings, taken as text")
        return part
    if not isinstance(part, dict):
        raise RecordError(field, "a content part must be an object", part)
    kind = str(part.get("type", "text"))[:40]
    if kind in _TEXT_PARTS:
        text = part.get("text", part.get("value", part.get("refusal")))
        if text is None:
            if "type" not in part and any(value is not None for value in part.values()):
                raise RecordError(field, "a content part must have a type or a text", part)
            return ""
        if not isinstance(text, str):
            raise RecordError(field, "the text of a part must be a string", text)
        return text
    if kind in ("tool_reference",):
        return ""
    return omitted(_MEDIA.get(kind, kind), notes)


def arguments_text(arguments: Any, notes: Notes) -> str:
    """Call arguments as JSON text: a string stays as it is unless it is JSON text of JSON text (undone, noted)."""
    if arguments is None:
        notes.add("calls without arguments, taken as {}")
        return "{}"
    if not isinstance(arguments, str):
        return json_text(arguments)
    if arguments[:1] == '"':
        try:
            inner = json.loads(arguments)
            if isinstance(inner, str) and isinstance(json.loads(inner), dict):
                notes.add("arguments encoded twice, decoded once")
                return inner
        except ValueError:
            return arguments
    return arguments


def call_from_function(raw: Any, notes: Notes, field: str) -> ToolCall:
    """A call of OpenAI shape {id, function: {name, arguments}} or flat {id, name, arguments}.

    Raises RecordError when there is no name.
    """
    if not isinstance(raw, dict):
        raise RecordError(field, "a call must be an object", raw)
    function = raw.get("function")
    body = function if isinstance(function, dict) else raw
    name = body.get("name", function if isinstance(function, str) else None)
    if not isinstance(name, str):
        raise RecordError(f"{field}.name", "a call must have a name", name)
    identity = raw.get("id") or raw.get("tool_call_id") or ""
    return ToolCall(str(identity), name, arguments_text(body.get("arguments"), notes))


def tools_text(tools: Any, notes: Notes) -> str:
    """Tool definitions as JSON text, each {"type": "function", "function": {name, description, parameters}}.

    Takes a list or its JSON text, OpenAI, Anthropic (`input_schema`) or bare shape. A text already in OpenAI shape
    stays as it is. What cannot be parsed is noted and left out.
    """
    if not tools:
        return "[]"
    text = tools if isinstance(tools, str) else None
    if text is not None:
        try:
            tools = json.loads(text)
        except ValueError:
            notes.add(f"tools are not JSON, left out: {shorten(text, 60)}")
            return "[]"
    if isinstance(tools, dict):
        tools = [tools]
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        notes.add(f"tools are not a list of objects, left out: {shorten(tools, 60)}")
        return "[]"
    shaped = [_tool(tool) for tool in tools]
    if shaped == tools and text is not None:
        return text
    return json_text(shaped)


def _tool(tool: Mapping[str, Any]) -> Any:
    function = tool.get("function")
    if isinstance(function, dict):
        shaped = tool if "type" in tool else {"type": "function", **tool}
        if isinstance(function.get("parameters"), str):
            return {**shaped, "function": {**function, "parameters": _parameters(function["parameters"])}}
        return shaped
    if "name" not in tool:
        return tool
    body = {key: value for key, value in tool.items() if key not in ("type", "input_schema", "inputSchema")}
    schema = tool.get("input_schema", tool.get("inputSchema"))
    if schema is not None:
        body["parameters"] = schema
    return {"type": "function", "function": body}


def _parameters(text: str) -> Any:
    """Parameters written as JSON text (axolotl's way around Arrow's merged columns); other text stays text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def split_think(content: str, notes: Notes) -> tuple[str | None, str]:
    """(reasoning, rest) of an assistant text that starts with a think block; (None, text) when there is none.

    Only a closing tag (the opening one was in the prompt) also counts, and is noted. An open block that never
    closes stays text.
    """
    close = content.find("</think>")
    if close < 0:
        return None, content
    before, after = content[:close], content[close + len("</think>") :]
    stripped = before.lstrip()
    if stripped.startswith("<think>"):
        inner = stripped[len("<think>") :]
    elif "<think>" in before:
        return None, content
    else:
        notes.add("reasoning closed by </think> without an opening tag")
        inner = before
    return inner.strip("\n"), after.lstrip("\n")


def task_text(messages: list[Message]) -> str:
    """The first user text: what was asked, when the source names no task."""
    return next((message.content for message in messages if message.role == "user"), "")
