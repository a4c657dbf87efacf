"""The last step of every reader: results bound to calls, counts made, the record built."""

from __future__ import annotations

from typing import Any

from pipelines.synthesis.ingest.parts import json_text, task_text
from pipelines.synthesis.ingest.records import Notes, Place, RecordError
from schemas.trajectory import Message, Outcome, Stats, Task, ToolCall, Trajectory, trajectory_id

__all__ = ["assemble", "bind_results", "count", "make_storable"]


class _Calls:
    """The calls seen so far in one run and which of them are still open."""

    def __init__(self, notes: Notes) -> None:
        self.notes = notes
        self.used: set[str] = set()
        self.open: dict[str, tuple[int, ToolCall]] = {}
        self.aliases: dict[str, list[str]] = {}
        self.block: list[str] = []
        self.made = 0

    def add(self, turn: int, call: ToolCall) -> None:
        """Register a call; gives it an id that is unique in the run."""
        original = call.id
        if not original:
            self.notes.add("calls without an id, ids made")
            call.id = self._fresh("call")
        elif original in self.used:
            self.notes.add("call ids used again, made unique")
            call.id = self._fresh(original)
        self.used.add(call.id)
        self.aliases.setdefault(original or call.id, []).append(call.id)
        self.open[call.id] = (turn, call)
        self.block.append(call.id)

    def _fresh(self, stem: str) -> str:
        while True:
            self.made += 1
            name = f"{stem}_{self.made}"
            if name not in self.used:
                return name

    def answer(self, message: Message) -> None:
        """Bind a result: by its id to the latest open call of that id, without an id by position in the block."""
        if message.tool_call_id:
            candidates = [name for name in self.aliases.get(message.tool_call_id, []) if name in self.open]
            if candidates:
                latest = max(self.open[name][0] for name in candidates)
                chosen = next(name for name in candidates if self.open[name][0] == latest)
                self._close(chosen, message)
            elif message.tool_call_id in self.aliases:
                self.notes.add("results for a call that already has one")
            else:
                self.notes.add("results that answer no call before them")
            return
        waiting = [name for name in self.block if name in self.open]
        named = [name for name in waiting if message.name and self.open[name][1].name == message.name]
        if not waiting:
            self.notes.add("results without an id that answer no open call")
            return
        self.notes.add("results paired with calls by position")
        self._close((named or waiting)[0], message)

    def _close(self, name: str, message: Message) -> None:
        _, call = self.open.pop(name)
        message.tool_call_id = name
        if message.name is None:
            message.name = call.name


def bind_results(messages: list[Message], notes: Notes) -> None:
    """Make call ids unique and bind every tool message to its call, in place.

    A result binds to the latest open call of its id; without an id, to the first open call since the last user or
    assistant turn with calls (one of the same name first). Orphans keep their id and are noted. Linear in calls.
    """
    calls = _Calls(notes)
    for turn, message in enumerate(messages):
        if message.role == "assistant" and message.tool_calls:
            calls.block = []
            for call in message.tool_calls:
                calls.add(turn, call)
        elif message.role == "tool":
            calls.answer(message)
        elif message.role == "user":
            calls.block = []


def make_storable(messages: list[Message], notes: Notes) -> None:
    """Replace what the file format cannot hold, in place: lone surrogates (from JSON inside JSON), names of no text."""

    def clean(text: str) -> str:
        if text.isascii():
            return text
        try:
            text.encode()
        except UnicodeEncodeError:
            notes.add("lone surrogates replaced by U+FFFD")
            return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return text

    for message in messages:
        message.content = clean(message.content)
        if not (_is_text(message.name) and _is_text(message.stop) and _is_text(message.tool_call_id)):
            notes.add("a name, stop reason or call id that is no text, left out")
            message.name = message.name if _is_text(message.name) else None
            message.stop = message.stop if _is_text(message.stop) else None
            message.tool_call_id = message.tool_call_id if _is_text(message.tool_call_id) else None
        if message.reasoning is not None:
            message.reasoning = clean(message.reasoning)
        for call in message.tool_calls:
            call.name, call.arguments = clean(call.name), clean(call.arguments)


def _is_text(value: object) -> bool:
    return value is None or isinstance(value, str)


def count(messages: list[Message]) -> Stats:
    """Assistant turns, and turns that a structured signal says went wrong."""
    turns = sum(1 for message in messages if message.role == "assistant")
    owner: dict[str, int] = {}
    wrong: set[int] = set()
    last = -1
    for index, message in enumerate(messages):
        if message.role == "assistant":
            last = index
            for call in message.tool_calls:
                owner[call.id] = index
        elif message.error:
            wrong.add(owner.get(message.tool_call_id or "", last))
    return Stats(turns=turns, errors=len(wrong))


def assemble(
    *,
    source: str,
    place: Place,
    messages: list[Message],
    notes: Notes,
    task: Task | None = None,
    tools: str = "[]",
    outcome: Outcome | None = None,
    extra: dict[str, Any] | None = None,
) -> Trajectory:
    """The canonical record of one run. Raises RecordError when there are no messages."""
    if not messages:
        raise RecordError("messages", "the run has no messages")
    make_storable(messages, notes)
    bind_results(messages, notes)
    task = task or Task()
    if not task.instruction:
        task.instruction = task_text(messages)
    kept = {key: value for key, value in (extra or {}).items() if value is not None}
    return Trajectory(
        id=trajectory_id(source, task.id, messages),
        source=source,
        family="recorded",
        messages=messages,
        task=task,
        tools=tools,
        outcome=outcome or Outcome(),
        stats=count(messages),
        origin=str(place),
        notes=notes.lines(),
        extra=json_text(kept) if kept else None,
    )
