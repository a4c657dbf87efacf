"""Mistakes at the call: tool errors (R2), malformed calls (R3), unknown tools and schema breaches (R4), failed edits
(R13), and the negative results that are none (R12).

Each function takes the linked view of a trajectory and its judgements and gives findings; one failed call gives one
finding, under the most telling rule.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import orjson
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, UndefinedTypeCheck, UnknownType
from referencing import Registry
from referencing.exceptions import Unresolvable

from filters.trajectory.calls import Decoded, decode_arguments, edit_strings, is_edit, is_test_run
from filters.trajectory.findings import Finding
from filters.trajectory.judge import Judgement
from filters.trajectory.view import Step, View
from schemas.trajectory import Message

__all__ = ["failed_edits", "malformed_calls", "negative_results", "schema_breaches", "tool_errors", "tool_schemas"]

_MALFORMED = frozenset({"malformed_arguments", "format_error", "parse_error"})
_BREACH = frozenset({"unknown_tool", "bad_arguments", "no_such_function", "observation_code=1"})
_FEEDBACK = re.compile(
    r"\b(?:exactly one (?:action|command|tool call|code block|bash)|found \d+ (?:actions|commands|code blocks"
    r"|tool calls)"
    r"|(?:could not|couldn't|failed to|unable to|cannot) (?:parse|decode)\b"
    r"|your (?:last |previous )?(?:output|response|reply|message|command|action|tool call) (?:was|is|did|does"
    r"|could) (?:not|n't)"
    r"|no (?:valid )?(?:[\w-]+ )?(?:action|tool call|function call|command|code block|code)s? (?:was "
    r"|were )?(?:found|provided|detected)"
    r"|(?:format|parsing|parse|formatting) errors?\b|invalid json\b|malformed\b|not (?:a )?valid json\b)",
    re.I,
)
_TAGS = (("<tool_call>", "</tool_call>"), ("<function=", "</function>"), ("<parameter=", "</parameter>"))
_MIN_OVERLAP = 8  # characters: shorter strings occur anywhere, so they say nothing about "the same place"


def tool_errors(view: View, judged: list[Judgement]) -> list[Finding]:
    """R2: calls whose result is an error, other than those of R3, R4 and R13 by their signal."""
    found = []
    for step, judgement in zip(view.steps, judged, strict=True):
        if judgement.kind == "error":
            found.append(
                Finding(_rule(view, step, judgement), step.message, step.call, judgement.signal, judgement.detail)
            )
    return found


def _rule(view: View, step: Step, judgement: Judgement) -> str:
    call = step.action
    if judgement.signal in _MALFORMED or (judgement.signal == "text_format" and step.call is None):
        return "R3"
    if judgement.signal in _BREACH:
        return "R4"
    return "R13" if call is not None and is_edit(call) else "R2"


def malformed_calls(view: View, judged: list[Judgement]) -> list[Finding]:
    """R3: arguments that are not a JSON object even after a second decode, tags left open, parse-error feedback.

    An open tag or feedback counts only for turns that gave no structured call and whose result is not fine; feedback
    only in runs with actions, for people also talk about malformed JSON.
    """
    found: list[Finding] = []
    messages = view.trajectory.messages
    fine = {step.message for step, judgement in zip(view.steps, judged, strict=True) if judgement.kind == "ok"}
    for index in view.turns:
        message = messages[index]
        for number, call in enumerate(message.tool_calls):
            problem = decode_arguments(call.arguments).problem
            if problem in ("not_json", "not_an_object"):
                found.append(Finding("R3", index, number, f"arguments_{problem}", call.arguments[:160]))
        if message.tool_calls or index in fine or message.author:
            continue
        opened = [start for start, end in _TAGS if _left_open(message.content, start, end)]
        if opened:
            found.append(Finding("R3", index, None, "open_tag", f"{opened[0]} is never closed"))
        elif view.steps and _is_feedback(messages, index):
            found.append(Finding("R3", index, None, "parse_feedback", messages[index + 1].content[:160]))
    return found


def _left_open(content: str, start: str, end: str) -> bool:
    """Whether a tag that opens at the start of a line is opened more often than closed."""
    return content.count(start) > content.count(end) and (content.startswith(start) or f"\n{start}" in content)


def _is_feedback(messages: list[Message], index: int) -> bool:
    """Whether the message after a turn without calls is a harness complaining that it could not read an action."""
    if index + 1 >= len(messages) or messages[index + 1].role not in ("user", "tool"):
        return False
    return bool(_FEEDBACK.search(messages[index + 1].content[:300]))


@lru_cache(maxsize=256)
def tool_schemas(tools: str) -> dict[str, Any]:
    """Name to parameter schema (None: none given) from a trajectory's `tools`; accepts the OpenAI and Anthropic shapes.

    Unreadable text or entries give no tool: readers report them.
    """
    try:
        listed = orjson.loads(tools or "[]")
    except ValueError:
        return {}
    schemas: dict[str, Any] = {}
    for tool in listed if isinstance(listed, list) else []:
        body = tool.get("function", tool) if isinstance(tool, dict) else None
        if isinstance(body, dict) and isinstance(body.get("name"), str):
            schema = body.get("parameters", body.get("input_schema", body.get("inputSchema")))
            schemas[body["name"]] = schema if isinstance(schema, dict) else None
    return schemas


@lru_cache(maxsize=256)
def _validators(tools: str) -> dict[str, Draft202012Validator | None]:
    validators: dict[str, Draft202012Validator | None] = {}
    for name, schema in tool_schemas(tools).items():
        # An empty registry: a `$ref` to an address must not be fetched.
        validators[name] = Draft202012Validator(schema, registry=Registry()) if schema else None
    return validators


def schema_breaches(view: View, judged: list[Judgement]) -> list[Finding]:
    """R4: a tool that is not in `tools`, a missing or wrongly typed argument, an enum breach (JSON Schema 2020-12).

    An argument that the schema does not name, though it does not forbid it, counts only when the call did not work.
    Nothing is said when the trajectory defines no tools. A schema that is itself broken judges nobody.
    """
    validators = _validators(view.trajectory.tools)
    if not validators:
        return []
    found: list[Finding] = []
    for step, judgement in zip(view.steps, judged, strict=True):
        call = step.action
        if call is None or step.call is None:
            continue
        if call.name not in validators:
            found.append(Finding("R4", step.message, step.call, "unknown_tool", f"{call.name!r} is not in tools"))
            continue
        decoded = decode_arguments(call.arguments)
        validator = validators[call.name]
        if validator is None or decoded.problem in ("not_json", "not_an_object"):
            continue
        breach = _breach(validator, decoded)
        unknown = "" if judgement.kind == "ok" else _unknown_argument(validator.schema, decoded)
        if breach or unknown:
            signal = "schema" if breach else "unknown_argument"
            found.append(Finding("R4", step.message, step.call, signal, breach or unknown))
    return found


def _unknown_argument(schema: Any, decoded: Decoded) -> str:
    """The first argument that a closed-looking schema does not name, in words."""
    known = schema.get("properties")
    if not isinstance(known, dict) or not known or schema.get("additionalProperties") or "patternProperties" in schema:
        return ""
    stray = next((name for name in decoded.value if name not in known), None)
    return "" if stray is None else f"no argument is called {stray!r}"


def _breach(validator: Draft202012Validator, decoded: Decoded) -> str:
    """The first breach in words ("" for none or an unusable schema)."""
    try:
        error = next(iter(validator.iter_errors(decoded.value)), None)
    except (
        SchemaError,
        UnknownType,
        UndefinedTypeCheck,
        Unresolvable,
        RecursionError,
        TypeError,
        AttributeError,
        re.error,
    ):
        return ""
    if error is None:
        return ""
    place = "/".join(map(str, error.absolute_path)) or "arguments"
    return f"{place}: {error.message[:160]}"


def failed_edits(view: View, judged: list[Judgement]) -> list[Finding]:
    """R13 beyond a refused edit: an edit that went in and was wrong.

    Where the environment says so (result signal `tests_unfixed`: tests fail as before though files were edited since),
    the last edit before that result was the mistake, and nothing else is inferred. Where it is silent, an edit counts
    as wrong only if all of this is seen: a test run after it fails, a later edit of the same file replaces text that
    overlaps what it put in, and a test run after that passes. An edit after which tests merely still fail is not
    blamed: many repairs need several edits.
    """
    spoken = any(
        message.signal in ("tests_failed", "tests_unfixed", "tests_passed") for message in view.trajectory.messages
    )
    return _unfixed(view, judged) if spoken else _reverted(view, judged)


def _unfixed(view: View, judged: list[Judgement]) -> list[Finding]:
    found: dict[int, Finding] = {}
    last_edit: Step | None = None
    for step, judgement in zip(view.steps, judged, strict=True):
        call, result = step.action, view.result_of(step)
        if call is not None and is_edit(call) and judgement.kind == "ok":
            last_edit = step
        elif result is not None and result.signal == "tests_unfixed" and last_edit is not None:
            found.setdefault(
                last_edit.message,
                Finding(
                    "R13",
                    last_edit.message,
                    last_edit.call,
                    "tests_unfixed",
                    f"message {step.result}: tests fail as before",
                ),
            )
    return list(found.values())


def _reverted(view: View, judged: list[Judgement]) -> list[Finding]:
    found: list[Finding] = []
    open_edits: list[tuple[Step, str, str]] = []  # step, path, text put in: edits seen to leave tests failing
    fresh: list[tuple[Step, str, str]] = []  # edits since the last test run
    suspects: list[Finding] = []
    for step, judgement in zip(view.steps, judged, strict=True):
        call = step.action
        if call is None:
            continue
        if is_edit(call) and judgement.kind == "ok":
            path, old, new = edit_strings(call)
            for earlier, earlier_path, put in open_edits:
                if path == earlier_path and _overlap(old, put):
                    suspects.append(
                        Finding(
                            "R13", earlier.message, earlier.call, "edit_redone", f"message {step.message} replaces it"
                        )
                    )
            fresh.append((step, path, new))
        elif is_test_run(call) and judgement.kind == "negative":
            open_edits.extend(fresh)
            fresh = []
        elif is_test_run(call) and judgement.kind == "ok":
            found.extend(suspects)
            open_edits, fresh, suspects = [], [], []
    unique = {(finding.message, finding.call): finding for finding in reversed(found)}
    return sorted(unique.values(), key=lambda finding: (finding.message or 0, finding.call or 0))


def _overlap(old: str, put: str) -> bool:
    """Whether an edit replaces (part of) what an earlier edit put in."""
    shorter, longer = sorted((old.strip(), put.strip()), key=len)
    return len(shorter) >= _MIN_OVERLAP and shorter in longer


def negative_results(view: View, judged: list[Judgement]) -> list[Finding]:
    """R12: probes that came back empty or red, with the signal that says so. These turns are trained."""
    return [
        Finding("R12", step.message, step.call, judgement.signal, judgement.detail)
        for step, judgement in zip(view.steps, judged, strict=True)
        if judgement.kind == "negative"
    ]
