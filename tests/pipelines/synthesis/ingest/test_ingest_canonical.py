"""Our own trajectory files are read back as they are."""

import json

from pipelines.synthesis.ingest import read_file
from pipelines.synthesis.ingest.store import read_trajectories, write_trajectories
from schemas.trajectory import Message, Outcome, Task, ToolCall, Trajectory


def sample():
    messages = [
        Message("user", "q"),
        Message("assistant", "", "why", [ToolCall("c", "run", '{"b":1}')], train=False, mask_reasons=["R2:exit_code"]),
        Message("tool", "no", tool_call_id="c", name="run", error=True, signal="exit_code=1"),
        Message("assistant", "a", train=True, weight=0.5, label="recovery", author=None, stop="end_turn"),
    ]
    return Trajectory(
        "t1",
        "tau-bench",
        "repair",
        messages,
        task=Task("x", "do", 7, 3.0),
        outcome=Outcome(True, 1.0, "tests"),
        tools='[{"name": "run"}]',
        origin="there:1",
        notes=["n"],
        flags=["f"],
        extra='{"k": 1}',
    )


def test_parquet_and_lines_come_back_equal(tmp_path):
    write_trajectories(tmp_path / "T.parquet", [sample()])
    (tmp_path / "T.jsonl").write_text(json.dumps(sample().to_row()) + "\n")
    for name in ("T.parquet", "T.jsonl"):
        assert list(read_file(str(tmp_path / name))) == [sample()]
    assert list(read_trajectories(tmp_path / "T.parquet")) == [sample()]


def test_a_row_that_is_not_whole_is_set_aside(tmp_path):
    rows = [sample().to_row() for _ in range(3)]
    rows[0]["id"] = None
    rows[1]["messages"] = []
    rows[2]["messages"][0]["role"] = "narrator"
    (tmp_path / "T.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert [item.field for item in read_file(str(tmp_path / "T.jsonl"))] == ["id", "messages", "messages[0].role"]
