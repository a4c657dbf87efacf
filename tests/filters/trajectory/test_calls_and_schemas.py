"""Calls as models write them, against tool definitions as people write them: nothing raises, breaches are named."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from filters.trajectory.calls import (
    call_key,
    call_targets,
    command_text,
    decode_arguments,
    edit_strings,
    is_edit,
    is_read_only,
    is_reproduction,
    is_terminal,
    is_test_run,
)
from filters.trajectory.detectors import detect, schema_breaches
from filters.trajectory.errors import tool_schemas
from filters.trajectory.judge import judgements
from filters.trajectory.shell import read_shell_line, simple_commands
from filters.trajectory.view import view_of
from schemas.trajectory import Message, ToolCall, Trajectory


@pytest.mark.parametrize(
    ("text", "value", "problem"),
    [
        ("", {}, ""),
        ('{"a": 1}', {"a": 1}, ""),
        (json.dumps('{"a": 1}'), {"a": 1}, "encoded_twice"),
        ('{"a": 1', {}, "not_json"),
        ("{'a': 1}", {}, "not_json"),
        (json.dumps("{'a': 1}"), {}, "not_json"),
        ("[1]", {}, "not_an_object"),
        (json.dumps("[1]"), {}, "not_an_object"),
        ("null", {}, "not_an_object"),
    ],
)
def test_decoding(text: str, value: dict[str, Any], problem: str) -> None:
    decoded = decode_arguments(text)
    assert (decoded.value, decoded.problem) == (value, problem)


OBJECTS = st.dictionaries(st.text(max_size=8), st.text(max_size=8)).map(json.dumps)


@given(st.text(max_size=12), st.text(max_size=60) | OBJECTS)
def test_any_call_can_be_read(name: str, arguments: str) -> None:
    call = ToolCall("1", name, arguments)
    assert call_key(call).startswith(f"{name}\0")
    assert isinstance(command_text(call), str)
    assert all(isinstance(target, str) for target in call_targets(call))
    assert len(edit_strings(call)) == 3
    assert {type(f(call)) for f in (is_edit, is_read_only, is_reproduction, is_terminal, is_test_run)} == {bool}


def breaches(make: SimpleNamespace, parameters: Any, arguments: Any) -> list[tuple[str, str]]:
    tools = json.dumps([{"name": "t", "parameters": parameters}])
    run = make.build(make.call("t", arguments), make.failed(), tools=tools)
    view = view_of(run)
    return [(f.signal, f.detail) for f in schema_breaches(view, judgements(view))]


def test_breaches_say_where_and_what(make: SimpleNamespace) -> None:
    schema = {
        "type": "object",
        "properties": {
            "n": {"type": "integer"},
            "mode": {"enum": ["a", "b"]},
            "o": {"type": "object", "required": ["k"]},
        },
        "required": ["n"],
    }
    assert breaches(make, schema, {"n": 1, "mode": "a"}) == []
    assert breaches(make, schema, {}) == [("schema", "arguments: 'n' is a required property")]
    assert breaches(make, schema, {"n": "1"}) == [("schema", "n: '1' is not of type 'integer'")]
    assert breaches(make, schema, {"n": 1, "mode": "c"}) == [("schema", "mode: 'c' is not one of ['a', 'b']")]
    assert breaches(make, schema, {"n": 1, "o": {}}) == [("schema", "o: 'k' is a required property")]
    assert breaches(make, schema, {"n": 1, "m": 2}) == [("unknown_argument", "no argument is called 'm'")]
    assert breaches(make, {**schema, "additionalProperties": True}, {"n": 1, "m": 2}) == []


@pytest.mark.parametrize(
    "parameters",
    [
        {"type": 5},
        {"type": "no such type"},
        {"properties": []},
        {"properties": {"a": 3}},
        {"properties": {"a": {"pattern": "("}}},
        {"properties": {"a": {"minLength": "x"}}},
        {"required": "a"},
        {"enum": 3},
        {"$ref": "#/nowhere"},
        {"$ref": "http://127.0.0.1:9/never-fetched.json"},
        {"allOf": {}},
        {"items": 1, "minItems": "two"},
        {"if": [], "then": 1},
        {"properties": {"a": {"$ref": "#"}}},
        {"dependentRequired": {"a": 1}},
        {"multipleOf": 0},
        [],
        None,
        "object",
    ],
)
def test_a_broken_schema_judges_nobody_and_stops_nothing(make: SimpleNamespace, parameters: Any) -> None:
    for arguments in ({"a": "x"}, {"a": {"a": {}}}, {}, {"a": 3}):
        assert {signal for signal, _ in breaches(make, parameters, arguments)} <= {"schema", "unknown_argument"}


@pytest.mark.parametrize("tools", ["", "[]", "{}", "not json", "[1, null, []]", '[{"name": 3}]', '"[]"'])
def test_unreadable_tools_define_none(tools: str) -> None:
    assert tool_schemas(tools) == {}


def test_tool_definitions_are_read_in_both_shapes() -> None:
    openai = {"type": "function", "function": {"name": "a", "parameters": {"type": "object"}}}
    anthropic = {"name": "b", "input_schema": {"type": "object"}}
    assert tool_schemas(json.dumps([openai, anthropic, {"name": "c"}])) == {
        "a": {"type": "object"},
        "b": {"type": "object"},
        "c": None,
    }


@pytest.mark.parametrize(
    ("line", "counted", "hidden"),
    [
        ("cat a | sort", {"sort"}, {"cat", "a"}),
        ("cd a && make", {"cd", "a", "make"}, set()),
        ("make || echo no", {"echo", "no"}, {"make"}),
        ("make; echo done", {"echo", "done"}, {"make"}),
        ("set -e; make; echo done", {"set", "make", "echo", "done", "-e"}, set()),
        ("(cd a; ls b) && pwd", {"ls", "b", "pwd"}, {"cd", "a"}),
        ("find x -exec cat {} \\; -print", {"find", "x", "-print"}, {"cat", "-exec"}),
        ("awk '{print $1; exit}' a | wc -l", {"wc", "-l"}, {"awk", "print", "1", "exit", "a"}),
        ('echo "a; b | c"', {"echo", "a", "b", "c"}, set()),
        ("x=1 sudo make # comment | x", {"1", "make", "sudo", "x"}, set()),
    ],
)
def test_whose_failure_counts(line: str, counted: set[str], hidden: set[str]) -> None:
    read = read_shell_line(line)
    assert (read.counted & (counted | hidden), read.hidden & (counted | hidden)) == (counted, hidden)


def test_words_of_simple_commands() -> None:
    assert simple_commands("cd a && X=1 python -m pytest -q | tail -3; (ls; pwd)") == [
        ["cd", "a"],
        ["python", "-m", "pytest", "-q"],
        ["tail", "-3"],
        ["ls"],
        ["pwd"],
    ]


@given(st.text(max_size=80))
def test_any_shell_line_can_be_read(line: str) -> None:
    read = read_shell_line(line)
    assert not read.counted & read.hidden
    assert all(words for words in simple_commands(line))


@pytest.mark.parametrize(
    ("command", "tests"),
    [
        ("pytest -q tests/test_a.py", True),
        ("cd src && poetry run pytest", True),
        ("python3 -m unittest discover", True),
        ("npm run test", True),
        ("npx jest a", True),
        ("go test ./...", True),
        ("python tests/runtests.py admin", True),
        ("make check", True),
        ("cat tests/test_a.py", False),
        ("pip install pytest", False),
        ("grep -rn pytest .", False),
        ("python main.py", False),
        ("npm install", False),
    ],
)
def test_what_runs_tests(command: str, tests: bool) -> None:
    assert is_test_run(ToolCall("1", "bash", json.dumps({"command": command}))) is tests


@pytest.mark.parametrize(
    ("name", "arguments", "ends"),
    [
        ("submit", "{}", True),
        ("finish", '{"message": "x"}', True),
        ("mark_task_complete", "{}", True),
        ("FinalAnswer", "{}", True),
        ("final_answer", "{}", True),
        ("bash", '{"command": "submit"}', True),
        ("bash", '{"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && git diff"}', True),
        ("submit_order", '{"id": 3}', False),
        ("complete_order", '{"id": 3}', False),
        ("bash", '{"command": "ls"}', False),
    ],
)
def test_what_ends_a_run(name: str, arguments: str, ends: bool) -> None:
    assert is_terminal(ToolCall("1", name, arguments)) is ends


KEYS = st.sampled_from(["type", "properties", "required", "a", "enum", "items"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


@given(JSON)
def test_detection_survives_any_json_as_tools(value: Any) -> None:
    turn = Message("assistant", tool_calls=[ToolCall("1", "t", '{"a": 1}')])
    tools = json.dumps([{"name": "t", "parameters": value}, value])
    run = Trajectory("a" * 32, "s", "f", [Message("user", "x"), turn], tools=tools)
    assert all(finding.rule for finding in detect(run).findings)
