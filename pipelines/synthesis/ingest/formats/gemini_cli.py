"""Gemini CLI session files: {sessionId, projectHash, messages: [{type: user | gemini | info | error, …}]}.

Newer files are lines: the header, then a message a line, with `{"$set": …}` lines between (header fields). A session
that was rewound (`$rewindTo`) is refused: what the model then saw cannot be told from the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pipelines.synthesis.ingest.assemble import assemble
from pipelines.synthesis.ingest.parts import content_text, json_text, mapping
from pipelines.synthesis.ingest.records import Notes, Place, RecordError, Session, SetAside
from schemas.trajectory import Message, ToolCall, Trajectory

__all__ = ["GeminiCli"]


class GeminiCli:
    """One session a file."""

    name = "gemini-cli"

    def matches(self, value: Any) -> float:
        """`sessionId` and `projectHash` beside `messages`."""
        if isinstance(value, Session):
            headed = bool(value.lines) and _is_header(value.lines[0][1])
            return 0.95 * value.share(_is_line) if headed else 0.0
        if not isinstance(value, dict) or not isinstance(value.get("messages"), list):
            return 0.0
        return 0.95 if "sessionId" in value and "projectHash" in value else 0.0

    def read(self, value: Any, place: Place) -> Iterator[Trajectory | SetAside]:
        """One trajectory a file."""
        notes = Notes()
        messages: list[Message] = []
        model = None
        if isinstance(value, Session):
            value = _joined(value)
        for index, raw in enumerate(value["messages"]):
            field = f"messages[{index}]"
            kind = raw.get("type") if isinstance(raw, dict) else None
            if kind == "user":
                messages.append(Message(role="user", content=_text(raw.get("content"), notes, field)))
            elif kind in ("gemini", "model"):
                model = raw.get("model") or model
                messages.extend(_turn(raw, notes, field))
            elif kind in ("info", "error", "warning"):
                notes.add(f"messages of type '{kind}', not turns")
                if kind == "error" and messages and messages[-1].role == "assistant":
                    messages[-1].stop = "error"
            else:
                raise RecordError(f"{field}.type", "must be user, gemini, info, warning or error", kind)
        extra = {"session": value["sessionId"], "model": model}
        yield assemble(source=self.name, place=place, messages=messages, notes=notes, extra=extra)


def _is_header(value: Any) -> bool:
    return isinstance(value, dict) and "sessionId" in value and "projectHash" in value and "messages" not in value


def _is_line(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    return _is_header(value) or "$set" in value or "$rewindTo" in value or ("type" in value and "content" in value)


def _joined(session: Session) -> dict[str, Any]:
    """The lines as one session of the older shape."""
    whole: dict[str, Any] = {"messages": []}
    for _, line in session.lines:
        if not isinstance(line, dict):
            raise RecordError("", "a line must be an object", line)
        if "$rewindTo" in line:
            raise RecordError("$rewindTo", "the session was rewound: what the model saw cannot be told", line)
        if _is_header(line) or "$set" in line:
            whole.update(mapping(line.get("$set")) or line)
        else:
            whole["messages"].append(line)
    return whole


def _text(content: Any, notes: Notes, field: str) -> str:
    """Text, or parts of the Gemini API ({text} or {inlineData})."""
    if isinstance(content, list):
        content = [
            part if not isinstance(part, dict) or "type" in part or "text" in part else {"type": "image"}
            for part in content
        ]
    return content_text(content, notes, f"{field}.content")


def _turn(raw: Mapping[str, Any], notes: Notes, field: str) -> Iterator[Message]:
    thoughts = [
        "\n".join(str(thought.get(key)) for key in ("subject", "description") if thought.get(key))
        for thought in raw.get("thoughts") or []
        if isinstance(thought, dict)
    ]
    message = Message(role="assistant", content=_text(raw.get("content"), notes, field))
    message.reasoning = "\n\n".join(thoughts) or None
    results = []
    for index, call in enumerate(raw.get("toolCalls") or []):
        if not isinstance(call, dict) or not isinstance(call.get("name"), str):
            raise RecordError(f"{field}.toolCalls[{index}].name", "a call must have a name", call)
        identity = str(call.get("id") or "")
        message.tool_calls.append(ToolCall(identity, call["name"], json_text(call.get("args", {}))))
        if call.get("result") is not None or call.get("status") in ("error", "cancelled"):
            results.append(_result(call, identity))
    yield message
    yield from results


def _result(call: Mapping[str, Any], identity: str) -> Message:
    status = call.get("status")
    texts = []
    for part in call.get("result") or []:
        response = part.get("functionResponse") if isinstance(part, dict) else None
        body = response.get("response") if isinstance(response, dict) else None
        if isinstance(body, dict):
            text = body.get("output", body.get("error"))
            texts.append(text if isinstance(text, str) else json_text(body))
    error = None if status is None else status in ("error", "cancelled")
    signal = f"status={status}" if error else None
    return Message(
        role="tool",
        content="\n".join(texts),
        tool_call_id=identity or None,
        name=call["name"],
        error=error,
        signal=signal,
    )
