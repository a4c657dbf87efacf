"""Each target: its own mask field, how calls and reasoning are spelled there, and what it says that it lost."""

import json

import orjson
import pyarrow.parquet as pq
import pytest

from pipelines.synthesis.convert import TARGETS, convert_file
from pipelines.synthesis.convert.targets import open_writer
from pipelines.synthesis.convert.writer import LeftOut, Losses
from pipelines.synthesis.ingest.store import write_trajectories
from schemas.errors import InputError, UsageError
from schemas.trajectory import Message, Outcome, ToolCall, Trajectory

TOOLS = '[{"type": "function", "function": {"name": "run", "parameters": {"type": "object", "properties": {}}}}]'


def run(*messages, identity="t1", tools=TOOLS, **more):
    return Trajectory(identity, "unit", "recorded", list(messages), tools=tools, **more)


def sample():
    return run(
        Message("system", "S"),
        Message("user", "go"),
        Message("assistant", "I run.", "why", [ToolCall("c1", "run", '{"b":1, "a": "ü"}')], train=False,
                mask_reasons=["R2:exit_code"]),
        Message("tool", "boom", tool_call_id="c1", name="run", error=True, signal="exit_code=1"),
        Message("assistant", "", None, [ToolCall("c2", "run", "{}"), ToolCall("c3", "run", "{}")], train=True),
        Message("tool", "1", tool_call_id="c2", name="run"),
        Message("tool", "2", tool_call_id="c3", name="run"),
        Message("assistant", "Done.", train=True),
        outcome=Outcome(True, 1.0, "tests"),
    )  # fmt: skip


def one(target, trajectory):
    losses = Losses()
    (rows,) = list(open_writer(target).rows([trajectory], losses))
    assert not isinstance(rows, LeftOut)
    (row,) = rows
    return row, losses.counts


def flags(row, field):
    return [message.get(field) for message in row["messages"]]


def test_openai_weight_and_think_block():
    row, losses = one("openai", sample())
    assert flags(row, "weight") == [None, None, 0, None, 1, None, None, 1]
    assert row["messages"][2]["content"] == "<think>\nwhy\n</think>\n\nI run."
    assert row["messages"][2]["tool_calls"][0]["function"] == {"name": "run", "arguments": '{"b":1, "a": "ü"}'}
    assert row["messages"][3] == {"role": "tool", "content": "boom", "tool_call_id": "c1"}
    assert row["tools"] == json.loads(TOOLS)
    assert list(losses) == ["labels, signals and mask reasons stay behind (the mask itself is written)"]


def test_axolotl_train_reasoning_and_text_parameters():
    row, _ = one("axolotl", sample())
    assert flags(row, "train") == [None, None, False, None, True, None, None, True]
    assert row["messages"][2]["reasoning_content"] == "why"
    assert row["messages"][2]["content"] == "I run."
    assert row["tools"][0]["function"]["parameters"] == '{"type": "object", "properties": {}}'


def test_axolotl_never_meets_arguments_that_end_its_run():
    masked = run(Message("user", "q"), Message("assistant", "", None, [ToolCall("c", "run", '{"x')], train=False),
                 Message("assistant", "a", train=True))  # fmt: skip
    row, losses = one("axolotl", masked)
    assert json.loads(row["messages"][1]["tool_calls"][0]["function"]["arguments"]) == {"not_json": '{"x'}
    assert losses['masked calls whose arguments are not JSON, wrapped as {"not_json": text}'] == 1
    masked.messages[1].train = True
    (left,) = open_writer("axolotl").rows([masked], Losses())
    assert isinstance(left, LeftOut)


def test_slime_step_loss_mask_and_argument_objects():
    row, losses = one("slime", sample())
    assert flags(row, "step_loss_mask") == [None, None, 0, None, 1, None, None, 1]
    assert row["messages"][2]["tool_calls"][0]["function"]["arguments"] == {"b": 1, "a": "ü"}
    assert losses["argument texts spelled anew (same JSON, other white space)"] == 1


def test_tinker_flags_every_message_and_keeps_broken_calls_apart():
    trajectory = sample()
    trajectory.messages[4].tool_calls[1].arguments = "{oops"
    row, losses = one("tinker", trajectory)
    assert flags(row, "trainable") == [False, False, False, False, True, False, False, True]
    assert row["messages"][2]["content"] == [
        {"type": "thinking", "thinking": "why"},
        {"type": "text", "text": "I run."},
    ]
    assert [call["id"] for call in row["messages"][4]["tool_calls"]] == ["c2"]
    assert row["messages"][4]["unparsed_tool_calls"][0]["raw_text"] == '{"name": "run", "arguments": {oops}'
    assert losses["calls whose arguments are not JSON, written as unparsed_tool_calls"] == 1


def test_swift_turns_of_one_message_share_its_flag():
    row, losses = one("swift", sample())
    assert [(m["role"], m.get("loss")) for m in row["messages"]] == [
        ("system", None), ("user", None), ("assistant", False), ("tool_call", False), ("tool_response", None),
        ("tool_call", True), ("tool_call", True), ("tool_response", None), ("tool_response", None), ("assistant", True),
    ]  # fmt: skip
    assert json.loads(row["messages"][3]["content"]) == {"name": "run", "arguments": {"b": 1, "a": "ü"}}
    assert row["tools"] == TOOLS
    assert losses["call ids (results are paired by position)"] == 3


def test_swift_states_that_consecutive_assistant_turns_merge():
    _, losses = one("swift", run(Message("user", "q"), Message("assistant", "a"), Message("assistant", "b")))
    assert losses["assistant turns in a row, which ms-swift merges under the flag of the first"] == 1


def test_llamafactory_typed_parts_and_weights():
    trajectory = sample()
    trajectory.messages[7].weight = 0.25
    row, _ = one("llamafactory", trajectory)
    assert flags(row, "loss_weight") == [0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.25]
    assert [part["type"] for part in row["messages"][2]["content"]] == ["reasoning", "text", "tool_call"]
    assert [part["type"] for part in row["messages"][4]["content"]] == ["tool_call", "tool_call"]
    assert row["tools"] == TOOLS


def test_sharegpt_states_that_its_mask_is_read_by_one_fork_only():
    row, losses = one("sharegpt", sample())
    assert row["system"] == "S"
    assert [(t["from"], t.get("turn_mask")) for t in row["conversations"]] == [
        ("human", None), ("gpt", True), ("function_call", True), ("observation", None), ("function_call", False),
        ("observation", None), ("observation", None), ("gpt", False),
    ]  # fmt: skip
    assert isinstance(json.loads(row["conversations"][4]["value"]), list)
    assert any(text.startswith("masked turns: only SWE-Lego's fork") for text in losses)
    assert any(text.startswith("turns with text and calls, cut in two") for text in losses)


def test_atif_places_results_and_keeps_the_mask_in_extra():
    row, losses = one("atif", sample())
    assert [step["step_id"] for step in row["steps"]] == [1, 2, 3, 4, 5]
    assert [step["source"] for step in row["steps"]] == ["system", "user", "agent", "agent", "agent"]
    step = row["steps"][2]
    assert step["extra"] == {"train": False, "mask_reasons": ["R2:exit_code"]}
    assert step["tool_calls"][0]["arguments"] == {"b": 1, "a": "ü"}
    assert step["observation"]["results"] == [
        {"source_call_id": "c1", "content": "boom", "extra": {"is_error": True, "signal": "exit_code=1"}}
    ]
    assert [result["source_call_id"] for result in row["steps"][3]["observation"]["results"]] == ["c2", "c3"]
    assert row["extra"] == {"reward": 1.0}
    assert losses == {}


def test_atif_writes_a_malformed_call_as_text_with_its_feedback():
    trajectory = sample()
    trajectory.messages[2].tool_calls[0].arguments = "{oops"
    row, losses = one("atif", trajectory)
    assert "tool_calls" not in row["steps"][2]
    assert "{oops" in row["steps"][2]["message"]
    assert row["steps"][2]["observation"]["results"][0]["content"] == "boom"
    assert sum(losses.values()) == 2


def test_atif_copied_and_harness_turns():
    trajectory = run(
        Message("user", "q"),
        Message("assistant", "old", author="copied", train=False),
        Message("assistant", "auto", author="harness", train=False),
        Message("assistant", "own", train=True),
    )
    row, _ = one("atif", trajectory)
    assert row["steps"][1]["is_copied_context"] is True
    assert row["steps"][2]["llm_call_count"] == 0


def test_verl_is_parquet_with_text_tools_and_no_null_filled_arguments(tmp_path):
    source = tmp_path / "T.parquet"
    other = run(Message("user", "q"), Message("assistant", "", None, [ToolCall("c", "run", '{"z": 1}')], train=True))
    write_trajectories(source, [sample(), other])
    report = convert_file(source, "verl", tmp_path / "v.parquet")
    rows = pq.read_table(tmp_path / "v.parquet").to_pylist()
    assert [m["loss_mask"] for m in rows[0]["messages"]] == [None, None, 0, None, 1, None, None, 1]
    assert rows[1]["messages"][1]["tool_calls"][0]["function"]["arguments"] == '{"z": 1}'
    assert rows[0]["tools"] == TOOLS
    assert any("pull request 5472" in text for text in report.losses)


def test_turns_without_a_decision_are_trained_only_when_the_models_own(tmp_path):
    source = tmp_path / "T.parquet"
    write_trajectories(
        source, [run(Message("user", "q"), Message("assistant", "a"), Message("assistant", "d", author="demo"))]
    )
    report = convert_file(source, "openai", tmp_path / "o.jsonl")
    assert (report.undecided, report.trained_turns, report.masked_turns) == (2, 1, 1)
    row = json.loads((tmp_path / "o.jsonl").read_text())
    assert flags(row, "weight") == [None, 1, 0]


def test_a_policy_decides_first_and_what_it_drops_is_counted(tmp_path):
    source = tmp_path / "T.parquet"
    failed = sample()
    failed.id, failed.outcome = "t2", Outcome(False, 0.0, "tests")
    write_trajectories(source, [sample(), failed])
    report = convert_file(source, "openai", tmp_path / "o.jsonl", policy="outcome-only")
    assert (report.read, report.rows) == (2, 1)
    assert sum(report.left_out.values()) == 1
    assert next(iter(report.left_out)).startswith("policy outcome-only: R1")


def test_fractional_weights_are_kept_or_stated():
    trajectory = run(Message("user", "q"), Message("assistant", "a", train=True, weight=0.5))
    assert one("llamafactory", trajectory)[0]["messages"][1]["loss_weight"] == 0.5
    assert one("swift", trajectory)[0]["messages"][1]["loss_scale"] == 0.5
    for target in ("openai", "axolotl", "slime", "tinker", "verl", "sharegpt"):
        assert one(target, trajectory)[1]["loss weights other than 0 and 1, written as trained"] == 1, target


@pytest.mark.parametrize(
    ("target", "out", "more", "message"),
    [
        ("opnai", "o.jsonl", {}, "openai"),
        ("trl", "o.parquet", {}, "--tokenizer"),
        ("openai", "o.parquet", {}, "jsonl"),
        ("verl", "o.jsonl", {}, "parquet"),
        ("openai", "o.jsonl", {"tokenizer": "x"}, "no meaning"),
        ("openai", "o.jsonl", {"policy": "nanbiege"}, "nanbeige"),
    ],
)
def test_wrong_usage_is_refused_before_anything_is_written(tmp_path, target, out, more, message):
    source = tmp_path / "T.parquet"
    write_trajectories(source, [sample()])
    with pytest.raises(UsageError, match=message):
        convert_file(source, target, tmp_path / out, **more)
    assert not (tmp_path / out).exists()


def test_an_empty_or_foreign_file_is_an_input_error_and_writes_nothing(tmp_path):
    write_trajectories(tmp_path / "empty.parquet", [])
    (tmp_path / "text.parquet").write_text("no")
    for name, message in (("empty", "file is empty"), ("text", "not a Parquet file"), ("missing", "no such file")):
        with pytest.raises(InputError, match=message):
            convert_file(tmp_path / f"{name}.parquet", "openai", tmp_path / "o.jsonl")
        assert not (tmp_path / "o.jsonl").exists()


def test_every_target_of_the_promise_is_there():
    promised = "openai axolotl trl llamafactory swift slime tinker verl sharegpt atif megatron"
    assert sorted(TARGETS) == sorted(promised.split())


@pytest.mark.parametrize("arguments", ["[" * 100_000, '{"a": ' + "[" * 50_000 + "]" * 50_000 + "}", '{"a": NaN}',
                                       '{"a": "\\ud800"}', '{"a": ' + "[" * 900 + "]" * 900 + "}"])  # fmt: skip
@pytest.mark.parametrize(
    "target", ["openai", "axolotl", "slime", "tinker", "swift", "llamafactory", "sharegpt", "atif"]
)
def test_arguments_that_no_strict_json_row_can_hold_end_no_conversion(tmp_path, target, arguments):
    source, out = tmp_path / "t.parquet", tmp_path / "out.jsonl"
    masked = Message("assistant", "", None, [ToolCall("c1", "run", arguments)], train=False)
    reply = [Message("tool", "no", tool_call_id="c1", name="run"), Message("assistant", "Done.", train=True)]
    write_trajectories(source, [run(Message("user", "go"), masked, *reply)])
    convert_file(source, target, out)
    (line,) = out.read_text("utf-8").splitlines()
    assert orjson.loads(line)  # strict JSON
    assert "Done." in line  # with the turn that is trained
