"""A model behind an endpoint as an `Agent`: conversation to request, reply to turn."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import xxhash

from pipelines.synthesis import react
from pipelines.synthesis.chat import call_arguments, tool_lines
from pipelines.synthesis.endpoint.client import Asked, EndpointClient
from pipelines.synthesis.endpoint.reply import to_message
from pipelines.synthesis.styles import observation_text, system_text, turn_text
from schemas.recipe.endpoint import EndpointConfig
from schemas.trajectory import Message, ToolCall

__all__ = ["EndpointAgent", "make_request", "wire_messages"]

UNPARSED = "unparsed"


class EndpointAgent:
    """Plays one sample of one task. `written` counts completion tokens; `problems` and `notes` say what went wrong."""

    def __init__(self, client: EndpointClient, task: str, sample: int = 0) -> None:
        self.written = 0
        self.problems: Counter[str] = Counter()
        self.notes: list[str] = []
        self._client, self._task, self._sample = client, task, sample
        self._known = (0, 0)  # tokens and bytes of the last prompt and reply

    def act(self, messages: list[Message], tools: str) -> Message:
        """See `rollout.Agent`. Raises Stopped when the work is to end, DatamixError for wrong settings."""
        settings = self._client.settings
        turn = sum(message.role == "assistant" for message in messages)
        request = make_request(settings, messages, tools, f"{self._task}:{self._sample}")
        reply = self._client.complete(request, Asked(self._task, self._sample, turn, *self._known))
        self.written += reply.completion_tokens
        if reply.prompt_tokens and not reply.estimated:
            size = len(json.dumps(request["messages"], ensure_ascii=False).encode("utf-8", "replace"))
            self._known = (reply.prompt_tokens, size)
        calls = sum(len(message.tool_calls) for message in messages)
        style = settings.call_style if tool_lines(tools) else "native"
        message, problem = to_message(reply, tools, style, calls)
        known = {tool.get("function", tool).get("name") for tool in json.loads(tools)}
        found = [problem] if problem else []
        found += ["unknown_tool" for call in message.tool_calls if call.name not in known]
        broken = [call for call in message.tool_calls if isinstance(call_arguments(call.arguments), str)]
        found += ["malformed_arguments"] * len(broken)
        self.problems.update(found)
        if problem:
            self.notes.append(f"turn {turn}: {problem}" + (f": {reply.detail}" if reply.detail else ""))
        return message


def make_request(settings: EndpointConfig, messages: Sequence[Message], tools: str, attempt: str) -> dict[str, Any]:
    """The body of a chat completion. `attempt` names task and sample: from it and `settings.seed` the seed follows."""
    style = settings.call_style
    listed = tool_lines(tools)
    request: dict[str, Any] = {
        "model": settings.model,
        "messages": wire_messages(messages, tools, style),
        settings.limit_field: settings.max_tokens,
    }
    for name in ("temperature", "top_p"):
        value = getattr(settings, name)
        if value is not None:
            request[name] = value
    if settings.seed is not None:
        request["seed"] = xxhash.xxh3_64_intdigest(f"{settings.seed}:{attempt}".encode()) % 2**31
    if listed and style == "native":
        request["tools"] = [json.loads(line) for line in listed]
    if listed and style == "react":
        request["stop"] = [react.STOP]
    if settings.body:
        request["extra_body"] = settings.body
    return request


def wire_messages(messages: Sequence[Message], tools: str, style: str) -> list[dict[str, Any]]:
    """Messages as an endpoint takes them.

    native: OpenAI's form. Arguments that are no JSON object go as {"unparsed": text}: servers refuse, or break on, what
    they cannot parse. Reasoning is not sent back, as its makers ask. Other styles: plain turns of text; results that
    follow one another are one user turn, and the tools stand in the system turn.
    """
    if style == "native" or not tool_lines(tools):
        return [_native(message) for message in messages]
    turns: list[dict[str, Any]] = []
    if not messages or messages[0].role != "system":
        turns.append({"role": "system", "content": system_text("", tools, style)})
    for index, message in enumerate(messages):
        role, content = message.role, message.content
        if role == "assistant":
            content = turn_text(message, style)[1]
        elif role == "tool":
            role, content = "user", observation_text(content, style)
            if index and messages[index - 1].role == "tool":
                turns[-1]["content"] += f"\n{content}"
                continue
        elif role == "system" and index == 0:
            content = system_text(content, tools, style)
        turns.append({"role": role, "content": content})
    return turns


def _native(message: Message) -> dict[str, Any]:
    made: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        made["content"] = message.content or None
        made["tool_calls"] = [
            {"id": _wire_id(call.id), "type": "function", "function": {"name": call.name, "arguments": _object(call)}}
            for call in message.tool_calls
        ]
    if message.role == "tool":
        made["tool_call_id"] = _wire_id(message.tool_call_id or "")
    return made


def _object(call: ToolCall) -> str:
    if isinstance(call_arguments(call.arguments), str):
        return json.dumps({UNPARSED: call.arguments}, ensure_ascii=False)
    return call.arguments


def _wire_id(identity: str) -> str:
    """Nine letters and digits: the only form that every server takes (Mistral's asks for it)."""
    number = identity.removeprefix("call_")
    return f"call{int(number):05d}" if number.isdigit() else identity
