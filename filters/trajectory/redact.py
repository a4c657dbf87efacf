"""Secrets and people (R20): found by shape, replaced by typed placeholders, counted.

`<EMAIL_1>`, `<TOKEN_2>`, …: within one record equal values get equal placeholders, so a name that an observation
showed and a later call used still agree. Works on any text; `redact_trajectory` goes over all messages and calls.
The shapes are in redact_shapes.py, with what they do not know.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from filters.trajectory.redact_shapes import find_private
from schemas.trajectory import Message, ToolCall, Trajectory

__all__ = ["Redactor", "redact_text", "redact_trajectory"]


class Redactor:
    """Replaces what it finds and remembers it: one object a record. `counts` is replacements by kind."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._names: dict[tuple[str, str], str] = {}
        self._numbers: Counter[str] = Counter()

    def text(self, text: str) -> str:
        """`text` with placeholders. Linear in its length. Redacting twice changes nothing."""
        spans = find_private(text)
        if not spans:
            return text
        parts: list[str] = []
        at = 0
        for start, end, kind in spans:
            parts += (text[at:start], self._name(kind, text[start:end]))
            at = end
        parts.append(text[at:])
        return "".join(parts)

    def _name(self, kind: str, value: str) -> str:
        self.counts[kind] += 1
        name = self._names.get((kind, value))
        if name is None:
            self._numbers[kind] += 1
            name = self._names[(kind, value)] = f"<{kind}_{self._numbers[kind]}>"
        return name


def redact_text(text: str) -> tuple[str, Counter[str]]:
    """(text with placeholders, replacements by kind)."""
    redactor = Redactor()
    return redactor.text(text), redactor.counts


def redact_trajectory(trajectory: Trajectory) -> tuple[Trajectory, Counter[str]]:
    """A copy with placeholders in every message, reasoning, call argument and the instruction, numbered as one record.

    The id stays: it names the run as it was read. Arguments that were JSON stay JSON: no placeholder needs escaping.
    The flag "redacted" is set when anything was replaced; a trajectory with nothing to replace is returned as it is.
    """
    redactor = Redactor()
    messages = [_message(redactor, message) for message in trajectory.messages]
    task = replace(trajectory.task, instruction=redactor.text(trajectory.task.instruction))
    if not redactor.counts:
        return trajectory, redactor.counts
    flags = trajectory.flags if "redacted" in trajectory.flags else [*trajectory.flags, "redacted"]
    return replace(trajectory, messages=messages, task=task, flags=flags), redactor.counts


def _message(redactor: Redactor, message: Message) -> Message:
    calls = [ToolCall(call.id, call.name, redactor.text(call.arguments)) for call in message.tool_calls]
    reasoning = redactor.text(message.reasoning) if message.reasoning else message.reasoning
    return replace(message, content=redactor.text(message.content), reasoning=reasoning, tool_calls=calls)
