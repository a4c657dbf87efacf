"""Calls written in text: `<tool_call>{json}</tool_call>` (Hermes, Qwen) and `<function=NAME><parameter=…>` blocks.

Each parser gives the calls and the text that remains. A missing close tag, Python-style literals and bodies that are
neither are kept and noted: a body that cannot be parsed becomes a call whose arguments are its raw text.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from typing import Any

from pipelines.synthesis.ingest.parts import arguments_text, json_text
from pipelines.synthesis.ingest.records import Notes
from schemas.trajectory import ToolCall

__all__ = ["FUNCTION_TAG", "function_calls", "hermes_calls", "parameter_value", "tool_responses"]

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_NAME = re.compile(r"""["']name["']\s*:\s*["']([^"']+)["']""")
FUNCTION_TAG = re.compile(r"<function=([^>\s]+)>")
_PARAMETER = re.compile(r"<parameter=([^>\s]+)>")
_RESPONSE = re.compile(r"<tool_response>\n?(.*?)(?:\n?</tool_response>|\Z)", re.S)


def hermes_calls(text: str, notes: Notes) -> tuple[list[ToolCall], str]:
    """(calls, text without them). A body may itself be a `<function=…>` block (Qwen3-Coder)."""
    calls: list[ToolCall] = []
    kept: list[str] = []
    at = 0
    while (start := text.find(_OPEN, at)) >= 0:
        kept.append(text[at:start])
        body_at = start + len(_OPEN)
        body, at = _hermes_body(text, body_at, notes)
        if FUNCTION_TAG.match(body.strip()):
            calls.extend(function_calls(body, notes)[0])
        else:
            calls.append(_hermes_call(body, notes))
    kept.append(text[at:])
    return calls, "".join(kept).strip() if calls else text


def _hermes_body(text: str, start: int, notes: Notes) -> tuple[str, int]:
    """The body that starts at `start` and where the text goes on; code in arguments may hold the close tag."""
    stripped = len(text[start:]) - len(text[start:].lstrip())
    try:
        _, end = json.JSONDecoder().raw_decode(text, start + stripped)
        close = text.find(_CLOSE, end)
        if close >= 0 and not text[end:close].strip():
            return text[start:end], close + len(_CLOSE)
        if close < 0 and not text[end:].strip():
            notes.add("tool_call tags that were never closed")
            return text[start:end], len(text)
    except ValueError:
        pass
    close = text.find(_CLOSE, start)
    if close < 0:
        notes.add("tool_call tags that were never closed")
        return text[start:], len(text)
    return text[start:close], close + len(_CLOSE)


def _hermes_call(body: str, notes: Notes) -> ToolCall:
    parsed = _literal(body.strip(), notes)
    if isinstance(parsed, dict) and isinstance(parsed.get("name"), str):
        arguments = parsed.get("arguments", parsed.get("parameters"))
        return ToolCall(str(parsed.get("id") or ""), parsed["name"], arguments_text(arguments, notes))
    notes.add("calls in text that cannot be parsed, kept raw")
    name = _NAME.search(body)
    return ToolCall("", name.group(1) if name else "", body.strip())


def _literal(text: str, notes: Notes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        pass
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    notes.add("calls written as Python literals, re-encoded as JSON")
    return value


def function_calls(
    text: str, notes: Notes, kind_of: Callable[[str, str], str | None] | None = None
) -> tuple[list[ToolCall], str]:
    """(calls, text without them) of `<function=NAME>…</function>` blocks.

    `kind_of(function, parameter)` gives a JSON Schema type: values of another type than string are parsed as JSON.
    One newline after the opening and before the closing parameter tag is layout (OpenHands, SWE-agent, Qwen3-Coder).
    A stop word may have cut the closing tags: noted.
    """
    calls: list[ToolCall] = []
    kept: list[str] = []
    at = 0
    while (match := FUNCTION_TAG.search(text, at)) is not None:
        kept.append(text[at : match.start()])
        name = match.group(1)
        at = match.end()
        arguments: dict[str, Any] = {}
        closed = False
        while True:
            parameter = _PARAMETER.search(text, at)
            close = text.find("</function>", at)
            if parameter is None or 0 <= close < parameter.start():
                if close >= 0:
                    at, closed = close + len("</function>"), True
                elif parameter is None:
                    at = len(text)
                break
            raw, at, whole = _parameter_text(text, parameter.end())
            if not whole:
                notes.add("parameter tags that were never closed")
            kind = kind_of(name, parameter.group(1)) if kind_of else None
            arguments[parameter.group(1)] = parameter_value(raw, kind)
        if not closed:
            notes.add("function tags that were never closed")
        calls.append(ToolCall("", name, json_text(arguments)))
    kept.append(text[at:])
    return calls, "".join(kept).strip() if calls else text


def _parameter_text(text: str, start: int) -> tuple[str, int, bool]:
    """(value, where the text goes on, whether it was closed); the value ends at the last fitting close tag."""
    close = text.find("</parameter>", start)
    if close < 0:
        end = text.find("</function>", start)
        end = len(text) if end < 0 else end
        return _unpad(text[start:end]), end, False
    while True:  # a close tag inside the value: the right one is followed by another tag or by the end
        after = text[close + len("</parameter>") :].lstrip()
        following = text.find("</parameter>", close + 1)
        if after.startswith(("<parameter=", "</function>")) or not after or following < 0:
            return _unpad(text[start:close]), close + len("</parameter>"), True
        if text.find("<function=", close, following) >= 0:
            return _unpad(text[start:close]), close + len("</parameter>"), True
        close = following


def _unpad(value: str) -> str:
    value = value.removeprefix("\n")
    return value.removesuffix("\n")


def parameter_value(raw: str, kind: str | None) -> Any:
    """The JSON value of a parameter's text: parsed when its declared type is not string and the text is JSON."""
    if kind is None or kind == "string":
        return raw
    try:
        return json.loads(raw)
    except ValueError:
        return raw


def tool_responses(text: str) -> list[str] | None:
    """The texts of the `<tool_response>` blocks that a user turn consists of; None when it is something else."""
    if not text.lstrip().startswith("<tool_response>"):
        return None
    if _RESPONSE.sub("", text).strip():
        return None
    return [match.group(1) for match in _RESPONSE.finditer(text)]
