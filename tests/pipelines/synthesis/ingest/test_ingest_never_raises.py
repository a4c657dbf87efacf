"""Whatever a record holds, reading gives trajectories of the right types or rows set aside; nothing is raised."""

import copy
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.synthesis.ingest import SetAside, read_file

CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
RECORDS = [
    {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a", "tool_calls": [CALL]},
                  {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "r"}]}], "tools": []},
    {"conversations": [{"from": "human", "value": "q"}, {"from": "function_call", "value": '{"name": "f"}'}]},
    {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]}]},
    {"schema_version": "ATIF-v1.6", "agent": {"name": "a"}, "steps": [
        {"step_id": 1, "source": "agent", "message": "m", "tool_calls": [
            {"tool_call_id": "c", "function_name": "f", "arguments": {}}],
         "observation": {"results": [{"content": "r"}]}}]},
    {"trajectory": [{"action": "ls", "observation": "a"}], "info": {"exit_status": "exit_cost"}, "history": [
        {"role": "assistant", "content": "a", "action": "ls", "tool_calls": [CALL]}]},
    {"instance_id": "i", "history": [{"id": 1, "source": "user", "action": "message", "args": {"content": "q"}},
                                     {"id": 2, "source": "agent", "observation": "run", "content": "x", "cause": 1}]},
    {"task_id": 1, "reward": 1.0, "info": {}, "traj": [{"role": "user", "content": "q"}]},
    {"simulations": [{"task_id": "t", "reward_info": {"reward": 1.0}, "messages": [{"role": "user", "content": "q"}]}]},
    {"query": "q", "turn_history": {"actions": ["a"], "observations": ["b"], "valid_action": [True]}, "summary": {}},
    {"win": True, "tree": {"tree": {"node_type": "Action Input", "description": "", "children": [
        {"node_type": "Action", "description": "f", "children": []}]}}, "answer_generation": {"query": "q"}},
    {"eval": {"task": "t"}, "samples": [{"id": 1, "messages": [{"role": "user", "content": "q"}], "scores": {}}]},
    {"sessionId": "s", "projectHash": "p", "messages": [
        {"type": "gemini", "content": "a", "toolCalls": [{"name": "f"}]}]},
    {"id": "d", "content": [{"class_": "api_action", "function": "f", "kwargs": {}}, {"class_": "text_observation"}]},
    {"history": [{"kind": "ActionEvent", "tool_name": "f", "action": {"x": 1}, "thought": []}]},
    {"type": "user", "uuid": "u", "parentUuid": None, "sessionId": "s", "message": {"role": "user", "content": "q"}},
    {"type": "message", "message": {"role": "assistant", "content": [{"type": "toolCall", "id": "c", "name": "f"}]}},
    {"type": "response_item", "payload": {"type": "function_call", "name": "f", "arguments": "{}", "call_id": "c"}},
]  # fmt: skip
JUNK = st.sampled_from([None, 0, 1.5, True, "x", "", [], {}, [1], {"a": 1}, ["s"], [None], [[]], {"type": "text"}]).map(
    copy.deepcopy
)


def places(value, path=()):
    """Every place in a JSON value."""
    yield path
    if isinstance(value, dict):
        for key, item in value.items():
            yield from places(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from places(item, (*path, index))


@st.composite
def damaged(draw):
    record = copy.deepcopy(draw(st.sampled_from(RECORDS)))
    for _ in range(draw(st.integers(1, 3))):
        *path, last = draw(st.sampled_from([place for place in places(record) if place]))
        holder = record
        for step in path:
            holder = holder[step]
        if isinstance(holder, dict) and draw(st.booleans()):
            del holder[last]
        else:
            holder[last] = draw(JUNK)
        if not record:
            break
    return record


def check(item):
    if isinstance(item, SetAside):
        assert item.problem
        return
    for message in item.messages:
        assert message.role in ("system", "user", "assistant", "tool")
        assert isinstance(message.content, str)
        for name in (message.name, message.stop, message.tool_call_id, message.reasoning, message.signal):
            assert name is None or isinstance(name, str)
        for call in message.tool_calls:
            assert all(isinstance(text, str) for text in (call.id, call.name, call.arguments))
    assert item.task.id is None or isinstance(item.task.id, str)
    assert isinstance(item.task.instruction, str)
    assert item.outcome.reward is None or isinstance(item.outcome.reward, float)
    json.loads(item.tools)


@pytest.mark.parametrize("form", ["line", "array", "object"])
def test_damaged_records_are_read_or_set_aside(tmp_path_factory, form):
    path = tmp_path_factory.mktemp("damaged") / "input"

    @settings(max_examples=80, deadline=None)
    @given(damaged())
    def run(record):
        text = json.dumps(record)
        path.write_text({"line": f"{text}\n{text}\n", "array": f"[{text}]", "object": text}[form])
        items = list(read_file(str(path)))
        assert items
        for item in items:
            check(item)

    run()


def test_the_undamaged_records_are_all_recognised(tmp_path):
    for record in RECORDS:
        (tmp_path / "input").write_text(json.dumps(record) + "\n" + json.dumps(record) + "\n")
        items = list(read_file(str(tmp_path / "input")))
        assert not any(isinstance(item, SetAside) and item.format is None for item in items), record
