"""How long a trajectory is before a tokenizer is known."""

from __future__ import annotations

from schemas.trajectory import Trajectory

__all__ = ["BYTES_PER_TOKEN", "estimated_tokens"]

BYTES_PER_TOKEN = 4  # of text and code with vocabularies of 30,000 entries and more; small ones make more tokens


def estimated_tokens(trajectory: Trajectory) -> int:
    """UTF-8 bytes of all that a model sees of a trajectory (tools, contents, reasoning, calls), divided by 4."""
    size = _bytes(trajectory.tools)
    for message in trajectory.messages:
        size += _bytes(message.content) + _bytes(message.reasoning or "")
        size += sum(_bytes(call.name) + _bytes(call.arguments) for call in message.tool_calls)
    return size // BYTES_PER_TOKEN


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
