"""A trajectory survives Parquet: arguments stay the JSON text that the model wrote."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from schemas.trajectory import TRAJECTORY_SCHEMA, Message, Outcome, Task, ToolCall, Trajectory, trajectory_id


def _trajectory() -> Trajectory:
    messages = [
        Message("user", "count"),
        Message("assistant", "", "think", [ToolCall("c1", "run", '{"b": 1, "a": null}'), ToolCall("c2", "x", "{bad")]),
        Message("tool", "boom", tool_call_id="c1", name="run", error=True, signal="exit_code=1"),
        Message("assistant", "done", train=True, mask_reasons=["R2:exit_code"], label="step", weight=0.5),
    ]
    return Trajectory(
        id=trajectory_id("s", "t", messages),
        source="s",
        family="repair",
        messages=messages,
        task=Task("t", "count", 2**62, 3.5),
        outcome=Outcome(None, 0.25, "tests"),
        notes=["merged"],
        extra='{"k": 1}',
    )


def test_round_trip_through_parquet_is_exact(tmp_path: Path) -> None:
    original = _trajectory()
    path = tmp_path / "t.parquet"
    pq.write_table(pa.Table.from_pylist([original.to_row()], TRAJECTORY_SCHEMA), path)
    (row,) = pq.read_table(path).to_pylist()
    assert Trajectory.from_row(row) == original


def test_two_tools_with_different_arguments_do_not_gain_each_others_keys(tmp_path: Path) -> None:
    calls = [ToolCall("1", "a", '{"x":1}'), ToolCall("2", "b", '{"y":2}')]
    record = Trajectory("i", "s", "f", [Message("assistant", tool_calls=calls)])
    path = tmp_path / "t.parquet"
    pq.write_table(pa.Table.from_pylist([record.to_row()], TRAJECTORY_SCHEMA), path)
    back = Trajectory.from_row(pq.read_table(path).to_pylist()[0])
    assert [c.arguments for c in back.messages[0].tool_calls] == ['{"x":1}', '{"y":2}']


def test_unknown_outcome_is_not_failure() -> None:
    assert Trajectory("i", "s", "f", []).outcome.success is None


def test_id_depends_on_what_was_said_not_on_masks() -> None:
    a, b = _trajectory(), _trajectory()
    b.messages[3].train = False
    b.messages[3].mask_reasons = []
    assert trajectory_id("s", "t", a.messages) == trajectory_id("s", "t", b.messages)
    b.messages[3].content = "other"
    assert trajectory_id("s", "t", a.messages) != trajectory_id("s", "t", b.messages)


def test_lone_surrogate_in_a_message_has_an_id() -> None:
    assert len(trajectory_id("s", None, [Message("user", "\udc80")])) == 32
