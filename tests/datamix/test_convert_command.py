"""`datamix convert` as a user runs it."""

import json

from click.testing import CliRunner

from datamix.commands.convert import command
from pipelines.synthesis.ingest.store import write_trajectories
from schemas.trajectory import Message, Trajectory


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
