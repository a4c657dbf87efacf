"""mini-swe-agent: a list of {role, content} (v0) or {info, messages, trajectory_format}; bash blocks stay text.

An observation is a user turn (a tool turn in v2) with `<returncode>N</returncode>`: N is its signal.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pipelines.synthesis.ingest.assemble import assemble
from pipelines.synthesis.ingest.formats.chat import chat_messages, looks_like_messages
from pipelines.synthesis.ingest.parts import mapping
from pipelines.synthesis.ingest.records import Notes, Place, SetAside
from schemas.trajectory import Message, Outcome, Task, Trajectory

__all__ = ["MiniSwe"]

_RETURN_CODE = re.compile(r"\s*<returncode>\s*(-?\d+)\s*</returncode>")
_FEEDBACK = ("Please always provide EXACTLY ONE action", "Format error", "Tool call error")
_TIMEOUT = "timed out and has been killed"


def _has_return_code(messages: Any) -> bool:
    for item in messages[:8] if isinstance(messages, list) else []:
        content = item.get("content") if isinstance(item, dict) else None
        if isinstance(content, list) and content and isinstance(content[0], dict):
            content = content[0].get("text")
        if isinstance(content, str) and _RETURN_CODE.match(content):
            return True
    return False


class MiniSwe:
    """Both file shapes."""

    name = "mini-swe-agent"

    def matches(self, value: Any) -> float:
        """The format name in the file, its version in `info`, or return codes in user turns."""
        if isinstance(value, dict):
            if str(value.get("trajectory_format", "")).startswith("mini-swe-agent"):
                return 1.0
            info = value.get("info")
            versioned = isinstance(info, dict) and "mini_version" in info
            return 0.95 if versioned and isinstance(value.get("messages"), list) else 0.0
        return 0.8 if looks_like_messages(value) and _has_return_code(value) else 0.0

    def read(self, value: Any, place: Place) -> Iterator[Trajectory | SetAside]:
        """One trajectory a file."""
        row: Mapping[str, Any] = value if isinstance(value, dict) else {"messages": value}
        notes = Notes()
        items = [item for item in row.get("messages") or [] if not _is_exit(item)]
        messages = chat_messages(items, notes)
        info = mapping(row.get("info"))
        spoken = False
        for message in messages:
            if message.role == "assistant":
                spoken = True
            elif spoken and message.role in ("user", "tool"):
                _signal(message)
        status = info.get("exit_status")
        agent = mapping(info.get("config")).get("agent")
        if isinstance(status, str) and status not in ("Submitted", "submitted"):
            last = next((message for message in reversed(messages) if message.role == "assistant"), None)
            if last is not None:
                last.stop = status
        yield assemble(
            source=self.name,
            place=place,
            messages=messages,
            notes=notes,
            task=Task(id=row.get("instance_id") if isinstance(row.get("instance_id"), str) else None),
            outcome=Outcome(),
            extra={
                "exit_status": status,
                "submission": info.get("submission"),
                "version": info.get("mini_version"),
                "step_limit": mapping(agent).get("step_limit"),
            },
        )


def _is_exit(item: Any) -> bool:
    """The closing `exit` record of version 2 is not a turn: it repeats info."""
    return isinstance(item, dict) and item.get("role") == "exit"


def _signal(message: Message) -> None:
    if message.role == "user":
        message.name = "observation"
    found = _RETURN_CODE.match(message.content)
    if found is not None:
        message.error, message.signal = found.group(1) != "0", f"exit_code={found.group(1)}"
    elif message.content.startswith(_FEEDBACK):
        message.error, message.signal = True, "format_error"
    elif _TIMEOUT in message.content[:2000]:
        message.error, message.signal = True, "timeout"
