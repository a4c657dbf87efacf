"""A trajectory as `datamix show` prints it: marks, rules, signals; a page that runs nothing."""

import io

import pytest
from click.testing import CliRunner
from rich.console import Console

from datamix.commands.show import command
from datamix.views.trajectory import (
    print_trajectory,
    read_trajectory,
    trajectory_html,
    trajectory_lines,
    trajectory_to_json,
    turns_of,
    write_trajectory_html,
)
from pipelines.synthesis.ingest.store import write_trajectories
from schemas.errors import InputError, UsageError
from schemas.trajectory import Message, Outcome, Task, ToolCall, Trajectory


def sample(identity="t"):
    messages = [
        Message("system", "S"),
        Message("user", "go"),
        Message(
            "assistant", "bad", "why", [ToolCall("c", "run", '{"x":1}')], train=False, mask_reasons=["R2:exit_code"]
        ),
        Message("tool", "no\x1b[31m such", tool_call_id="c", name="run", error=True, signal="exit_code=2"),
        Message("assistant", "<script>alert(1)</script>", train=True, label="recovery"),
        Message("assistant", "shown", author="demo"),
        Message("tool", "x" * 5000),
    ]
    return Trajectory(identity, "unit", "recorded", messages, task=Task("task-1"), outcome=Outcome(True, 1.0, "tests"),
                      tools='[{"type": "function", "function": {"name": "run"}}]', notes=["a repair"])  # fmt: skip


def test_every_turn_has_its_mark_rule_and_signal():
    turns = turns_of(sample())
    assert [turn.mark for turn in turns] == ["-", "-", "M", "-", "T", "?", "-"]
    assert [turn.why for turn in turns] == ["", "", "R2:exit_code", "", "label=recovery", "author=demo", ""]
    assert [turn.signal for turn in turns] == ["", "", "", "exit_code=2", "", "", ""]
    assert turns[2].text == '<think>\nwhy\n</think>\nbad\n→ run({"x":1})'


def test_lines_say_it_without_colours_and_escape_control_characters():
    out = io.StringIO()
    print_trajectory(sample(), Console(file=out, width=160), characters=300)
    text = out.getvalue()
    assert "   2 M assistant R2:exit_code" in text
    assert "   3 - tool      run  signal=exit_code=2" in text
    assert "\x1b" not in text
    assert "\\x1b[31m such" in text
    assert "4,700 characters left out" in text
    assert "success, reward 1, by tests" in text
    assert "1 trained, 1 masked, 4 context, 1 undecided" in text


def test_whole_text_on_request():
    assert any("x" * 5000 in line for line, _ in trajectory_lines(sample(), None))


def test_the_page_is_whole_escaped_and_self_contained(tmp_path):
    page = trajectory_html(sample())
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert 'class="turn masked" id="turn-2"' in page
    assert "src=" not in page
    assert "http" not in page
    assert "x" * 5000 in page
    path = write_trajectory_html(sample(), tmp_path / "t.html")
    assert path.read_text() == page


def test_json_has_the_same_turns():
    made = trajectory_to_json(sample())
    assert [turn["mark"] for turn in made["turns"]] == ["-", "-", "M", "-", "T", "?", "-"]
    assert made["outcome"] == {"success": True, "reward": 1.0, "verified_by": "tests"}


def test_rows_are_found_across_row_groups_and_missing_ones_are_refused(tmp_path):
    path = tmp_path / "T.parquet"
    write_trajectories(path, (sample(f"t{n}") for n in range(600)))
    assert [read_trajectory(path, row).id for row in (0, 255, 256, 599)] == ["t0", "t255", "t256", "t599"]
    with pytest.raises(UsageError, match="rows 0 to 599"):
        read_trajectory(path, 600)
    (tmp_path / "no.parquet").write_text("x")
    with pytest.raises(InputError, match="not a Parquet file"):
        read_trajectory(tmp_path / "no.parquet", 0)
    with pytest.raises(InputError, match="no such file"):
        read_trajectory(tmp_path / "none.parquet", 0)


def test_show_decides_with_a_policy_and_its_changed_rules(tmp_path):
    path = tmp_path / "T.parquet"
    messages = [
        Message("user", "q"),
        Message("assistant", tool_calls=[ToolCall("c1", "run", '{"command": "lss"}')]),
        Message("tool", "lss: not found", tool_call_id="c1", error=True, signal="exit_code=127"),
        Message("user", "before this: a summary", name="compaction"),
        Message("assistant", "ok"),
    ]
    write_trajectories(path, [Trajectory("t", "unit", "recorded", messages)])

    def shown(*options):
        result = CliRunner().invoke(command, [str(path), *options])
        assert result.exit_code == 0, result.output
        return [line for line in result.stdout.splitlines() if " assistant" in line]

    assert shown() == ["   1 ? assistant", "   4 ? assistant"]
    split = shown("--policy", "nanbeige")  # kept pieces first
    assert split == ["   1 T assistant", "   1 M assistant R2:exit_code label=mistake"]
    whole = ("--policy", "nanbeige", "--rule", "R15=flag")
    assert shown(*whole) == ["   1 M assistant R2:exit_code label=mistake", "   4 T assistant"]
    page = tmp_path / "t.html"
    assert CliRunner().invoke(command, [str(path), "--policy", "nanbeige", "--html", str(page)]).exit_code == 0
    text = page.read_text()
    assert (text.count('id="turn-1"'), text.count('id="piece-1-turn-1"')) == (1, 1)
    alone = CliRunner().invoke(command, [str(path), "--rule", "R15=flag"])
    assert "give --policy" in str(alone.exception)
