"""pi (OpenClaw-style) session files: session / message / compaction lines; parts text, thinking, toolCall, image.

A compaction ends a segment: what follows is another trajectory that starts with the summary and the entries that
were kept (author "copied"), as the model saw it. Entries with id and parentId form a tree (see `branches`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pipelines.synthesis.ingest.assemble import assemble
from pipelines.synthesis.ingest.branches import paths
from pipelines.synthesis.ingest.parts import content_text, json_text, omitted
from pipelines.synthesis.ingest.records import Notes, Place, RecordError, Session, SetAside, shorten
from schemas.trajectory import Message, ToolCall, Trajectory

__all__ = ["PiSession"]

_TYPES = {
    "session", "message", "model_change", "thinking_level_change", "compaction", "branch_summary", "custom",
    "custom_message", "label", "session_info",
}  # fmt: skip
_ROLES = {
    "user", "assistant", "toolResult", "bashExecution", "hookMessage", "custom", "branchSummary", "compactionSummary",
}  # fmt: skip


def _is_line(value: Any) -> bool:
    if not isinstance(value, dict) or str(value.get("type")) not in _TYPES:
        return False
    if value["type"] != "message":
        return True
    message = value.get("message")
    return isinstance(message, dict) and str(message.get("role")) in _ROLES and "uuid" not in value


class PiSession:
    """A session of lines."""

    name = "pi"

    def matches(self, value: Any) -> float:
        """Lines of the known types, a message among them."""
        if not isinstance(value, Session):
            return 0.0
        spoken = any(_is_line(line) and line["type"] == "message" for _, line in value.lines)
        return 0.95 * value.share(_is_line) if spoken else 0.0

    def read(self, value: Any, place: Place) -> Iterator[Trajectory | SetAside]:
        """One trajectory a segment between compactions, of every branch."""
        if not isinstance(value, Session):
            raise RecordError("", "not a session of lines", value)
        entries: dict[str, tuple[int, Mapping[str, Any]]] = {}
        parent: dict[str, str | None] = {}
        header: Mapping[str, Any] = {}
        last: str | None = None
        for number, line in value.lines:
            if not _is_line(line):
                received = shorten(line)
                yield SetAside(place.path, f"line {number}", "type", "not a line of a pi session", received, self.name)
                continue
            if line["type"] == "session":
                header = header or line
                continue
            key = str(line["id"]) if "parentId" in line else f"line {number}"
            entries[key] = (number, line)
            link = line.get("parentId", last)
            parent[key] = link if isinstance(link, str) else None
            last = key
        found = list(paths(list(entries), parent))
        for index, (path, given) in enumerate(found):
            inside = place.inside(f"branch {index}") if len(found) > 1 else place
            lines = [(*entries[key], key in given) for key in path]
            yield from self._segments(lines, header, inside)

    def _segments(
        self, lines: list[tuple[int, Mapping[str, Any], bool]], header: Mapping[str, Any], place: Place
    ) -> Iterator[Trajectory | SetAside]:
        cuts = [index for index, (_, line, _) in enumerate(lines) if line["type"] == "compaction"]
        for segment, cut in enumerate([None, *cuts]):
            end = cuts[segment] if segment < len(cuts) else len(lines)
            notes = Notes()
            messages: list[Message] = []
            if cut is None:
                chosen = [(*line, False) for line in lines[:end]]
            else:
                compaction = lines[cut][1]
                messages.append(Message(role="user", content=str(compaction.get("summary") or ""), name="compaction"))
                notes.add("starts with the summary of a compaction and the entries it kept, copied")
                kept = lines[_first_kept(compaction, lines, cut) : cut]
                chosen = [(*line, True) for line in kept] + [(*line, False) for line in lines[cut + 1 : end]]
            for number, line, given, copied in chosen:
                try:
                    turns = _turns(line, notes)
                except RecordError as error:
                    yield error.at(Place(place.path, f"line {number}"), self.name)
                    continue
                if (given or copied) and turns and turns[0].role == "assistant":
                    turns[0].author = "copied"
                    if given:
                        notes.add("turns shared with an earlier branch of the session, copied")
                messages.extend(turns)
            if not any(message.role == "assistant" for message in messages) and segment < len(cuts):
                continue  # nothing was said before the next compaction
            yield assemble(
                source=self.name,
                place=place.inside(f"segment {segment}") if cuts else place,
                messages=messages,
                notes=notes,
                extra={"session": header.get("id"), "model": header.get("modelId"), "cwd": header.get("cwd")},
            )


def _first_kept(compaction: Mapping[str, Any], lines: list[tuple[int, Mapping[str, Any], bool]], cut: int) -> int:
    """The position of the first entry that a compaction kept (by id, or by index into the file's entries)."""
    identity = compaction.get("firstKeptEntryId")
    if identity is not None:
        return next((index for index, (_, line, _) in enumerate(lines[:cut]) if line.get("id") == identity), cut)
    first = compaction.get("firstKeptEntryIndex")
    if isinstance(first, int):
        return next((index for index, (number, _, _) in enumerate(lines[:cut]) if number - 1 >= first), cut)
    return cut


def _turns(line: Mapping[str, Any], notes: Notes) -> list[Message]:
    kind = line["type"]
    if kind == "branch_summary":
        return [Message(role="user", content=str(line.get("summary") or ""), name="branch_summary")]
    if kind == "custom_message":
        return [Message(role="user", content=content_text(line.get("content"), notes, "content"), name="hook")]
    if kind != "message":
        if kind not in ("session", "custom", "label", "session_info"):
            notes.add(f"lines of type '{kind}', not turns")
        return []
    message = line["message"]
    role = message.get("role")
    if role == "assistant":
        return [_assistant(message, notes)]
    if role == "toolResult":
        flag = message.get("isError")
        return [
            Message(
                role="tool",
                content=content_text(message.get("content"), notes, "message.content"),
                tool_call_id=str(message.get("toolCallId") or "") or None,
                name=message.get("toolName"),
                error=flag if isinstance(flag, bool) else None,
                signal="isError" if flag is True else None,
            )
        ]
    if role == "bashExecution":
        notes.add("commands run by the user (bashExecution), read as user turns")
        output = str(message.get("output") or "(no output)")
        return [
            Message(role="user", content=f"Ran `{message.get('command')}`\n```\n{output}\n```", name="bashExecution")
        ]
    if role in ("branchSummary", "compactionSummary"):
        return [Message(role="user", content=str(message.get("summary") or ""), name=str(role))]
    name = None if role == "user" else "hook"
    return [Message(role="user", content=content_text(message.get("content"), notes, "message.content"), name=name)]


def _assistant(raw: Mapping[str, Any], notes: Notes) -> Message:
    """An assistant turn; a call cut off by an abort keeps the partial JSON that the model wrote."""
    message = Message(role="assistant", stop=raw.get("stopReason"))
    texts, thoughts = [], []
    content = raw.get("content")
    if not isinstance(content, list):
        message.content = content_text(content, notes, "message.content")
        return message
    for index, part in enumerate(content):
        field = f"message.content[{index}]"
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "text":
            texts.append(str(part.get("text") or ""))
        elif kind == "thinking":
            thoughts.append(str(part.get("thinking") or ""))
        elif kind == "toolCall":
            name = part.get("name")
            if not isinstance(name, str):
                raise RecordError(f"{field}.name", "a call must have a name", name)
            message.tool_calls.append(ToolCall(str(part.get("id") or ""), name, _arguments(part, notes)))
        else:
            texts.append(omitted(str(kind), notes))
    if len(texts) > 1:
        notes.add("text blocks of one turn joined by a blank line")
    message.content = "\n\n".join(texts)
    message.reasoning = "\n\n".join(thoughts) or None
    return message


def _arguments(part: Mapping[str, Any], notes: Notes) -> str:
    partial = part.get("partialJson")
    if isinstance(partial, str) and partial:
        try:
            json.loads(partial)
        except ValueError:
            notes.add("calls cut off while they were written, partial JSON kept")
            return partial
    return json_text(part.get("arguments", {}))
