"""The step that applies a policy to raw trajectories: counts, order, duplicates, equal bytes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from filters.trajectory import policies
from pipelines.context import RunContext
from pipelines.curriculum.masks import masks
from pipelines.engine import InProcess
from pipelines.synthesis.styles import mark_style
from schemas.document import partition_of
from schemas.errors import CheckError, InputError, RecipeError
from schemas.progress import Quiet
from schemas.recipe import parse_recipe
from schemas.trajectory import TRAJECTORY_SCHEMA, Message, ToolCall, Trajectory, trajectory_id

RECIPE = """
name: t
seed: 1
engine: {partitions: 3}
sources: [{name: a, kind: python-environment}]
mixture: {method: proportional, budget_tokens: 10}
tokenizer: {train: {}}
curriculum: {}
model: {hidden_size: 8, num_hidden_layers: 1, num_attention_heads: 1, num_key_value_heads: 1, intermediate_size: 8}
"""


def _run(name: str, *, source: str = "synthesized", failed: bool = True) -> Trajectory:
    messages = [
        Message("user", f"read {name}"),
        Message("assistant", tool_calls=[ToolCall("1", "read", '{"path":"a"}')]),
        Message("tool", "no file a", tool_call_id="1", error=failed, signal="not_found" if failed else None),
        Message("assistant", tool_calls=[ToolCall("2", "read", f'{{"path":"{name}"}}')]),
        Message("tool", "mail of ann.other@somewhere.de", tool_call_id="2", error=False),
        Message("assistant", "It holds a mail."),
    ]
    return Trajectory(trajectory_id(source, name, messages), source, "repair", messages)


def _write(run: Path, name: str, trajectories: list[Trajectory]) -> None:
    path = run / "trajectories" / "raw" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist([t.to_row() for t in trajectories], TRAJECTORY_SCHEMA), path)


def _context(run: Path, policy: str = "nanbeige", *overrides: str) -> RunContext:
    recipe = parse_recipe(RECIPE, overrides=[f"trajectories.policy={policy}", *overrides])
    return RunContext(run, recipe, InProcess(), Quiet())


def _rows(run: Path, kind: str) -> list[dict[str, Any]]:
    files = sorted((run / "trajectories" / kind).glob("*.parquet"))
    return [row for file in files for row in pq.read_table(file).to_pylist()]


def test_counts_add_up_and_rows_lie_by_partition_and_id(tmp_path: Path) -> None:
    runs = [_run(f"f{n}") for n in range(20)]
    silent = Trajectory("f" * 32, "synthesized", "repair", [Message("user", "hello")])
    _write(tmp_path, "repair-00000.parquet", [*runs[:12], silent])
    _write(tmp_path, "repair-00001.parquet", [*runs[12:], runs[0]])
    output = masks(_context(tmp_path))
    counts = output.counts
    assert counts["trajectories_in"] == 22
    assert counts["kept"] == 20
    assert counts["dropped"] == {"R16:same_id": 1, "R22:nothing_to_train": 1}
    assert (counts["assistant_turns"], counts["trained_turns"], counts["masked_turns"]) == (60, 40, 20)
    assert counts["masked_by"] == {"R2:not_found": 20}
    assert counts["recoveries"] == 20
    assert counts["flags"] == {"recovery": 20}
    assert counts["redacted"] == {}
    assert [path.name for path in output.files] == [f"part-0000{k}.parquet" for k in (0, 1, 2)] * 2
    for part in range(3):
        ids = pq.read_table(tmp_path / "trajectories" / "kept" / f"part-0000{part}.parquet")["id"].to_pylist()
        assert ids == sorted(ids)
        assert all(partition_of(identity, 3) == part for identity in ids)
    assert not (tmp_path / "trajectories" / "sorting").exists()
    dropped = {row["id"]: row["flags"] for row in _rows(tmp_path, "dropped")}
    assert dropped == {
        "f" * 32: ["dropped:R22:nothing_to_train"],
        runs[0].id: ["recovery", "dropped:R16:same_id"],
    }


def test_bytes_do_not_depend_on_how_raw_rows_lie_in_files(tmp_path: Path) -> None:
    runs = [_run(f"f{n}") for n in range(9)]
    one, two = tmp_path / "one", tmp_path / "two"
    _write(one, "a.parquet", runs)
    _write(two, "a.parquet", runs[5:])
    _write(two, "b.parquet", runs[:5])
    masks(_context(one))
    masks(_context(two))
    for file in sorted((one / "trajectories").glob("[kd]*/*.parquet")):
        assert file.read_bytes() == (two / file.relative_to(one)).read_bytes()


def test_kept_runs_are_written_in_the_call_style_they_are_marked_with(tmp_path: Path) -> None:
    tools = '[{"type": "function", "function": {"name": "read", "parameters": {}}}]'
    plain = replace(_run("f"), tools=tools)
    _write(tmp_path, "repair-00000.parquet", [mark_style(plain, "hermes"), replace(_run("g"), tools=tools)])
    counts = masks(_context(tmp_path)).counts
    marked, other = sorted(_rows(tmp_path, "kept"), key=lambda row: bool(row["id"] != plain.id))
    assert (marked["id"], marked["tools"], other["tools"]) == (plain.id, "[]", tools)
    assert [m["role"] for m in marked["messages"]] == [
        "system",
        "user",
        "assistant",
        "user",
        "assistant",
        "user",
        "assistant",
    ]
    assert marked["messages"][2]["content"] == '<tool_call>\n{"name": "read", "arguments": {"path": "a"}}\n</tool_call>'
    assert marked["messages"][2]["mask_reasons"] == ["R2:not_found"]
    assert [m["train"] for m in marked["messages"]] == [False, False, False, False, True, False, True]
    assert counts["masked_by"] == {"R2:not_found": 2}


def test_near_equal_runs_of_a_task_leave_the_best(tmp_path: Path) -> None:
    def attempt(words: str, success: bool | None, steps: int = 4) -> Trajectory:
        messages = [Message("user", "task")]
        for number in range(steps):
            messages.append(
                Message("assistant", words, tool_calls=[ToolCall(f"{number}", "read", f'{{"n": {number}}}')])
            )
            messages.append(Message("tool", f"line {number}", tool_call_id=f"{number}", error=False))
        messages.append(Message("assistant", words))
        run = Trajectory(trajectory_id("s", "t1", messages), "s", "recorded", messages)
        run.task.id, run.outcome.success = "t1", success
        return run

    failed, solved, unknown, other = (
        attempt("a", False),
        attempt("b", True),
        attempt("c", None),
        attempt("d", True, steps=9),
    )
    _write(tmp_path, "a.parquet", [failed, solved])
    _write(tmp_path, "b.parquet", [unknown, other, solved])
    counts = masks(_context(tmp_path)).counts
    assert counts["dropped"] == {"R16:near_equal": 2, "R16:same_id": 1}
    assert {row["id"] for row in _rows(tmp_path, "kept")} == {solved.id, other.id}
    assert counts["trained_turns"] == 5 + 10


def test_people_are_redacted_in_recorded_runs_only(tmp_path: Path) -> None:
    _write(tmp_path, "a.parquet", [_run("a"), _run("b", source="sessions")])
    counts = masks(_context(tmp_path)).counts
    assert counts["redacted"] == {"EMAIL": 1}
    texts = {row["source"]: row["messages"][4]["content"] for row in _rows(tmp_path, "kept")}
    assert texts == {"synthesized": "mail of ann.other@somewhere.de", "sessions": "mail of <EMAIL_1>"}


def test_no_raw_files_give_empty_parts(tmp_path: Path) -> None:
    output = masks(_context(tmp_path))
    assert output.counts["trajectories_in"] == 0
    assert [pq.read_metadata(path).num_rows for path in output.files] == [0] * 6


def test_unknown_policy_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"'nanbeig'\. Did you mean 'nanbeige'"):
        masks(_context(tmp_path, policy="nanbeig"))


def test_a_cut_raw_file_is_refused_by_name(tmp_path: Path) -> None:
    _write(tmp_path, "a.parquet", [_run("a")])
    path = tmp_path / "trajectories" / "raw" / "a.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(CheckError, match=r"a\.parquet: cannot be read"):
        masks(_context(tmp_path))
    assert not (tmp_path / "trajectories" / "kept").exists()


def test_rules_of_the_recipe_go_on_top_of_the_policy(tmp_path: Path) -> None:
    _write(tmp_path, "repair-00000.parquet", [_run(f"f{n}") for n in range(4)])
    counts = masks(_context(tmp_path, "nanbeige", "trajectories.rules.R2=drop")).counts
    assert counts["dropped"] == {"R2:not_found": 4}
    unseen = masks(_context(tmp_path, "nanbeige", "trajectories.rules.R2.action=off")).counts
    assert (unseen["masked_turns"], unseen["errors"], unseen["flags"]) == (0, 0, {})
    with pytest.raises(RecipeError, match="actoin: unknown threshold; did you mean 'action'"):
        masks(_context(tmp_path, "nanbeige", "trajectories.rules.R2.actoin=off"))


def test_cut_observations_are_counted_and_noted(tmp_path: Path) -> None:
    big = _run("big")
    big.messages[4].content = "0123456789" * 30_000
    _write(tmp_path, "repair-00000.parquet", [big, _run("small")])
    counts = masks(_context(tmp_path)).counts
    assert counts["cut_observations"] == 1
    assert counts["cut_characters"] == 300_000 - 19_900
    noted = [row["notes"] for row in _rows(tmp_path, "kept") if row["notes"]]
    assert noted == [["R14: message 4: 280100 of 300000 characters cut"]]


def test_runs_whose_prompt_is_in_a_benchmark_file_are_dropped(tmp_path: Path) -> None:
    question = "A train leaves the old station at nine and travels west at sixty miles an hour until noon. How far?"
    exam = tmp_path / "exam.jsonl"
    exam.write_text(f'{{"question": "{question}", "answer": "180"}}\n')
    asked, other = _run("asked"), _run("other")
    asked.messages[0].content = f"Please solve this for me.\n\n{question.upper()}\nThank you."
    _write(tmp_path, "repair-00000.parquet", [asked, other])
    given = f"decontaminate.benchmarks=[{exam}]"
    assert masks(_context(tmp_path, "nanbeige", given)).counts["dropped"] == {"R17:prompt": 1}
    (dropped,) = _rows(tmp_path, "dropped")
    assert dropped["flags"] == ["benchmark:exam.jsonl", "recovery", "dropped:R17:prompt"]
    flagged = masks(_context(tmp_path, "nanbeige", given, "trajectories.rules.R17.drop_prompts=0")).counts
    assert (flagged["kept"], flagged["flags"]["benchmark:exam.jsonl"]) == (2, 1)


def test_a_record_that_breaks_a_detector_is_set_aside_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad = _run("good"), _run("bad")
    _write(tmp_path, "repair-00000.parquet", [bad, good])
    real = policies.detect

    def breaks_on_bad(trajectory: Trajectory, *rules: Any) -> Any:
        if trajectory.id == bad.id:
            raise IndexError("a shape that nobody thought of")
        return real(trajectory, *rules)

    monkeypatch.setattr(policies, "detect", breaks_on_bad)
    counts = masks(_context(tmp_path)).counts
    assert (counts["trajectories_in"], counts["kept"], counts["dropped"]) == (2, 1, {"unjudged:IndexError": 1})
    (dropped,) = _rows(tmp_path, "dropped")
    assert (dropped["id"], dropped["flags"]) == (bad.id, ["dropped:unjudged:IndexError"])
    assert dropped["notes"] == ["no rule could be applied: IndexError: a shape that nobody thought of"]
    with pytest.raises(InputError, match=r"repair-00000.parquet:1: no rule could be applied \(IndexError"):
        masks(_context(tmp_path, "nanbeige", "on_error=fail"))
