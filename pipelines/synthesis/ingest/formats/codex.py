"""Codex CLI rollouts: lines {type: session_meta | response_item | event_msg | compacted | turn_context, payload}.

The older form without the wrapper (items alone after a first line with instructions) is read too. Reasoning, text
and calls up to the next result or user message are one turn. event_msg lines repeat the items for the screen.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pipelines.synthesis.ingest.assemble import assemble
from pipelines.synthesis.ingest.parts import arguments_text, canonical_role, content_text, json_text
from pipelines.synthesis.ingest.records import Notes, Place, RecordError, Session, SetAside, shorten
from schemas.trajectory import Message, ToolCall, Trajectory

__all__ = ["Codex"]

_WRAPPERS = {"session_meta", "response_item", "event_msg", "turn_context", "compacted"}
_ITEMS = {
    "message", "reasoning", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output",
    "local_shell_call", "local_shell_call_output", "web_search_call", "ghost_snapshot",
}  # fmt: skip
_SILENT = {"ghost_snapshot", "compaction", "other"}
_EXIT = re.compile(r"^(?:Process exited with code|Exit code:)\s*(-?\d+)", re.M)


def _is_line(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    kind = value.get("type")
    if isinstance(kind, str) and isinstance(value.get("payload"), dict):
        return True
    if kind == "message":
        return "role" in value and "content" in value
    return kind in _ITEMS or "record_type" in value or ("instructions" in value and "id" in value)


class Codex:
    """A rollout of lines."""

    name = "codex"

    def matches(self, value: Any) -> float:
        """Lines of the known types, with a wrapper or a response item among them."""
        if not isinstance(value, Session):
            return 0.0
        typical = any(
            isinstance(line, dict) and (line.get("type") in _WRAPPERS or line.get("type") in _ITEMS)
            for _, line in value.lines
        )
        return 0.9 * value.share(_is_line) if typical else 0.0

    def read(self, value: Any, place: Place) -> Iterator[Trajectory | SetAside]:
        """One trajectory a segment; a compaction starts another with the history it put in place."""
        if not isinstance(value, Session):
            raise RecordError("", "not a session of lines", value)
        rollout = _Rollout()
        segment = 0
        for number, line in value.lines:
            if not _is_line(line):
                received = shorten(line)
                yield SetAside(place.path, f"line {number}", "type", "not a line of a rollout", received, self.name)
                continue
            kind = line.get("type")
            payload = line["payload"] if isinstance(line.get("payload"), dict) else line
            if kind == "compacted" and rollout.messages:
                yield rollout.build(self.name, place.inside(f"segment {segment}"))
                segment += 1
                rollout = rollout.after_compaction(payload)
                continue
            try:
                rollout.take(str(kind), payload)
            except RecordError as error:
                yield error.at(Place(place.path, f"line {number}"), self.name)
        yield rollout.build(self.name, place.inside(f"segment {segment}") if segment else place)


class _Rollout:
    """The turns of one segment."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.notes = Notes()
        self.meta: dict[str, Any] = {}
        self._open: Message | None = None

    def take(self, kind: str, payload: Mapping[str, Any]) -> None:
        """Add one line."""
        if kind == "session_meta" or "record_type" in payload or (kind == "None" and "instructions" in payload):
            self._start(payload)
        elif kind == "turn_context":
            if isinstance(payload.get("model"), str):
                self.meta.setdefault("model", payload["model"])
        elif kind == "event_msg":
            if payload.get("type") in ("turn_aborted", "error") and self._last() is not None:
                self._last().stop = str(payload["type"])  # type: ignore[union-attr]
        elif kind in ("response_item", "None") or kind in _ITEMS:
            self._item(payload)
        else:
            self.notes.add(f"lines of type '{kind}', not turns")

    def _start(self, payload: Mapping[str, Any]) -> None:
        self.meta["session"] = self.meta.get("session") or payload.get("id")
        instructions = payload.get("base_instructions") or payload.get("instructions")
        if isinstance(instructions, dict):
            instructions = instructions.get("text")
        if isinstance(instructions, str) and instructions and not self.messages:
            self.messages.append(Message(role="system", content=instructions))

    def _last(self) -> Message | None:
        return next((message for message in reversed(self.messages) if message.role == "assistant"), None)

    def _turn(self) -> Message:
        if self._open is None:
            self._open = Message(role="assistant")
            self.messages.append(self._open)
        return self._open

    def _item(self, item: Mapping[str, Any]) -> None:
        kind = str(item.get("type"))
        if kind == "message":
            self._message(item)
        elif kind == "reasoning":
            self._reasoning(item)
        elif kind == "function_call":
            name, arguments = str(item.get("name") or ""), arguments_text(item.get("arguments"), self.notes)
            self._call(item, name, arguments)
        elif kind == "custom_tool_call":
            self.notes.add("free-form calls, their text put under 'input'")
            self._call(item, str(item.get("name") or ""), json_text({"input": item.get("input")}))
        elif kind == "local_shell_call":
            self._call(item, "local_shell", json_text(item.get("action")))
        elif kind == "web_search_call":
            self._call(item, "web_search", json_text(item.get("action")))
        elif kind.endswith("_output"):
            self._result(item)
        elif kind not in _SILENT:
            raise RecordError("payload.type", "unknown response item", kind)

    def _message(self, item: Mapping[str, Any]) -> None:
        role = canonical_role(item.get("role"), "payload.role")
        text = content_text(item.get("content"), self.notes, "payload.content")
        if role != "assistant":
            self._open = None
            self.messages.append(Message(role=role, content=text))
            return
        turn = self._turn()
        if turn.content or turn.tool_calls:
            self._open = None
            turn = self._turn()
        turn.content = text

    def _reasoning(self, item: Mapping[str, Any]) -> None:
        parts = item.get("content") or item.get("summary") or []
        parts = [{"text": parts}] if isinstance(parts, str) else parts
        text = "\n\n".join(str(part.get("text") or "") for part in parts if isinstance(part, dict))
        if not text:
            self.notes.add("reasoning held only in encrypted form, left out")
            return
        if self._open is not None and (self._open.content or self._open.tool_calls):
            self._open = None
        turn = self._turn()
        turn.reasoning = f"{turn.reasoning}\n\n{text}" if turn.reasoning else text

    def _call(self, item: Mapping[str, Any], name: str, arguments: str) -> None:
        identity = item.get("call_id") or item.get("id") or ""
        self._turn().tool_calls.append(ToolCall(str(identity), name, arguments))

    def _result(self, item: Mapping[str, Any]) -> None:
        self._open = None
        text, error, signal = _output(item.get("output"), self.notes)
        identity = item.get("call_id") or item.get("id")
        self.messages.append(
            Message(role="tool", content=text, tool_call_id=str(identity or "") or None, error=error, signal=signal)
        )

    def build(self, source: str, place: Place) -> Trajectory:
        """The record of this segment."""
        return assemble(source=source, place=place, messages=self.messages, notes=self.notes, extra=self.meta)

    def after_compaction(self, payload: Mapping[str, Any]) -> _Rollout:
        """The segment that starts with what a compaction put in place of the history."""
        following = _Rollout()
        following.meta = dict(self.meta)
        following.notes.add("starts with the summary of a compaction: the earlier turns are another record")
        replacement = payload.get("replacement_history")
        if isinstance(replacement, list):
            for item in replacement:
                if isinstance(item, dict):
                    following._item(item)
            for message in following.messages:
                if message.role == "assistant":
                    message.author = "copied"
        elif payload.get("message"):
            following.messages.append(Message(role="user", content=str(payload["message"]), name="compaction"))
        following._open = None
        return following


def _output(output: Any, notes: Notes) -> tuple[str, bool | None, str | None]:
    """(text, error, signal) of a call's output: text, JSON text {output, metadata: {exit_code}}, or parts."""
    if isinstance(output, str):
        if output.startswith("{"):
            try:
                body = json.loads(output)
            except ValueError:
                return output, None, None
            if isinstance(body, dict) and isinstance(body.get("output"), str):
                code = body["metadata"].get("exit_code") if isinstance(body.get("metadata"), dict) else None
                if isinstance(code, int):
                    return body["output"], code != 0, f"exit_code={code}"
                return body["output"], None, None
            return output, None, None
        found = _EXIT.search(output[:400])
        return (output, found.group(1) != "0", f"exit_code={found.group(1)}") if found else (output, None, None)
    if isinstance(output, dict):
        flag = output.get("success")
        text = content_text(output.get("content"), notes, "payload.output.content")
        return text, (not flag if isinstance(flag, bool) else None), "success=false" if flag is False else None
    return content_text(output, notes, "payload.output"), None, None
