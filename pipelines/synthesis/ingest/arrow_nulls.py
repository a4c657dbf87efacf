"""Undoing what a struct column does to tools and arguments: every row gains the keys of all others, as nulls.

A file whose tools or arguments are structs cannot say whether a null was written or filled in; nulls are taken as
filled in: rendered into training text they would teach calls with arguments that no tool has. The repair is noted.
"""

from __future__ import annotations

from typing import Any

__all__ = ["drop_filled_nulls"]

_NOTE = "null keys of struct columns removed from tools and arguments"


def drop_filled_nulls(row: dict[str, Any]) -> list[str]:
    """Remove the nulls inside tool definitions and call arguments that are objects, in place; the notes to make."""
    removed = sum(_drop(row.get(name)) for name in ("tools", "functions"))
    for turns in (row.get("messages"), row.get("conversations")):
        for turn in turns if isinstance(turns, list) else []:
            for call in (turn.get("tool_calls") or []) if isinstance(turn, dict) else []:
                body = call.get("function") if isinstance(call, dict) else None
                for holder in (call, body):
                    if isinstance(holder, dict) and isinstance(holder.get("arguments"), dict):
                        removed += _drop(holder["arguments"])
    return [_NOTE] if removed else []


def _drop(value: Any) -> int:
    """Remove null values of objects at every depth, in place; how many went."""
    removed = 0
    if isinstance(value, dict):
        for key in [key for key, item in value.items() if item is None]:
            del value[key]
            removed += 1
        removed += sum(_drop(item) for item in value.values())
    elif isinstance(value, list):
        removed += sum(_drop(item) for item in value)
    return removed
