"""The body of a chat completion as a reply: whatever a server sends becomes text, calls and a reason to stop.

Read are `content` (text, parts or null), `tool_calls` (arguments as text or object), the older `function_call`,
`reasoning_content` or `reasoning`, `refusal`, `finish_reason` and `usage`. Nothing is raised for what is missing or of
the wrong shape: `problem` names it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from pipelines.synthesis.chat import CALL, split_thinking
from pipelines.synthesis.ingest.parts import arguments_text, content_text, mapping
from pipelines.synthesis.ingest.records import Notes, RecordError
from pipelines.synthesis.styles import parse_turn
from schemas.trajectory import Message, ToolCall

__all__ = ["Reply", "read_body", "to_message"]

_SURROGATE = re.compile("[\ud800-\udfff]")
_ENDED = {"", "stop", "tool_calls", "function_call", "eos", "end_turn", "tool_use", "stop_sequence"}
_CUT = {"length", "max_tokens", "max_output_tokens", "model_length"}
BYTES_A_TOKEN = 4  # to estimate what a server without `usage` has done


@dataclass(slots=True)
class Reply:
    """One reply. `stop`: stop, length, content_filter, refusal, error, or the server's own word. `problem`: "" or a
    kind (bad_body, no_choices, empty, cut, refused, filtered; timeout, connection, http_N, too_large of the client);
    `detail` says more. `prompt_tokens`, `completion_tokens` are the server's, or estimated from bytes."""

    content: str = ""
    reasoning: str | None = None
    calls: list[tuple[str, str]] = field(default_factory=list)
    stop: str = "stop"
    problem: str = ""
    detail: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    estimated: bool = False

    def to_record(self) -> dict[str, Any]:
        """What a journal keeps of it."""
        return {name: getattr(self, name) for name in ("content", "reasoning", "calls", "stop", "problem", "detail")}

    @classmethod
    def from_record(cls, record: dict[str, Any], usage: dict[str, Any]) -> Reply:
        """The inverse of `to_record`, with the tokens of the journal's line."""
        calls = [(name, arguments) for name, arguments in record["calls"]]
        known = {name: record[name] for name in ("content", "reasoning", "stop", "problem", "detail")}
        counts = usage["prompt"], usage["completion"], bool(usage.get("estimated"))
        return cls(**known, calls=calls, prompt_tokens=counts[0], completion_tokens=counts[1], estimated=counts[2])


def read_body(body: bytes, prompt_bytes: int) -> Reply:
    """Read a response body. `prompt_bytes` is the size of the request, for servers that count no tokens."""
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError) as error:
        return Reply(stop="error", problem="bad_body", detail=f"the body is not JSON: {error}"[:200])
    if not isinstance(parsed, dict):
        return Reply(stop="error", problem="bad_body", detail="the body is no JSON object")
    choices = parsed.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        said = parsed.get("error") or parsed.get("detail") or "no choice with a message"
        reply = Reply(stop="error", problem="no_choices", detail=_text(json.dumps(said))[:200])
    else:
        reply = _read_message(message, choice.get("finish_reason"))
    _count_tokens(reply, mapping(parsed.get("usage")), prompt_bytes)
    return reply


def _read_message(message: dict[str, Any], finish: Any) -> Reply:
    reply = Reply()
    try:
        reply.content = _text(content_text(message.get("content"), Notes(), "content"))
        thought = message.get("reasoning_content", message.get("reasoning"))
        reply.reasoning = _text(thought) if isinstance(thought, str) and thought else None
        calls = message.get("tool_calls")
        if not calls and message.get("function_call"):
            calls = [message["function_call"]]
        reply.calls = [_call(call) for call in (calls if isinstance(calls, list) else [])]
    except (RecordError, RecursionError) as error:
        return Reply(stop="error", problem="bad_body", detail=_text(str(error))[:200])
    reason = _text(finish)[:40].lower() if isinstance(finish, str) else ""
    refusal = message.get("refusal")
    if isinstance(refusal, str) and refusal:
        reply.content, reply.stop, reply.problem = reply.content or _text(refusal), "refusal", "refused"
    elif reason == "content_filter":
        reply.stop, reply.problem = reason, "filtered"
    elif reason in _CUT:
        reply.stop, reply.problem = "length", "cut"
    elif not reply.content.strip() and not reply.calls:
        reply.stop, reply.problem = "error", "empty"
    else:
        reply.stop = "stop" if reason in _ENDED else reason
    return reply


def _call(raw: Any) -> tuple[str, str]:
    """(name, arguments as JSON text) of a structured call; what has no name gets an empty one, which no tool has."""
    outer = mapping(raw)
    body = mapping(outer.get("function")) or outer
    name, arguments = body.get("name"), body.get("arguments")
    return _text(name) if isinstance(name, str) else "", _text(arguments_text(arguments, Notes()))


def _count_tokens(reply: Reply, usage: Any, prompt_bytes: int) -> None:
    prompt, completion = usage.get("prompt_tokens"), usage.get("completion_tokens")
    known = all(isinstance(count, int) and 0 <= count < 2**40 for count in (prompt, completion))
    if known:
        reply.prompt_tokens, reply.completion_tokens = prompt, completion
        return
    written = reply.content + (reply.reasoning or "") + "".join(name + text for name, text in reply.calls)
    reply.estimated = True
    reply.prompt_tokens = -(-prompt_bytes // BYTES_A_TOKEN)
    reply.completion_tokens = -(-len(written.encode()) // BYTES_A_TOKEN)


def _text(value: str) -> str:
    """Without lone surrogates, which no file can hold."""
    return _SURROGATE.sub("\ufffd", value)


def to_message(reply: Reply, tools: str, style: str, first_call: int) -> tuple[Message, str]:
    """(assistant turn, problem) of a reply to a request in a call style. Calls are numbered from `first_call`.

    Text calls are read from the content wherever the server gave no structured ones. `problem` is the reply's, or
    "malformed_call" when something in it was meant as a call and could not be read.
    """
    calls = [ToolCall(f"call_{first_call + n}", name, text) for n, (name, text) in enumerate(reply.calls)]
    reasoning, content, problem = reply.reasoning, reply.content, reply.problem
    if not calls and (style != "native" or CALL in content):
        parsed = parse_turn(content, tools, style, first_call=first_call)
        calls, content = parsed.tool_calls, parsed.content
        reasoning = "\n".join(part for part in (reasoning, parsed.reasoning) if part) or None
        problem = problem or ("malformed_call" if parsed.problem else "")
    elif reasoning is None:
        reasoning, content = split_thinking(content, None)
    if not calls and not content.strip() and not problem:  # all of it was thought, perhaps without an end
        problem = "empty"
    stop = "error" if problem == "empty" else reply.stop
    return Message("assistant", content, reasoning, calls, stop=stop), problem
