"""No body and no text of a reply, whatever it is, ends in an exception or in a turn that no file can hold."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.synthesis.endpoint.reply import Reply, read_body, to_message
from schemas.trajectory import TRAJECTORY_SCHEMA, Message, Trajectory

TOOLS = json.dumps([{"type": "function", "function": {"name": "calculator", "parameters": {"type": "object"}}}])
KEYS = (
    "choices", "message", "content", "tool_calls", "function", "name", "arguments", "usage", "type", "text",
    "prompt_tokens", "completion_tokens", "finish_reason", "reasoning", "refusal", "function_call",
)  # fmt: skip
PIECES = (
    "Thought:", "Action:", "Action Input:", "Final Answer:", "Observation:", "<tool_call>", "</tool_call>", "{", "}",
    '"name"', "<function=a>", "</function>", "<parameter=b>", "</parameter>", "<think>", "</think>", "x", "```json",
    "<|im_end|>", "\n", " ",
)  # fmt: skip
STYLES = st.sampled_from(["native", "xml", "hermes", "react"])
scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.just("<tool_call>{"))
json_values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(KEYS), inner, max_size=5)),
    max_leaves=12,
)


@given(json_values, json_values, STYLES)
@settings(max_examples=200, deadline=None)
def test_no_body_whatever_ends_in_an_exception(message: Any, finish: Any, style: str) -> None:
    choice = {"message": message, "finish_reason": finish}
    calls = {"message": {"content": "x", "tool_calls": message}, "finish_reason": finish}
    for value in (message, {"choices": [choice]}, {"choices": [calls], "usage": message}):
        reply = read_body(json.dumps(value).encode(), 10)
        turn, _ = to_message(reply, TOOLS, style, 0)
        made = Trajectory("i", "s", "f", [Message("user", "u"), turn])
        assert pa.Table.from_pylist([made.to_row()], TRAJECTORY_SCHEMA).num_rows == 1
        assert turn.stop is not None
        again = Reply.from_record(json.loads(json.dumps(reply.to_record())), {"prompt": 0, "completion": 0})
        assert to_message(again, TOOLS, style, 0)[0] == turn


@given(st.lists(st.sampled_from(PIECES), max_size=25).map("".join), STYLES)
@settings(max_examples=200, deadline=None)
def test_no_text_whatever_ends_in_an_exception(text: str, style: str) -> None:
    turn, problem = to_message(Reply(content=text), TOOLS, style, 2)
    assert [call.id for call in turn.tool_calls] == [f"call_{2 + n}" for n in range(len(turn.tool_calls))]
    assert turn.tool_calls or turn.content or problem or turn.reasoning is not None or not text.strip()
