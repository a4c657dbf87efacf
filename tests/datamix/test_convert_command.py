"""`datamix convert` as a user runs it."""

import json

from click.testing import CliRunner

from datamix.commands.convert import command
from pipelines.synthesis.ingest.store import write_trajectories
from schemas.trajectory import Message, ToolCall, Trajectory


def test_counts_and_losses_are_printed_and_in_json(tmp_path):
    source, out = tmp_path / "T.parquet", tmp_path / "o.jsonl"
    messages = [
        Message("user", "q"),
        Message("assistant", "a", train=True, weight=0.5),
        Message("user", "seen", name="observation"),
    ]
    write_trajectories(source, [Trajectory("t", "unit", "recorded", messages)])
    result = CliRunner().invoke(command, [str(source), "--to", "openai", "--out", str(out), "--json"])
    assert result.exit_code == 0, result.output
    made = json.loads(result.stdout)
    assert (made["rows"], made["trained_turns"], made["masked_turns"], made["left_out"]) == (1, 1, 0, {})
    assert sorted(made["losses"]) == [
        "loss weights other than 0 and 1, written as trained",
        "names of turns (observation, compaction)",
    ]
    printed = CliRunner().invoke(command, [str(source), "--to", "openai", "--out", str(out)]).stdout
    assert "loss: names of turns" in printed
    assert [row["role"] for row in json.loads(out.read_text())["messages"]] == ["user", "assistant", "user"]


def test_exit_codes(tmp_path):
    source = tmp_path / "T.parquet"
    write_trajectories(source, [])
    empty = CliRunner().invoke(command, [str(source), "--to", "openai", "--out", str(tmp_path / "o.jsonl")])
    assert empty.exception.exit_code == 1
    wrong = CliRunner().invoke(command, [str(source), "--to", "trl", "--out", str(tmp_path / "o.parquet")])
    assert wrong.exception.exit_code == 2
    assert CliRunner().invoke(command, [str(source)]).exit_code == 2


def test_a_policy_with_changed_rules_decides_redacts_and_cuts_with_counts(tmp_path):
    source, out = tmp_path / "T.parquet", tmp_path / "o.jsonl"
    messages = [
        Message("user", "q"),
        Message("assistant", tool_calls=[ToolCall("c1", "run", '{"command": "cat log"}')]),
        Message(
            "tool", "by ann.other@somewhere.de\n" + "x" * 30_000, tool_call_id="c1", error=True, signal="exit_code=2"
        ),
        Message("assistant", "It is long."),
    ]
    write_trajectories(source, [Trajectory("t", "unit", "recorded", messages)])
    options = [str(source), "--to", "openai", "--out", str(out), "--rule", "R14.characters=20000"]
    result = CliRunner().invoke(command, [*options, "--rule", "R2=flag", "--policy", "nanbeige", "--json"])
    assert result.exit_code == 0, result.output
    made = json.loads(result.stdout)
    assert made["rules"] == {"R14": {"characters": "20000"}, "R2": {"action": "flag"}}
    assert (made["trained_turns"], made["masked_turns"], made["redacted"]) == (2, 0, {"EMAIL": 1})
    text = json.loads(out.read_text())["messages"][2]["content"]
    assert text.startswith("by <EMAIL_1>\n")
    assert f"[... {made['cut_characters']} of {len('by <EMAIL_1>') + 30_001} characters cut here" in text
    alone = CliRunner().invoke(command, options)
    assert (alone.exception.exit_code, "give --policy" in str(alone.exception)) == (2, True)
