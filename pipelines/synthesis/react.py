"""ReAct text: Thought, Action, Action Input, Final Answer (Yao et al. 2022, arXiv 2210.03629; the form of LangChain).

Thoughts stand for reasoning. A turn that has both words and reasoning beside a call says its words as the thought and
keeps its reasoning. Arguments are written as the call has them, so malformed ones stay malformed.
"""

from __future__ import annotations

import json
import re

from pipelines.synthesis.chat import END_THINK, THINK, TURN_END, ParsedReply
from schemas.trajectory import Message, ToolCall

__all__ = ["STOP", "parse_react", "react_turn"]

STOP = "\nObservation:"  # where a model that goes on to invent its observation is to be stopped
_THOUGHT = "Thought: "
_ANSWER = "Final Answer: "
_ACTION = re.compile(r"^[ \t]*Action[ \t]*:[ \t]*(.*?)[ \t]*\n\s*Action Input[ \t]*:[ \t]*", re.M)
_FINAL = re.compile(r"^[ \t]*Final Answer[ \t]*:[ \t]?", re.M)
_NEXT = re.compile(r"\n[ \t]*(?:Observation|Action|Thought|Final Answer)[ \t]*:")
_FENCE = re.compile(r"```(?:json)?[ \t]*\n(.*?)\n[ \t]*```", re.S)


def react_turn(message: Message) -> tuple[str | None, str]:
    """(reasoning that stays apart, text) of an assistant turn."""
    calls = "\n".join(f"Action: {call.name}\nAction Input: {call.arguments}" for call in message.tool_calls)
    if not calls:
        return "" if message.reasoning else None, _thought(message.reasoning) + _ANSWER + message.content
    if message.content:
        return message.reasoning, _thought(message.content) + calls
    return "" if message.reasoning else None, _thought(message.reasoning) + calls


def _thought(text: str | None) -> str:
    return f"{_THOUGHT}{text}\n" if text else ""


def parse_react(text: str, *, first_call: int = 0) -> ParsedReply:
    """Take a reply apart; whatever follows an invented observation is ignored. A think block before it is reasoning.

    A text with neither an action nor a final answer is an answer as it stands, with a `problem`.
    """
    reply = ParsedReply()
    text = text.rstrip().removesuffix(TURN_END) if text.rstrip().endswith(TURN_END) else text
    if text.lstrip().startswith(THINK):
        inner, closed, rest = text.lstrip()[len(THINK) :].partition(END_THINK)
        reply.reasoning = inner.strip("\n")
        if not closed:
            reply.problem = "the think block has no end"
            return reply
        text = rest
    action, final = _ACTION.search(text), _FINAL.search(text)
    start = min(found.start() for found in (action, final) if found) if action or final else len(text)
    if start == len(text):
        thought = text.strip()
        reply.content = thought.removeprefix("Thought:").strip()
        reply.problem = "neither an action nor a final answer" if thought else None
        return reply
    thought = text[:start].removesuffix("\n")
    if thought.lstrip().startswith("Thought:"):
        thought = thought.lstrip().removeprefix("Thought:").removeprefix(" ")
    reply.reasoning = "\n".join(part for part in (reply.reasoning, thought) if part) or None
    if final and final.start() == start:
        reply.content = text[final.end() :]
        return reply
    _read_actions(text[start:], reply, first_call)
    return reply


def _read_actions(text: str, reply: ParsedReply, first_call: int) -> None:
    """Actions that follow one another; anything else ends them."""
    position = 0
    while (match := _ACTION.match(text, position)) is not None:
        arguments, position = _arguments(text, match.end())
        reply.tool_calls.append(ToolCall(f"call_{first_call + len(reply.tool_calls)}", match[1], arguments))
        while position < len(text) and text[position] == "\n":
            position += 1


def _arguments(text: str, start: int) -> tuple[str, int]:
    """(arguments, where they end): one JSON value alone on its lines, also inside a fence; else all up to a keyword."""
    while start < len(text) and text[start] in " \t\n":
        start += 1
    fence = _FENCE.match(text, start)
    if fence:
        return fence[1].strip(), fence.end()
    try:
        _, end = json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError):
        end = -1
    if end >= 0 and not text[end:].partition("\n")[0].strip():
        return text[start:end], end
    following = _NEXT.search(text, start)
    end = following.start() if following else len(text)
    return text[start:end], end
