"""The chat format: messages to pieces of text, and an assistant's reply back to a message.

ChatML with a think block, tool calls as XML (or as JSON) and tool results inside a user turn, the shape that the
public `nanbeige` checkpoints are served with:

    <|im_start|>system … <tools> one JSON schema a line </tools> … <|im_end|>
    <|im_start|>user … <|im_end|>
    <|im_start|>assistant <think> reasoning </think> content <tool_call> … </tool_call> <|im_end|>
    <|im_start|>user <tool_response> … </tool_response> <tool_response> … </tool_response> <|im_end|>

Nothing here knows a tokenizer. A piece is either one control token or plain text; text of a message is always
plain, so a spelled `<|im_end|>` inside a tool result stays text. `template.py` of the curriculum holds the Jinja
template that gives the same characters; the two are tested against each other.

A call is `<function=NAME>` with `<parameter=…>` blocks (form "xml", the default) or one JSON object with `name` and
`arguments` (form "json"); `parse_reply` understands both.

Every assistant turn opens with a think block; it is empty when the message has no reasoning. The format adds white
space but never strips it from a message, so `parse_reply(render of m)` gives m back.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from schemas.errors import InputError
from schemas.trajectory import Message, ToolCall

__all__ = [
    "CALL_FORMS",
    "CONTROL_TOKENS",
    "END_OF_TEXT",
    "TURN_END",
    "TURN_START",
    "ParsedReply",
    "Piece",
    "call_arguments",
    "call_text",
    "parse_reply",
    "pieces_text",
    "render_generation_prompt",
    "render_messages",
    "split_thinking",
    "tool_lines",
]

END_OF_TEXT = "<|endoftext|>"
TURN_START = "<|im_start|>"
TURN_END = "<|im_end|>"
THINK, END_THINK = "<think>", "</think>"
CALL, END_CALL = "<tool_call>", "</tool_call>"
RESPONSE, END_RESPONSE = "<tool_response>", "</tool_response>"
TOOLS, END_TOOLS = "<tools>", "</tools>"

# in the order of their ids in a tokenizer of ours: 0, 1, 2, …
CONTROL_TOKENS = (
    END_OF_TEXT,
    TURN_START,
    TURN_END,
    THINK,
    END_THINK,
    CALL,
    END_CALL,
    RESPONSE,
    END_RESPONSE,
    TOOLS,
    END_TOOLS,
)

TOOLS_INTRO = "# Tools\n\nYou have access to the following functions:\n\n"
TOOLS_OUTRO = "\n\nTo call a function, reply in this form, one block for each call:\n\n"
CALL_FORMS = ("xml", "json")
TOOLS_EXAMPLES = {
    "xml": "\n<function=function_name>\n<parameter=parameter_name>\nvalue\n</parameter>\n</function>\n",
    "json": '\n{"name": "function_name", "arguments": {"parameter_name": "value"}}\n',
}


class Piece(NamedTuple):
    """A run of text. `control` is true for one control token. `part` is header, system, user, tool or assistant;
    `message` is the index of the message it belongs to (-1: the system turn that only lists tools, or the prompt)."""

    text: str
    control: bool
    part: str
    message: int


@dataclass(slots=True)
class ParsedReply:
    """An assistant's reply taken apart. `problem` says what was malformed (the text of it stays in `content`)."""

    content: str = ""
    reasoning: str | None = None
    tool_calls: list[ToolCall] = field(default_factory=list)
    problem: str | None = None

    def to_message(self) -> Message:
        """The reply as an assistant message."""
        return Message("assistant", self.content, self.reasoning, self.tool_calls)


def render_messages(
    messages: Sequence[Message],
    tools: str = "[]",
    *,
    generation_prompt: bool = False,
    thinking: bool = True,
    form: str = "xml",
) -> list[Piece]:
    """Pieces of a whole conversation, in order; joined they are the text of the Jinja template.

    `tools` is a JSON string (a list of schemas); `form` of the calls is one of CALL_FORMS. With `generation_prompt` the
    opening of an assistant turn follows; `thinking` False then adds the empty think block. Raises InputError for a role
    that the format does not know.
    """
    pieces: list[Piece] = []
    listed = tool_lines(tools)
    if listed and (not messages or messages[0].role != "system"):
        pieces.extend(_system_turn("", listed, -1, form))
    for index, message in enumerate(messages):
        if message.role == "assistant":
            pieces.extend(_assistant_turn(message, index, form))
        elif message.role == "tool":
            first = index == 0 or messages[index - 1].role != "tool"
            last = index + 1 == len(messages) or messages[index + 1].role != "tool"
            pieces.extend(_tool_turn(message.content, index, first=first, last=last))
        elif message.role == "system":
            pieces.extend(_system_turn(message.content, listed if index == 0 else [], index, form))
        elif message.role == "user":
            pieces.extend(_turn("user", [Piece(f"user\n{message.content}", False, "user", index)], index))
        else:
            raise InputError(
                f"role {message.role!r} has no place in the chat format",
                field=f"messages[{index}].role",
                todo="Use system, user, assistant or tool",
            )
    if generation_prompt:
        pieces.extend(render_generation_prompt(thinking=thinking))
    return pieces


def render_generation_prompt(*, thinking: bool = True) -> list[Piece]:
    """The opening of an assistant turn, after which a model writes. `thinking` False closes the think block at once."""
    pieces = [Piece(TURN_START, True, "header", -1), Piece("assistant\n", False, "header", -1)]
    if not thinking:
        for text, control in ((THINK, True), ("\n\n", False), (END_THINK, True), ("\n\n", False)):
            pieces.append(Piece(text, control, "header", -1))
    return pieces


def pieces_text(pieces: Iterable[Piece]) -> str:
    """The characters of the pieces, control tokens spelled out."""
    return "".join(piece.text for piece in pieces)


def _turn(part: str, body: list[Piece], index: int) -> Iterator[Piece]:
    yield Piece(TURN_START, True, "header", index)
    yield from body
    yield Piece(TURN_END, True, part, index)
    yield Piece("\n", False, "header", index)


def _system_turn(content: str, listed: list[str], index: int, form: str) -> Iterator[Piece]:
    if not listed:
        return _turn("system", [Piece(f"system\n{content}", False, "system", index)], index)
    gap = "\n\n" if content else ""
    body = [
        (f"system\n{content}{gap}{TOOLS_INTRO}", False),
        (TOOLS, True),
        ("\n" + "\n".join(listed) + "\n", False),
        (END_TOOLS, True),
        (TOOLS_OUTRO, False),
        (CALL, True),
        (TOOLS_EXAMPLES[form], False),
        (END_CALL, True),
    ]
    return _turn("system", [Piece(text, control, "system", index) for text, control in body], index)


def _tool_turn(content: str, index: int, *, first: bool, last: bool) -> Iterator[Piece]:
    """One tool result; neighbours share a user turn: the first opens it, the last closes it."""
    if first:
        yield Piece(TURN_START, True, "header", index)
    yield Piece("user\n" if first else "\n", False, "tool", index)
    yield Piece(RESPONSE, True, "tool", index)
    yield Piece(f"\n{content}\n", False, "tool", index)
    yield Piece(END_RESPONSE, True, "tool", index)
    if last:
        yield Piece(TURN_END, True, "tool", index)
        yield Piece("\n", False, "header", index)


def _assistant_turn(message: Message, index: int, form: str) -> Iterator[Piece]:
    reasoning, content = split_thinking(message.content, message.reasoning)
    yield Piece(TURN_START, True, "header", index)
    yield Piece("assistant\n", False, "header", index)
    yield Piece(THINK, True, "assistant", index)
    yield Piece(f"\n{reasoning or ''}\n", False, "assistant", index)
    yield Piece(END_THINK, True, "assistant", index)
    text = f"\n\n{content}"
    for number, call in enumerate(message.tool_calls):
        if number or content:
            text += "\n"
        if text:
            yield Piece(text, False, "assistant", index)
        yield Piece(CALL, True, "assistant", index)
        yield Piece(_spelled_call(call, form), False, "assistant", index)
        yield Piece(END_CALL, True, "assistant", index)
        text = ""
    if text:
        yield Piece(text, False, "assistant", index)
    yield Piece(TURN_END, True, "assistant", index)
    yield Piece("\n", False, "header", index)


def split_thinking(content: str, reasoning: str | None) -> tuple[str | None, str]:
    """(reasoning, content) of an assistant message whose think block may still be inside its content.

    With `reasoning` given, both stay as they are. Otherwise `<think>a</think>b` and `a</think>b` give (a, b), and
    `<think>a` without an end gives (a, ""). A tag after other words is talk about tags: it stays text.
    """
    if reasoning is not None:
        return reasoning, content
    head, closed, tail = content.partition(END_THINK)
    lead, opened, inner = head.partition(THINK)
    if (not closed and not opened) or (opened and lead.strip()):
        return None, content
    return (inner if opened else head).strip("\n"), tail.lstrip("\n")


def tool_lines(tools: str) -> list[str]:
    """One line of JSON for each tool schema; a text that is not a JSON list is one line as it is; none gives []."""
    if not tools.strip():
        return []
    try:
        parsed = json.loads(tools)
    except ValueError:
        return [tools]
    if not isinstance(parsed, list):
        return [tools] if parsed else []
    return [json.dumps(tool, ensure_ascii=not _is_utf8(tool)) for tool in parsed]


def call_arguments(arguments: str) -> dict[str, Any] | str:
    """The arguments of a call as a dict in source order, or the text itself when it is not a plain JSON object.

    A key given twice counts as malformed (a dict would silently keep only one of the two), and so does an escaped lone
    surrogate (`"\\ud800"` alone is no text that UTF-8 can hold).
    """
    try:
        parsed = json.loads(arguments, object_pairs_hook=_unique_keys)
    except (ValueError, RecursionError):
        return arguments
    return parsed if isinstance(parsed, dict) and _is_utf8(parsed) else arguments


def _is_utf8(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a key appears twice")
    return values


def _spelled_call(call: ToolCall, form: str) -> str:
    """What stands between the tags of a call. Arguments that are no plain JSON object are written as they are."""
    if form == "json":
        parsed = call_arguments(call.arguments)
        arguments = parsed if isinstance(parsed, str) else json.dumps(parsed, ensure_ascii=False)
        return f'\n{{"name": {json.dumps(call.name, ensure_ascii=False)}, "arguments": {arguments}}}\n'
    return f"\n<function={call.name}>\n{_parameters(call.arguments)}</function>\n"


def _parameters(arguments: str) -> str:
    parsed = call_arguments(arguments)
    if isinstance(parsed, str):
        return f"{parsed}\n"
    lines = []
    for name, value in parsed.items():
        shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        lines.append(f"<parameter={name}>\n{shown}\n</parameter>\n")
    return "".join(lines)


def call_text(call: ToolCall, form: str = "xml") -> str:
    """One call with its tags as plain text, which `parse_reply` reads. In JSON, tags inside strings are escaped."""
    spelled = _spelled_call(call, form)
    if form == "json" and not isinstance(call_arguments(call.arguments), str):
        for tag in (CALL, END_CALL, TURN_END):
            spelled = spelled.replace(tag, "\\u003c" + tag[1:])
    return f"{CALL}{spelled}{END_CALL}"


# A parameter ends where the next one or the end of the function follows, so a value may itself hold `</parameter>`.
_PARAMETER = re.compile(r"<parameter=([^>\n]*)>\n(.*?)\n</parameter>\n(?=<parameter=|\Z)", re.DOTALL)
_FUNCTION = re.compile(r"\s*<function=([^>\n]*)>\n(.*)</function>\s*\Z", re.DOTALL)
_JSON_CALL = re.compile(r'\s*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"arguments"\s*:\s?(.*)\}\s*\Z', re.DOTALL)


def parse_reply(text: str, tools: str = "[]", *, first_call: int = 0) -> ParsedReply:
    """Take an assistant's reply (what follows the generation prompt, up to `<|im_end|>`) apart.

    Parameter values are strings unless the schema in `tools` gives the parameter another type and the value is JSON.
    Call ids are `call_<first_call>`, `call_<first_call + 1>`, …. Nothing is raised: what is malformed is named in
    `problem`, its text stays in the content (a block that is no call) or in the arguments (text instead of parameters).
    """
    text = text.split(TURN_END, 1)[0]
    reply = ParsedReply()
    if text.startswith(THINK):
        inner, closed, rest = text[len(THINK) :].partition(END_THINK)
        reply.reasoning = inner.removeprefix("\n").removesuffix("\n") if closed else inner.removeprefix("\n")
        if not closed:
            reply.problem = "the think block has no end"
            return reply
        text = rest.removeprefix("\n\n")
    types = _parameter_types(tools)
    before, *blocks = text.split(CALL)
    content = before.removesuffix("\n") if blocks else before
    for block in blocks:
        inner, closed, after = block.partition(END_CALL)
        found = _parse_call(inner, types)
        if not closed or found is None:
            said = "a tool call holds neither a <function=…> block nor a JSON object with name and arguments"
            reply.problem = said if closed else "a tool call has no end"
            content += CALL + block
            continue
        name, arguments = found
        reply.tool_calls.append(ToolCall(f"call_{first_call + len(reply.tool_calls)}", name, arguments))
        content += after.strip("\n")
    reply.content = content
    return reply


def _parse_call(inner: str, types: dict[str, dict[str, Any]]) -> tuple[str, str] | None:
    """(name, arguments) of what stands between the tags of a call, in either form; None when it is neither."""
    match = _FUNCTION.match(inner)
    if match is not None:
        return match[1], _parse_parameters(match[2], types.get(match[1], {}))
    try:
        whole = json.loads(inner, object_pairs_hook=_unique_keys)
    except (ValueError, RecursionError):
        whole = None
    if isinstance(whole, dict) and isinstance(whole.get("name"), str):
        arguments = whole.get("arguments")
        if isinstance(arguments, dict) and _is_utf8(arguments):
            return whole["name"], json.dumps(arguments, ensure_ascii=False)
    match = _JSON_CALL.match(inner)  # arguments that are no plain object come back as they stand
    if match is None:
        return None
    try:
        return str(json.loads(match[1])), match[2]
    except ValueError:
        return None


def _parse_parameters(body: str, types: dict[str, Any]) -> str:
    """JSON text of the parameters of one function block; a body of another shape comes back as it is."""
    values: dict[str, Any] = {}
    end = 0
    for match in _PARAMETER.finditer(body):
        if match.start() != end or match[1] in values:
            return body.removesuffix("\n")
        values[match[1]] = _typed(match[2], types.get(match[1], "string"))
        end = match.end()
    if end != len(body):
        return body.removesuffix("\n")
    return json.dumps(values, ensure_ascii=False)


def _typed(value: str, kind: Any) -> Any:
    if kind in ("string", "str"):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _parameter_types(tools: str) -> dict[str, dict[str, Any]]:
    """Function name → parameter → JSON schema type, from schemas with or without the OpenAI `function` wrapper."""
    try:
        listed = json.loads(tools)
    except ValueError:
        return {}
    types: dict[str, dict[str, Any]] = {}
    for tool in listed if isinstance(listed, list) else []:
        function = tool.get("function", tool) if isinstance(tool, dict) else {}
        if not isinstance(function, dict):
            continue
        schema = function.get("parameters") or function.get("input_schema") or {}
        # some lists give the parameters straight away, without the object schema around them
        properties = schema.get("properties", schema) if isinstance(schema, dict) else {}
        if isinstance(properties, dict):
            types[str(function.get("name"))] = {
                key: value.get("type", "string") for key, value in properties.items() if isinstance(value, dict)
            }
    return types
