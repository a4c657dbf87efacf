"""`datamix masks`: where two policies differ."""

import json

import pytest
from click.testing import CliRunner

from datamix.commands.masks import command
from datamix.views.masks import compare
from pipelines.synthesis.ingest.store import write_trajectories
from schemas.errors import RecipeError, UsageError
from schemas.trajectory import Message, Outcome, ToolCall, Trajectory


@pytest.fixture
def file(tmp_path):
    def run(identity, success):
        messages = [
            Message("user", "list the files"),
            Message("assistant", "one", None, [ToolCall("c1", "run", '{"command": "lss"}')]),
            Message(
                "tool", "lss: command not found", tool_call_id="c1", name="run", error=True, signal="exit_code=127"
            ),
            Message("assistant", "three", None, [ToolCall("c2", "run", '{"command": "ls"}')]),
            Message("tool", "a.py", tool_call_id="c2", name="run", error=False, signal="exit_code=0"),
            Message("assistant", "There is one file, a.py."),
        ]
        tools = '[{"type": "function", "function": {"name": "run", "parameters": {"type": "object"}}}]'
        return Trajectory(identity, "unit", "recorded", messages, tools=tools, outcome=Outcome(success, None, "tests"))

    path = tmp_path / "T.parquet"
    write_trajectories(path, [run("good", True), run("bad", False)])
    return path


def test_the_mistake_is_the_difference(file):
    found = compare(file, "nanbeige", "all-assistant")
    good = [d for d in found.differences if d.trajectory == "good"]
    assert [(d.row, d.message, d.second) for d in good] == [(0, 1, "T")]
    assert good[0].first.startswith("M R2")
    # a failed run's last word, which claims that all is well, is masked too
    assert [d.message for d in found.differences if d.trajectory == "bad"] == [1, 5]
    assert found.counts("turns") == (3, 6)
    first, second = found.counts("characters")
    assert second - first == 2 * len("onerun" + '{"command": "lss"}') + len("There is one file, a.py.")


def test_a_dropped_trajectory_trains_nothing_and_says_why(file):
    found = compare(file, "outcome-only", "last-turn")
    assert found.counts("trajectories") == (1, 2)
    assert found.counts("turns") == (3, 2)
    assert list(found.dropped[0].values()) == [1]
    dropped = [d for d in found.differences if d.trajectory == "bad"]
    assert [d.message for d in dropped] == [5]
    assert dropped[0].first.startswith("M R1")


def test_json_table_and_equal_policies(file):
    result = CliRunner().invoke(command, [str(file), "--policy", "nanbeige", "--against", "all-assistant", "--json"])
    made = json.loads(result.stdout)
    assert made["read"] == 2
    assert [policy["trained"]["turns"] for policy in made["policies"]] == [3, 6]
    assert len(made["differences"]) == 3
    printed = CliRunner().invoke(command, [str(file), "--policy", "nanbeige", "--against", "all-assistant"]).stdout
    assert "3 turns differ" in printed
    same = CliRunner().invoke(command, [str(file), "--policy", "nanbeige", "--against", "nanbeige"]).stdout
    assert "the two policies train the same turns" in same


def test_an_unknown_policy_is_wrong_usage(file):
    with pytest.raises(UsageError, match="nanbeige"):
        compare(file, "nanbiege", "all-assistant")


def test_a_changed_rule_is_held_against_the_policy_as_it_is(file):
    options = [str(file), "--policy", "nanbeige", "--rule", "R2.action=flag"]
    made = json.loads(CliRunner().invoke(command, [*options, "--json"]).stdout)
    assert [policy["policy"] for policy in made["policies"]] == ["nanbeige changed", "nanbeige"]
    assert [(d["trajectory"], d["message"], d["first"], d["second"]) for d in made["differences"]] == [
        ("good", 1, "T", "M R2:exit_code"),
        ("bad", 1, "T", "M R2:exit_code"),
    ]


def test_nothing_to_compare_and_unknown_rules_are_wrong_usage(file):
    alone = CliRunner().invoke(command, [str(file), "--policy", "nanbeige"])
    assert isinstance(alone.exception, UsageError)
    wrong = CliRunner().invoke(command, [str(file), "--policy", "nanbeige", "--rule", "R14.tokens=3"])
    assert isinstance(wrong.exception, RecipeError)
    assert "--rule R14.tokens: unknown threshold" in str(wrong.exception)


def test_secrets_do_not_keep_turns_from_being_compared(tmp_path):
    messages = [Message("user", "mail?"), Message("assistant", "It is ann.other@somewhere.de."), Message("user", "Ok.")]
    write_trajectories(tmp_path / "T.parquet", [Trajectory("a", "unit", "recorded", messages)])
    found = compare(tmp_path / "T.parquet", "nanbeige", "all-assistant")
    assert (found.counts("turns"), found.differences) == ((1, 1), [])
