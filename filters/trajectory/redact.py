"""Secrets and people (R20): found by shape, replaced by typed placeholders, counted.

`<EMAIL_1>`, `<TOKEN_2>`, …: within one record equal values get equal placeholders, so a name that an observation
showed and a later call used still agree. Works on any text; `redact_trajectory` goes over all messages and calls.
The shapes are in filters/shapes/private.py, with what they do not know.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from filters.shapes.placeholders import Placeholders
from filters.shapes.private import find_private
from schemas.trajectory import Message, ToolCall, Trajectory

__all__ = ["Redactor", "redact_text", "redact_trajectory"]


_SEPARATOR = "\n\0\n"  # no shape goes over a zero byte, but for key blocks


class Redactor:
    """Replaces what it finds and remembers it: one object a record."""

    def __init__(self) -> None:
        self._placeholders = Placeholders()

    @property
    def counts(self) -> Counter[str]:
        """Replacements by kind."""
        return self._placeholders.counts

    def text(self, text: str) -> str:
        """`text` with placeholders. Linear in its length. Redacting twice changes nothing."""
        return self.texts([text])[0]

    def texts(self, texts: Sequence[str]) -> list[str]:
        """Each text with placeholders. They are searched as one, which is cheaper for many short ones."""
        joined = _SEPARATOR.join(texts)
        spans = find_private(joined)
        if not spans:
            return list(texts)
        redacted: list[str] = []
        start = number = 0
        for text in texts:
            end = start + len(text)
            parts: list[str] = []
            at = start
            while number < len(spans) and spans[number][0] < end:
                first, last, kind = spans[number]
                number += 1
                if last <= end:  # else it reaches into the next text: no finding of this one
                    parts += (joined[at:first], self._placeholders.name(kind, joined[first:last]))
                    at = last
            redacted.append("".join((*parts, joined[at:end])) if parts else text)
            start = end + len(_SEPARATOR)
        return redacted


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
    texts = [trajectory.task.instruction]
    for message in trajectory.messages:
        texts += (message.content, message.reasoning or "", *(call.arguments for call in message.tool_calls))
    redacted = iter(redactor.texts(texts))
    if not redactor.counts:
        return trajectory, redactor.counts
    task = replace(trajectory.task, instruction=next(redacted))
    messages = [_message(message, redacted) for message in trajectory.messages]
    flags = trajectory.flags if "redacted" in trajectory.flags else [*trajectory.flags, "redacted"]
    return replace(trajectory, messages=messages, task=task, flags=flags), redactor.counts


def _message(message: Message, redacted: Iterator[str]) -> Message:
    content, reasoning = next(redacted), next(redacted)
    calls = [ToolCall(call.id, call.name, next(redacted)) for call in message.tool_calls]
    reasoning_or_none = reasoning if message.reasoning is not None else None
    return replace(message, content=content, reasoning=reasoning_or_none, tool_calls=calls)
