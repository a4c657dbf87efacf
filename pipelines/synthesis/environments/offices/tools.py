"""The office's tools as function schemas: short, for they stand in every prompt."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["ALWAYS", "TOOLS", "tools_for"]

ALWAYS = ("list_folder", "read_file", "search_text")


def _tool(name: str, description: str, properties: dict[str, Any], required: Sequence[str] = ()) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


_TEXT: dict[str, Any] = {"type": "string"}
_SOME: dict[str, Any] = {"type": "string", "minLength": 1}
_PLACE = {"type": "string", "pattern": "^[A-Z]{1,2}[1-9][0-9]{0,4}$"}
_START = {
    "type": "string",
    "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}$",
    "description": "YYYY-MM-DD HH:MM",
}
_CELLS = {
    "type": "array",
    "minItems": 1,
    "maxItems": 100,
    "items": {
        "type": "object",
        "properties": {"cell": _PLACE, "value": {"type": ["string", "number", "null"]}},
        "required": ["cell", "value"],
        "additionalProperties": False,
    },
}
TOOLS = [
    _tool("list_folder", "Names in a folder.", {"path": _TEXT}),
    _tool(
        "read_file",
        "A file as text, up to 150 lines from first_line on.",
        {"path": _TEXT, "first_line": {"type": "integer", "minimum": 1}},
        ["path"],
    ),
    _tool(
        "search_text",
        "Lines that contain a text, in all files or below a path.",
        {"text": _SOME, "path": _TEXT},
        ["text"],
    ),
    _tool(
        "write_file",
        "Write a text file (csv, md, txt, vcf).",
        {"path": _TEXT, "content": _TEXT, "overwrite": {"type": "boolean"}},
        ["path", "content"],
    ),
    _tool("move_file", "Move or rename a file; `to` is its new path.", {"path": _TEXT, "to": _TEXT}, ["path", "to"]),
    _tool("make_folder", "Make a folder.", {"path": _TEXT}, ["path"]),
    _tool("delete_file", "Delete a file or an empty folder.", {"path": _TEXT}, ["path"]),
    _tool(
        "edit_sheet",
        "Set cells of an xlsx sheet.",
        {"path": _TEXT, "sheet": _TEXT, "cells": _CELLS},
        ["path", "sheet", "cells"],
    ),
    _tool("query_database", "Run one SELECT (sqlite).", {"sql": _SOME}, ["sql"]),
    _tool("update_database", "Run one INSERT, UPDATE or DELETE.", {"sql": _SOME}, ["sql"]),
    _tool(
        "draft_mail",
        "Put a mail into Drafts.",
        {"to": _SOME, "subject": _SOME, "body": _SOME, "in_reply_to": {"type": "string", "description": "Message-ID"}},
        ["to", "subject", "body"],
    ),
    _tool(
        "move_event",
        "Move an event to another start.",
        {"path": _TEXT, "uid": _SOME, "start": _START},
        ["path", "uid", "start"],
    ),
]


def tools_for(names: Iterable[str]) -> list[dict[str, Any]]:
    """The tools of a task, in fixed order: those that always are there and those that its goals need."""
    wanted = {*ALWAYS, *names}
    return [tool for tool in TOOLS if tool["function"]["name"] in wanted]
