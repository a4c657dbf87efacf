"""canonical → target → canonical keeps messages, calls and masks wherever the target can hold them."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.synthesis.convert.run import _write_parquet
from pipelines.synthesis.convert.targets import open_writer
from pipelines.synthesis.convert.writer import LeftOut, Losses
from pipelines.synthesis.ingest import SetAside, read_file
from schemas.trajectory import Message, ToolCall, Trajectory

# targets whose argument texts come back letter by letter; the others give the same JSON
EXACT_ARGUMENTS = {"openai", "axolotl", "tinker", "verl"}
TARGETS = ["openai", "axolotl", "llamafactory", "swift", "slime", "tinker", "verl", "atif"]

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=30).filter(
    lambda text: "think>" not in text and "tool_" not in text and "<function" not in text
)
CONTENT = TEXT.map(str.strip)
VALUE = st.none() | st.integers(-99, 99) | TEXT | st.lists(st.integers(), max_size=2)
ARGUMENTS = st.dictionaries(st.text(max_size=5), VALUE, max_size=3).map(
    lambda value: json.dumps(value, ensure_ascii=False)
)


@st.composite
def trajectories(draw):
    messages = [Message("user", draw(CONTENT) or "q")]
    if draw(st.booleans()):
        messages.insert(0, Message("system", draw(CONTENT) or "s"))
    number = 0
    for _ in range(draw(st.integers(1, 4))):
        calls = []
        for _ in range(draw(st.integers(0, 3))):
            number += 1
            calls.append(ToolCall(f"c{number}", draw(st.sampled_from(["run", "read"])), draw(ARGUMENTS)))
        reasoning = draw(st.none() | CONTENT.filter(bool))
        messages.append(Message("assistant", draw(CONTENT), reasoning, calls, train=draw(st.booleans())))
        messages.extend(Message("tool", draw(CONTENT), tool_call_id=call.id, name=call.name) for call in calls)
        if not calls:  # turns of one speaker in a row are one turn in some targets
            messages.append(Message("user", draw(CONTENT) or "go on"))
    return Trajectory("t", "unit", "recorded", messages)


def send(target, trajectory, folder):
    writer = open_writer(target)
    (rows,) = writer.rows([trajectory], Losses())
    assert not isinstance(rows, LeftOut)
    path = folder / f"out.{writer.kind}"
    if writer.kind == "parquet":
        _write_parquet(path, iter(rows), writer)
    else:
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    (found,) = read_file(str(path))
    assert not isinstance(found, SetAside), found
    return found


def said(trajectory, target):
    def arguments(text):
        return text if target in EXACT_ARGUMENTS else json.loads(text)

    return [
        (m.role, m.content, m.reasoning, [(c.name, arguments(c.arguments)) for c in m.tool_calls], m.train)
        for m in trajectory.messages
    ]


def links(trajectory):
    """For every result, the position of its call: ids may be new, pairs may not."""
    places = {call.id: (i, j) for i, m in enumerate(trajectory.messages) for j, call in enumerate(m.tool_calls)}
    return [places[m.tool_call_id] for m in trajectory.messages if m.role == "tool"]


@pytest.mark.parametrize("target", TARGETS)
def test_messages_calls_and_masks_come_back(target, tmp_path_factory):
    folder = tmp_path_factory.mktemp(target)

    @settings(max_examples=40, deadline=None)
    @given(trajectories())
    def check(trajectory):
        found = send(target, trajectory, folder)
        assert said(found, target) == said(trajectory, target)
        assert links(found) == links(trajectory)

    check()


def test_sharegpt_brings_back_what_does_not_mix_text_and_calls(tmp_path):
    calls = [ToolCall("c1", "run", '{"a": 1}'), ToolCall("c2", "run", "{}")]
    trajectory = Trajectory(
        "t", "unit", "recorded",
        [
            Message("system", "s"), Message("user", "q"),
            Message("assistant", "", None, calls, train=False),
            Message("tool", "1", tool_call_id="c1", name="run"), Message("tool", "2", tool_call_id="c2", name="run"),
            Message("assistant", "done", "because", train=True),
        ],
    )  # fmt: skip
    found = send("sharegpt", trajectory, tmp_path)
    assert said(found, "sharegpt") == said(trajectory, "sharegpt")
    assert links(found) == links(trajectory)


@pytest.mark.parametrize("target", ["openai", "llamafactory", "swift", "slime", "verl", "sharegpt"])
def test_arguments_that_are_not_json_come_back_as_they_were(target, tmp_path):
    broken = [ToolCall("c1", "run", '{"x": 1,')]
    messages = [
        Message("user", "q"),
        Message("assistant", "", None, broken, train=False),
        Message("assistant", "a", train=True),
    ]
    if target == "swift":
        messages.insert(2, Message("tool", "bad", tool_call_id="c1", name="run"))
    found = send(target, Trajectory("t", "unit", "recorded", messages), tmp_path)
    assert [c.arguments for m in found.messages for c in m.tool_calls] == ['{"x": 1,']


def test_atif_brings_back_signals_authors_and_stops(tmp_path):
    messages = [
        Message("user", "q"),
        Message("assistant", "", None, [ToolCall("c1", "run", "{}")], train=False, stop="tool_use", author="demo"),
        Message("tool", "no", tool_call_id="c1", name="run", error=True, signal="exit_code=2"),
        Message("assistant", "plain", train=True, weight=0.5),
        Message("user", "seen", name="observation"),
    ]
    found = send("atif", Trajectory("t", "unit", "recorded", messages), tmp_path)
    assert [(m.author, m.stop, m.train, m.weight) for m in found.messages if m.role == "assistant"] == [
        ("demo", "tool_use", False, None),
        (None, None, True, 0.5),
    ]
    assert [(m.error, m.signal) for m in found.messages if m.role == "tool"] == [(True, "exit_code=2")]
    assert found.messages[4].name == "observation"
