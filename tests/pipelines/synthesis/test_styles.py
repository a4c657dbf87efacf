"""Call styles: every call comes back from its text, masks and signals stay, shares are kept."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filters.trajectory.policies import apply_policy
from filters.trajectory.view import is_observation
from pipelines.synthesis.environments.base import Environment, open_environment
from pipelines.synthesis.rollout import rollout
from pipelines.synthesis.sandbox import Limits, Sandbox
from pipelines.synthesis.styles import (
    CALL_STYLES,
    mark_style,
    parse_turn,
    pick_style,
    restyled,
    style_of,
    styled,
    turn_text,
    unstyled,
)
from pipelines.synthesis.teachers.scripted import open_teacher
from schemas.errors import UsageError
from schemas.trajectory import Message, ToolCall, Trajectory

TEXT = [style for style in CALL_STYLES if style != "native"]
TOOLS = json.dumps(
    [
        {
            "type": "function",
            "function": {
                "name": "edit",
                "parameters": {
                    "type": "object",
                    "properties": {"n": {"type": "integer"}, "deep": {"type": "object"}, "old": {"type": "string"}},
                },
            },
        }
    ]
)
NASTY = [
    "</tool_call>", "<tool_call>", "</function>", "</parameter>\n<parameter=x>\n", "<|im_end|>", "\nAction: ls",
    "Action Input: {}", "\nObservation: ok", "Final Answer: 7", "</think>", "Thought: ", "\u2028", "\\", '"', "'", "{",
    "\x00", "\r\n", "```json\n{}\n```", "é漢😀", " ", "\n",
]  # fmt: skip
words = st.lists(st.one_of(st.sampled_from(NASTY), st.text(max_size=6)), max_size=5).map("".join)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), words),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(words, inner, max_size=3)),
    max_leaves=6,
)
objects = st.dictionaries(words, values, max_size=4)
Calls = list[tuple[str, dict[str, Any]]]
names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.-]{0,12}", fullmatch=True)


@given(st.lists(st.tuples(names, objects), min_size=1, max_size=3), words, st.booleans())
@settings(max_examples=100, deadline=None)
def test_hermes_gives_every_call_back_whatever_its_strings(calls: Calls, thought: str, ascii: bool) -> None:
    made = [ToolCall(f"call_{n}", name, json.dumps(args, ensure_ascii=ascii)) for n, (name, args) in enumerate(calls)]
    _, text = turn_text(Message("assistant", "", thought, made), "hermes")
    found = parse_turn(text, TOOLS, "hermes")
    assert [(call.name, json.loads(call.arguments)) for call in found.tool_calls] == calls
    assert (found.problem, found.content) == (None, "")


@given(st.lists(st.tuples(names, objects), min_size=1, max_size=3), st.sampled_from([None, 1, 2]))
@settings(max_examples=100, deadline=None)
def test_react_gives_every_call_back_letter_by_letter(calls: Calls, indent: int | None) -> None:
    made = [ToolCall(f"call_{n}", name, json.dumps(args, indent=indent)) for n, (name, args) in enumerate(calls)]
    _, text = turn_text(Message("assistant", "", "I look.", made), "react")
    found = parse_turn(text, TOOLS, "react")
    assert found.tool_calls == made
    assert (found.problem, found.reasoning) == (None, "I look.")


@given(
    st.sampled_from(TEXT),
    st.lists(st.tuples(names, st.one_of(objects.map(json.dumps), words)), max_size=3),
    words,
    words,
)
@settings(max_examples=200, deadline=None)
def test_what_a_style_cannot_say_stays_native_and_all_else_comes_back(
    style: str, calls: list[tuple[str, str]], reasoning: str, content: str
) -> None:
    made = [ToolCall(f"call_{n}", name, text) for n, (name, text) in enumerate(calls)]
    results = [Message("tool", "ok", tool_call_id=call.id, name=call.name, error=False) for call in made]
    turn = Message("assistant", content, reasoning, made)
    given_ = Trajectory(
        "i", "s", "f", [Message("system", "Be good."), Message("user", "u"), turn, *results], tools=TOOLS
    )
    written = styled(given_, style)
    if written is given_:
        return
    assert written.tools == "[]"
    assert not any(message.tool_calls for message in written.messages)
    back = unstyled(written)
    assert back.tools == TOOLS
    found = back.messages[2]
    assert [call.name for call in found.tool_calls] == [call.name for call in made]
    for one, other in zip(found.tool_calls, made, strict=True):
        assert one.id == other.id
        assert _value(one.arguments) == _value(other.arguments)
    assert [part for part in (found.reasoning, found.content) if part] == [p for p in (reasoning, content) if p]
    assert back.messages[3:] == results


def _value(text: str) -> object:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, dict) else text


def test_plain_arguments_never_stay_native() -> None:
    args = json.dumps({"path": "a b/c.py", "old": "x = '<b>'\n\ty = \"1\"", "n": 3, "deep": {"k": [1, None]}})
    made = [ToolCall("call_0", "edit", args), ToolCall("call_1", "ls", "{}"), ToolCall("call_2", "edit", '{"n": 3,}')]
    messages = [Message("user", "u"), Message("assistant", "Now.", "hm", made), Message("assistant", "Done.", "so")]
    trajectory = Trajectory("i", "s", "f", messages, tools=TOOLS)
    for style in TEXT:
        written = styled(trajectory, style)
        assert written is not trajectory
        assert [m.role for m in written.messages] == ["system", "user", "assistant", "assistant"]
        back = unstyled(written)
        assert [m.role for m in back.messages] == ["user", "assistant", "assistant"]
        assert [(c.name, c.arguments) for c in back.messages[1].tool_calls] == [(c.name, c.arguments) for c in made]
        assert back.messages[2].content == "Done."
        assert styled(written, style) is written


def test_the_mark_says_what_a_record_is_written_in() -> None:
    said = Message("assistant", "", None, [ToolCall("call_0", "ls", '{"a": "</tool_call>"}')])
    given_ = Trajectory("i", "s", "f", [Message("user", "u"), said], tools=TOOLS)
    assert style_of(restyled(mark_style(given_, "hermes"))) == "hermes"
    lost = restyled(mark_style(given_, "xml"))
    assert (style_of(lost), lost.tools, lost.messages) == ("native", TOOLS, given_.messages)
    bare = replace(given_, tools="[]")
    assert mark_style(bare, "react") == bare


@pytest.fixture(scope="module")
def environment() -> Iterator[Environment]:
    with Sandbox(Limits(cpu_seconds=1)) as sandbox, open_environment("reasoning", sandbox=sandbox) as opened:
        yield opened


def test_scripted_runs_keep_their_masks_and_signals_in_every_style(environment: Environment) -> None:
    masked = 0
    for seed in range(40):
        task = environment.generate(seed, 5.0)
        given_ = rollout(environment, task, open_teacher("reasoning", environment, task, 0.4, 1))
        if given_.tools == "[]":
            continue
        kept = apply_policy(given_).trajectories[0]
        for style in TEXT:
            written = restyled(mark_style(kept, style))
            assert style_of(written) == style
            assert written.id == kept.id
            assert written.tools == "[]"
            pairs = list(zip(kept.messages, written.messages, strict=True))
            assert all(
                (a.train, a.mask_reasons, a.label, a.error, a.signal)
                == (b.train, b.mask_reasons, b.label, b.error, b.signal)
                for a, b in pairs
            )
            assert all(is_observation(b) for a, b in pairs if a.role == "tool")
            masked += sum(b.train is False for _, b in pairs if b.role == "assistant")
            again = apply_policy(replace(written, messages=[replace(m, mask_reasons=[]) for m in written.messages]))
            seen = {finding.message for finding in again.findings if finding.rule in ("R2", "R3", "R4")}
            failed = {i for i, m in enumerate(written.messages[:-1]) if is_observation(written.messages[i + 1])
                      and written.messages[i + 1].error and m.role == "assistant"}  # fmt: skip
            assert failed <= seen
            back = unstyled(written)
            assert back.messages == mark_style(kept, style).messages
            assert back.tools == kept.tools
    assert masked > 20


def test_a_task_keeps_its_style_and_shares_come_out() -> None:
    shares = {"native": 0.4, "xml": 0.3, "hermes": 0.2, "react": 0.1}
    picked = [pick_style(f"repair-{n}-3", shares, 7) for n in range(4000)]
    assert picked == [pick_style(f"repair-{n}-3", shares, 7) for n in range(4000)]
    found = Counter(picked)
    assert all(abs(found[style] / 4000 - share) < 0.03 for style, share in shares.items())
    assert picked != [pick_style(f"repair-{n}-3", shares, 8) for n in range(4000)]
    assert pick_style("t", {}) == "native"
    assert {pick_style(f"{n}", {"react": 2.0, "xml": 0.0}) for n in range(50)} == {"react"}


@pytest.mark.parametrize(
    ("shares", "said"),
    [({"xlm": 1.0}, "'xlm' is unknown. Styles: native, xml, hermes, react"), ({"xml": 0.0}, "one must be positive"),
     ({"xml": 2.0, "react": -1.0}, "must not be negative")],
)  # fmt: skip
def test_shares_that_cannot_be_are_refused(shares: dict[str, float], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        pick_style("t", shares)


@pytest.mark.parametrize(
    ("text", "calls", "content", "problem"),
    [
        ("Thought: x\nAction: ls\nAction Input: {}\nObservation: made up\nThought: y", [("ls", "{}")], "", None),
        ("Action: ls\nAction Input:\n```json\n{\"a\": 1}\n```", [("ls", '{"a": 1}')], "", None),
        ("Action: ls\nAction Input: {}\n\nAction: b\nAction Input: {}", [("ls", "{}"), ("b", "{}")], "", None),
        ("Action: ls\nAction Input: {\"a\": ", [("ls", '{"a": ')], "", None),
        ("Action: ls\nAction Input: {'a': 1}\nObservation: no", [("ls", "{'a': 1}")], "", None),
        ("<think>\nhm\n</think>\nFinal Answer: 7\n", [], "7\n", None),
        ("I say 7.", [], "I say 7.", "neither an action nor a final answer"),
        ("Thought: only this", [], "only this", "neither an action nor a final answer"),
        ("<think>\nhm", [], "", "the think block has no end"),
        ("", [], "", None),
    ],
)  # fmt: skip
def test_react_replies_of_models(text: str, calls: list[tuple[str, str]], content: str, problem: str | None) -> None:
    found = parse_turn(text, TOOLS, "react", first_call=3)
    assert [(call.name, call.arguments) for call in found.tool_calls] == calls
    assert (found.content, found.problem) == (content, problem)
    assert [call.id for call in found.tool_calls] == [f"call_{3 + n}" for n in range(len(calls))]
