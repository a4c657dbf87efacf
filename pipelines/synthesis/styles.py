"""Call styles: one canonical trajectory in several scaffolds, so that a skill does not hang on one way to call a tool.

    native   calls are structured; the chat template writes them
    xml      <tool_call> <function=NAME> <parameter=ARG> … </tool_call> in the text of the turn
    hermes   <tool_call> {"name": …, "arguments": {…}} </tool_call>
    react    Thought: … / Action: NAME / Action Input: {…} / Observation: … / Final Answer: …

Trajectories are kept canonical (structured calls) from the roll-out to the masks: detectors see every call. Which
scaffold a trajectory is written in is a note on it (`mark_style`); the masks step writes the kept record with
`restyled`: `tools` empty and described in the system turn, calls as text, results as user turns. Messages stay one to
one, with `train`, `mask_reasons`, `error` and `signal`. What a style cannot say without loss stays native: `styled`
checks that `parse_turn` gives every call back. `unstyled` is the inverse.

The endpoint teacher uses the same texts for prompts and the same readers for replies.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import get_args

import xxhash

from pipelines.synthesis.chat import (
    END_RESPONSE,
    RESPONSE,
    ParsedReply,
    call_arguments,
    call_text,
    parse_reply,
    tool_lines,
)
from pipelines.synthesis.react import parse_react, react_turn
from schemas.errors import UsageError
from schemas.recipe.endpoint import CallStyle
from schemas.trajectory import Message, ToolCall, Trajectory

__all__ = [
    "CALL_STYLES",
    "mark_style",
    "observation_text",
    "parse_turn",
    "pick_style",
    "restyled",
    "style_of",
    "styled",
    "system_text",
    "turn_text",
    "unstyled",
]

CALL_STYLES: tuple[str, ...] = get_args(CallStyle)
NOTE = "call_style="
_ADDED = "+system"  # the mark of a record whose system turn was made for the tools
_OBSERVATION = "Observation: "
_LISTED = "# Tools\n\nThese tools are there, each described by a JSON schema:\n\n"
_RULES = {
    "xml": "\n\nTo call a tool, write a block of this form, one for each call, at the end of your reply. "
    "Results come back in <tool_response> blocks.\n\n<tool_call>\n<function=tool_name>\n<parameter=argument_name>\n"
    "value\n</parameter>\n</function>\n</tool_call>\n\nAnswer without a call when you are done.",
    "hermes": "\n\nTo call a tool, write a JSON object between <tool_call> tags, one block for each call, at the end "
    'of your reply. Results come back in <tool_response> blocks.\n\n<tool_call>\n{"name": "tool_name", "arguments": '
    '{"argument_name": "value"}}\n</tool_call>\n\nAnswer without a call when you are done.',
    "react": "\n\nReply in this form; the observation is given to you after each action:\n\nThought: what to do next\n"
    'Action: tool_name\nAction Input: {"argument_name": "value"}\n\nWhen you are done:\n\n'
    "Thought: why you are done\nFinal Answer: the answer",
}


def pick_style(task_id: str, shares: Mapping[str, float], seed: int = 0) -> str:
    """The style of a task: by hash, so that of many tasks about each share has each style. No shares: native.

    `shares` are styles and weights that need not sum to 1. Raises UsageError for an unknown style, a negative weight,
    or no positive one.
    """
    if not shares:
        return "native"
    unknown = sorted(set(shares) - set(CALL_STYLES))
    if unknown:
        raise UsageError(f"call_styles: {unknown[0]!r} is unknown. Styles: {', '.join(CALL_STYLES)}")
    total = sum(shares.values())
    if min(shares.values()) < 0 or total <= 0:
        raise UsageError(f"call_styles {dict(shares)}: weights must not be negative, and one must be positive")
    place = xxhash.xxh3_64_intdigest(f"call style:{seed}:{task_id}".encode("utf-8", "surrogatepass")) / 2**64 * total
    for style in CALL_STYLES:
        place -= shares.get(style, 0.0)
        if place < 0:
            return style
    return max(shares, key=lambda style: (shares[style], style))  # rounding at the very end of the range


def mark_style(trajectory: Trajectory, style: str) -> Trajectory:
    """A copy that says which scaffold it is to be written in (`notes`); its messages stay canonical.

    A trajectory without tools is the same in every style and gets no mark. Raises UsageError for an unknown style.
    """
    if style not in CALL_STYLES:
        raise UsageError(f"call style {style!r} is unknown. Styles: {', '.join(CALL_STYLES)}")
    notes = [note for note in trajectory.notes if not note.startswith(NOTE)]
    marked = style != "native" and bool(tool_lines(trajectory.tools))
    return replace(trajectory, notes=[*notes, f"{NOTE}{style}"] if marked else notes)


def style_of(trajectory: Trajectory) -> str:
    """The style that the record is marked with; native without a mark."""
    marks = (note.removeprefix(NOTE).removesuffix(_ADDED) for note in trajectory.notes if note.startswith(NOTE))
    return next(marks, "native")


def restyled(trajectory: Trajectory) -> Trajectory:
    """The trajectory written in the style that it is marked with; without the mark where that would lose something."""
    style = style_of(trajectory)
    if style not in CALL_STYLES or not tool_lines(trajectory.tools):
        return trajectory
    written = styled(trajectory, style)
    return mark_style(trajectory, "native") if written is trajectory else written


def system_text(system: str, tools: str, style: str) -> str:
    """The system turn of a text style: what it said, then the tools (a JSON list) and how to call them."""
    gap = "\n\n" if system else ""
    return f"{system}{gap}{_LISTED}" + "\n".join(tool_lines(tools)) + _RULES[style]


def turn_text(message: Message, style: str) -> tuple[str | None, str]:
    """(reasoning, content) of an assistant turn with its calls as text. ReAct's thought takes the reasoning's place."""
    if style == "react":
        return react_turn(message)
    blocks = [call_text(call, "json" if style == "hermes" else "xml") for call in message.tool_calls]
    return message.reasoning, "\n".join([*([message.content] if message.content or not blocks else []), *blocks])


def observation_text(content: str, style: str) -> str:
    """A tool result as the text of a user turn."""
    return f"{_OBSERVATION}{content}" if style == "react" else f"{RESPONSE}\n{content}\n{END_RESPONSE}"


def parse_turn(text: str, tools: str, style: str, *, first_call: int = 0) -> ParsedReply:
    """Take a reply apart that was written in a text style (xml and hermes are told apart by their look).

    Nothing is raised: `problem` names what was malformed.
    """
    if style == "react":
        return parse_react(text, first_call=first_call)
    return parse_reply(text, tools, first_call=first_call)


def styled(trajectory: Trajectory, style: str) -> Trajectory:
    """A copy in another scaffold, or the trajectory itself when it has no tools or cannot be said in it without loss.

    Reads canonical trajectories; one that is already in a text style stays. Cost linear in the text.
    """
    if style == "native" or not tool_lines(trajectory.tools) or not _sayable(trajectory, style):
        return trajectory
    messages = list(trajectory.messages)
    first = messages[0] if messages and messages[0].role == "system" else None
    decided = any(message.train is not None for message in messages)
    system = Message("system", train=False if decided else None) if first is None else first
    written = [replace(system, content=system_text(system.content, trajectory.tools, style))]
    for message in messages if first is None else messages[1:]:
        if message.role == "assistant":
            message = _written(message, style)
        elif message.role == "tool":
            message = replace(message, role="user", content=observation_text(message.content, style))
        written.append(message)
    marked = mark_style(trajectory, style).notes
    if first is None:
        marked[-1] += _ADDED
    return replace(trajectory, messages=written, tools="[]", notes=marked)


def unstyled(trajectory: Trajectory) -> Trajectory:
    """The inverse of `styled`: structured calls, tools and tool turns again; other trajectories stay as they are."""
    style = style_of(trajectory)
    head, listed, rest = trajectory.messages[0].content.rpartition(_LISTED) if trajectory.messages else ("", "", "")
    if style not in _RULES or not listed or not rest.endswith(_RULES[style]):
        return trajectory
    tools = "[" + ", ".join(rest.removesuffix(_RULES[style]).split("\n")) + "]"
    messages: list[Message] = []
    waiting: list[ToolCall] = []
    for message in trajectory.messages[1:]:
        if message.role == "assistant":
            message = _structured(message, tools, style)
            waiting = list(message.tool_calls)
        elif message.role == "user" and waiting:
            call = waiting.pop(0)
            call.id = message.tool_call_id or call.id
            message = replace(message, role="tool", content=_result_text(message.content, style))
        messages.append(message)
    if f"{NOTE}{style}{_ADDED}" not in trajectory.notes:
        messages.insert(0, replace(trajectory.messages[0], content=head.removesuffix("\n\n")))
    return mark_style(replace(trajectory, messages=messages, tools=tools), style)


def _written(message: Message, style: str) -> Message:
    """An assistant turn with its calls in the text."""
    reasoning, content = turn_text(message, style)
    return replace(message, reasoning=reasoning, content=content, tool_calls=[])


def _structured(message: Message, tools: str, style: str) -> Message:
    """An assistant turn with its calls taken out of the text."""
    reply = parse_turn(message.content, tools, style)
    if style != "react":
        return replace(message, content=reply.content, tool_calls=reply.tool_calls)
    if message.reasoning and reply.tool_calls:  # the thought was what it said
        return replace(message, content=reply.reasoning or "", tool_calls=reply.tool_calls)
    return replace(message, reasoning=reply.reasoning, content=reply.content, tool_calls=reply.tool_calls)


def _result_text(text: str, style: str) -> str:
    if style == "react":
        return text.removeprefix(_OBSERVATION)
    return text.removeprefix(f"{RESPONSE}\n").removesuffix(f"\n{END_RESPONSE}")


def _sayable(trajectory: Trajectory, style: str) -> bool:
    """Whether every turn comes back from its text: each call as it is, no words taken for a call, no words lost."""
    return all(
        _same_turn(message, _structured(_written(message, style), trajectory.tools, style))
        for message in trajectory.messages
        if message.role == "assistant"
    )


def _same_turn(one: Message, other: Message) -> bool:
    """Equal words (in ReAct, words may have become the thought) and calls: names, and arguments by value and key order
    where they are JSON objects, else letter by letter."""
    words = [[part for part in (message.reasoning, message.content) if part] for message in (one, other)]
    calls = [[(call.name, _spelled(call.arguments)) for call in message.tool_calls] for message in (one, other)]
    return words[0] == words[1] and calls[0] == calls[1]


def _spelled(arguments: str) -> str:
    parsed = call_arguments(arguments)
    return arguments if isinstance(parsed, str) else json.dumps(parsed)
