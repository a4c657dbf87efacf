"""Targets made of chat messages: openai, axolotl, slime, tinker, verl. They differ in the mask's field and in how
reasoning, arguments and tools are spelled; each difference is one argument here."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from pipelines.synthesis.convert.writer import LeftOut, Losses, trained, weight_of
from schemas.trajectory import Message, ToolCall, Trajectory

__all__ = ["ChatWriter", "arguments_object", "tools_list", "with_think"]

Reasoning = Literal["think", "field", "parts"]
Arguments = Literal["text", "json_text", "object", "unparsed"]
Tools = Literal["list", "text", "list_with_text_parameters"]

# what no target has a field for; it stays in our own file
_METADATA = "labels, signals and mask reasons stay behind (the mask itself is written)"


def arguments_object(call: ToolCall) -> Any:
    """The arguments parsed when they are a JSON object, else the text itself."""
    try:
        orjson.loads(call.arguments)  # refuses what a row of strict JSON in UTF-8 cannot hold: NaN, lone surrogates
        value = json.loads(call.arguments)  # keeps integers of any size
    except (ValueError, RecursionError):
        return call.arguments
    return value if isinstance(value, dict) else call.arguments


def is_json(text: str) -> bool:
    """Whether a text is JSON."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def with_think(message: Message, losses: Losses) -> str:
    """The content with the reasoning before it as a think block: for targets without a field for reasoning."""
    if message.reasoning is None:
        if "</think>" in message.content:
            losses.add("texts that spell </think>: a reader takes what is before it for reasoning")
        return message.content
    if message.reasoning != message.reasoning.strip("\n") or message.content.startswith("\n"):
        losses.add("line breaks around reasoning, which the think block swallows")
    if "</think>" in message.reasoning:
        losses.add("reasoning that spells </think>: a reader ends it there")
    return f"<think>\n{message.reasoning}\n</think>\n\n{message.content}"


def tools_list(tools: str, losses: Losses) -> list[Any]:
    """The tool definitions as a list; what is not a JSON list is a loss."""
    try:
        value = json.loads(tools or "[]")
    except ValueError:
        value = None
    if isinstance(value, list):
        return value
    losses.add("tools that are not a JSON list, left out")
    return []


def count_metadata(trajectory: Trajectory, losses: Losses) -> None:
    """Count the turns whose labels, signals, reasons or authors no target holds."""
    held = sum(
        1
        for message in trajectory.messages
        if message.label or message.signal or message.mask_reasons or message.author
    )
    losses.add(_METADATA, held)


@dataclass(slots=True)
class ChatWriter:
    """A jsonl (or parquet) target of {messages, tools}.

    `mask` gives the fields that say whether a turn is trained. `weights`: whether fractions survive in them.
    `flag_all`: whether turns of other roles carry them too.
    """

    name: str
    mask: Callable[[Message], dict[str, Any]]
    reasoning: Reasoning
    arguments: Arguments
    tools: Tools = "list"
    weights: bool = False
    flag_all: bool = False
    names: bool = True
    kind: Literal["jsonl", "parquet"] = "jsonl"
    schema_of: Callable[[], Any] | None = None
    note: str = ""
    needs_tokenizer: bool = False

    def schema(self) -> Any:
        """The Arrow schema of a parquet target."""
        return self.schema_of() if self.schema_of is not None else None

    def rows(self, trajectories: list[Trajectory], losses: Losses) -> Iterator[list[dict[str, Any]] | LeftOut]:
        """See `Writer.rows`."""
        for trajectory in trajectories:
            try:
                yield [self._row(trajectory, losses)]
            except LeftOut as reason:
                yield reason

    def _row(self, trajectory: Trajectory, losses: Losses) -> dict[str, Any]:
        found = Losses()
        messages = [self._message(message, found) for message in trajectory.messages]
        row: dict[str, Any] = {"id": trajectory.id, "messages": messages}
        if trajectory.tools not in ("", "[]"):
            row["tools"] = self._tools(trajectory.tools, found)
        count_metadata(trajectory, found)
        if self.note:
            found.add(self.note)
        losses.counts.update(found.counts)
        return row

    def _tools(self, tools: str, losses: Losses) -> Any:
        if self.tools == "text":
            return tools
        listed = tools_list(tools, losses)
        if self.tools == "list_with_text_parameters":
            return [_text_parameters(tool) for tool in listed]
        return listed

    def _message(self, message: Message, losses: Losses) -> dict[str, Any]:
        made: dict[str, Any] = {"role": message.role, "content": message.content}
        if message.role == "assistant":
            self._assistant(made, message, losses)
        elif message.role == "tool" and message.tool_call_id is not None:
            made["tool_call_id"] = message.tool_call_id
        if message.name is not None and self.names:
            made["name"] = message.name
        elif message.name is not None and message.role != "tool":
            losses.add("names of turns (observation, compaction)")
        if message.role == "assistant" or self.flag_all:
            made.update(self.mask(message))
        if trained(message) and weight_of(message) != 1 and not self.weights:
            losses.add("loss weights other than 0 and 1, written as trained")
        return made

    def _assistant(self, made: dict[str, Any], message: Message, losses: Losses) -> None:
        if self.reasoning == "field":
            if message.reasoning is not None:
                made["reasoning_content"] = message.reasoning
        elif self.reasoning == "think":
            made["content"] = with_think(message, losses)
        elif message.reasoning is not None:
            made["content"] = [
                {"type": "thinking", "thinking": message.reasoning},
                {"type": "text", "text": message.content},
            ]
        if not message.tool_calls:
            return
        if (
            self.arguments == "json_text"
            and trained(message)
            and not all(is_json(c.arguments) for c in message.tool_calls)
        ):
            raise LeftOut("a trained call's arguments are not JSON, which ends the target's run")
        whole = [call for call in message.tool_calls if self.arguments != "unparsed" or is_json(call.arguments)]
        broken = [call for call in message.tool_calls if call not in whole]
        if whole:
            made["tool_calls"] = [self._call(call, losses) for call in whole]
        if broken:
            losses.add("calls whose arguments are not JSON, written as unparsed_tool_calls", len(broken))
            made["unparsed_tool_calls"] = [
                {"raw_text": f'{{"name": {json.dumps(call.name)}, "arguments": {call.arguments}}}', "error": "not JSON"}
                for call in broken
            ]

    def _call(self, call: ToolCall, losses: Losses) -> dict[str, Any]:
        arguments: Any = call.arguments
        if self.arguments == "json_text" and not is_json(call.arguments):
            losses.add('masked calls whose arguments are not JSON, wrapped as {"not_json": text}')
            arguments = json.dumps({"not_json": call.arguments}, ensure_ascii=False)
        if self.arguments == "object":
            arguments = arguments_object(call)
            if isinstance(arguments, str):
                losses.add("calls whose arguments are not a JSON object, written as text")
            elif json.dumps(arguments, ensure_ascii=False) != call.arguments:
                losses.add("argument texts spelled anew (same JSON, other white space)")
        return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _text_parameters(tool: Any) -> Any:
    """A tool whose parameters are JSON text: in a column of objects, Arrow would add the keys of other tools."""
    function = tool.get("function") if isinstance(tool, dict) else None
    if not isinstance(function, dict) or "parameters" not in function:
        return tool
    return {**tool, "function": {**function, "parameters": json.dumps(function["parameters"], ensure_ascii=False)}}
