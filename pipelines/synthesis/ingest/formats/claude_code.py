"""Claude Code session files: one line an event, linked by parentUuid.

Lines of one `message.id` are one API message; results of its calls hang on any of its lines. Every root-to-leaf
path is a trajectory: branches (the turns they share with an earlier one are author "copied", so each turn is the
model's own once), sidechains (sub-agents), and what follows a compaction. Without any parent links, lines are taken
in file order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pipelines.synthesis.ingest.assemble import assemble
from pipelines.synthesis.ingest.branches import paths
from pipelines.synthesis.ingest.formats.anthropic import assistant_message, user_messages
from pipelines.synthesis.ingest.records import Notes, Place, RecordError, Session, SetAside, shorten
from schemas.trajectory import Message, Trajectory

__all__ = ["ClaudeCode"]

_SIDE_TYPES = {
    "summary", "system", "file-history-snapshot", "progress", "queue-operation", "attachment", "custom-title",
    "last-prompt", "ai-title", "agent-name", "permission-mode",
}  # fmt: skip
_INTERRUPTED = "[Request interrupted by user"


def _is_line(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        return False
    if value["type"] in ("user", "assistant"):
        return "message" in value and ("uuid" in value or "sessionId" in value)
    return value["type"] in _SIDE_TYPES


@dataclass(slots=True)
class _Group:
    """One turn: the lines of an API message, of the results of one, or a single user line."""

    role: str
    lines: list[tuple[int, Mapping[str, Any]]] = field(default_factory=list)


class ClaudeCode:
    """A session of lines, or {loglines: […]}."""

    name = "claude-code"

    def matches(self, value: Any) -> float:
        """Lines of the known types of which at least one is a user or assistant message."""
        session = _as_session(value)
        if session is None:
            return 0.0
        share = session.share(_is_line)
        spoken = any(_is_line(line) and line["type"] in ("user", "assistant") for _, line in session.lines)
        return 0.95 * share if spoken else 0.0

    def read(self, value: Any, place: Place) -> Iterator[Trajectory | SetAside]:
        """One trajectory a path; lines that cannot be part of a conversation are set aside."""
        session = _as_session(value)
        if session is None:
            raise RecordError("", "not a Claude Code session", value)
        table = _Table(self.name, place)
        for number, line in session.lines:
            problem = table.take(number, line)
            if problem is not None:
                yield problem
        if not table.order:
            raise RecordError("message", "the session has no messages")
        table.finish()
        found = list(paths(table.order, table.parent))
        for index, (path, given) in enumerate(found):
            yield table.trajectory(path, given, place.inside(f"branch {index}") if len(found) > 1 else place)


def _as_session(value: Any) -> Session | None:
    if isinstance(value, Session):
        return value
    if isinstance(value, dict) and isinstance(value.get("loglines"), list):
        return Session(list(enumerate(value["loglines"], 1)))
    return None


class _Table:
    """The turns of a session and how they follow one another."""

    def __init__(self, name: str, place: Place) -> None:
        self.name, self.place = name, place
        self.groups: dict[str, _Group] = {}
        self.order: list[str] = []
        self.parent: dict[str, str | None] = {}
        self.notes = Notes()
        self._of_line: dict[str, str] = {}
        self._links = 0
        self._compacted: set[str] = set()

    def take(self, number: int, line: Any) -> SetAside | None:
        """Place one line; a SetAside when it cannot be."""
        if not isinstance(line, dict) or not isinstance(line.get("type"), str):
            return self._aside(number, "", "a line must be an object with a type", line)
        uuid, link = line.get("uuid"), line.get("parentUuid")
        if line["type"] not in ("user", "assistant"):
            self.notes.add(f"lines of type '{line['type']}', not turns")
            if isinstance(uuid, str) and isinstance(link, str) and link in self._of_line:
                self._of_line[uuid] = self._of_line[link]
            elif isinstance(uuid, str) and line.get("subtype") == "compact_boundary":
                self._compacted.add(uuid)
            return None
        message = line.get("message")
        if not isinstance(message, dict):
            return self._aside(number, "message", "must be an object", message)
        if "content" not in message:
            return self._aside(number, "message.content", "is missing", message)
        key, role = self._key(number, line, message, link)
        group = self.groups.get(key)
        if group is None:
            group = self.groups[key] = _Group(role)
            self.parent[key] = self._parent(line, link, key)
            self.order.append(key)
        try:
            _read_line(role, line, Notes())
        except RecordError as error:
            if not group.lines:
                self._forget(key)
            return error.at(Place(self.place.path, f"line {number}"), self.name)
        group.lines.append((number, line))
        if isinstance(uuid, str):
            self._of_line[uuid] = key
        return None

    def _aside(self, number: int, name: str, problem: str, received: Any) -> SetAside:
        return SetAside(self.place.path, f"line {number}", name, problem, shorten(received), self.name)

    def _forget(self, key: str) -> None:
        del self.groups[key], self.parent[key]
        self.order.remove(key)

    def _key(self, number: int, line: Mapping[str, Any], message: Mapping[str, Any], link: Any) -> tuple[str, str]:
        side = "side" if line.get("isSidechain") else "main"
        if line["type"] == "assistant":
            return f"{side}:{message.get('id') or f'line {number}'}", "assistant"
        content = message["content"]
        only_results = isinstance(content, list) and all(
            isinstance(block, dict) and block.get("type") == "tool_result" for block in content
        )
        owner = self._of_line.get(link) if isinstance(link, str) else None
        if only_results and content and owner is not None:
            base = owner.removesuffix(" results")
            if self.groups[base].role == "assistant":
                return f"{base} results", "results"
        return f"{side}:user {number}", "user"

    def _parent(self, line: Mapping[str, Any], link: Any, key: str) -> str | None:
        previous = self.order[-1] if self.order else None
        if not isinstance(link, str) or link in self._compacted:
            return None
        owner = self._of_line.get(link)
        if owner is None or owner not in self.groups:
            if previous is not None:
                self.notes.add("parent lines that are not in the file, file order used")
            return previous
        self._links += 1
        if key.startswith("side:") and owner.startswith("main:"):
            return None
        if f"{owner} results" in self.groups and key != f"{owner} results":
            return f"{owner} results"
        return owner

    def finish(self) -> None:
        """Without a single parent link that leads anywhere, the lines follow one another as they stand."""
        if self._links == 0 and len(self.order) > 1:
            self.notes.add("no parent links in the file, lines taken in file order")
            self.parent = dict(zip(self.order, [None, *self.order[:-1]], strict=True))

    def trajectory(self, path: list[str], given: set[str], place: Place) -> Trajectory:
        """The run along one path."""
        notes = Notes()
        messages: list[Message] = []
        merged = 0
        for key in path:
            group = self.groups[key]
            turns = self._turns(group, notes)
            merged += len(group.lines) - 1 if group.role == "assistant" else 0
            if key in given:
                for turn in turns:
                    if turn.role == "assistant":
                        turn.author = "copied"
                notes.add("turns shared with an earlier branch of the session, copied")
            if turns and turns[0].content.startswith(_INTERRUPTED) and messages:
                _interrupt(messages)
            messages.extend(turns)
        notes.add("lines merged into the message of the same id", merged)
        first = self.groups[path[0]].lines[0][1]
        if first.get("isCompactSummary") or first.get("parentUuid") in self._compacted:
            notes.add("starts with the summary of a compaction: the earlier turns are another record")
        notes.include(self.notes)
        models = [
            line["message"].get("model")
            for key in path
            if self.groups[key].role == "assistant"
            for _, line in self.groups[key].lines
        ]
        return assemble(
            source=self.name,
            place=place,
            messages=messages,
            notes=notes,
            extra={
                "session": first.get("sessionId"),
                "sidechain": True if first.get("isSidechain") else None,
                "model": models[0] if models else None,
                "version": first.get("version"),
            },
        )

    def _turns(self, group: _Group, notes: Notes) -> list[Message]:
        if group.role != "assistant":
            return [turn for _, line in group.lines for turn in _read_line(group.role, line, notes)]
        blocks: list[Any] = []
        stop, model = None, None
        for _, line in group.lines:
            content = line["message"]["content"]
            blocks.extend(content if isinstance(content, list) else [{"type": "text", "text": content}])
            stop = line["message"].get("stop_reason") or stop
            model = line["message"].get("model")
        message = assistant_message(blocks, notes, "message.content")
        message.stop = stop
        if model == "<synthetic>":
            message.author = "harness"
            notes.add("turns written by the harness (model <synthetic>)")
        return [message]


def _read_line(role: str, line: Mapping[str, Any], notes: Notes) -> list[Message]:
    content = line["message"]["content"]
    if role == "assistant":
        return [assistant_message(content, notes, "message.content")]
    return user_messages(content, notes, "message.content")


def _interrupt(messages: list[Message]) -> None:
    """The assistant turn before an interruption did not end by itself."""
    for message in reversed(messages):
        if message.role == "assistant":
            message.stop = message.stop or "interrupted"
            return
