"""`datamix ingest` as a user runs it."""

import json

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from datamix.commands.ingest import command
from pipelines.synthesis.convert import convert_file
from schemas.trajectory import TRAJECTORY_SCHEMA, Trajectory

ROW = {
    "messages": [
        {"role": "user", "content": "go"},
        {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "a", "content": "boom", "is_error": True},
    ]
}


@pytest.fixture
def runs(tmp_path):
    folder = tmp_path / "runs"
    folder.mkdir()
    (folder / "a.jsonl").write_text(json.dumps(ROW) + "\n" + json.dumps(ROW) + "\nbroken\n")
    (folder / "LICENSE").write_text("MIT License\n")
    return folder


def test_json_counts_a_row_a_file(runs, tmp_path):
    out = tmp_path / "T.parquet"
    result = CliRunner().invoke(command, [str(runs), "--out", str(out), "--json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert {key: report[key] for key in ("trajectories", "turns", "calls", "errors", "set_aside")} == {
        "trajectories": 2,
        "turns": 2,
        "calls": 2,
        "errors": 2,
        "set_aside": 2,
    }
    license_row, rows = report["files"]
    assert (license_row["format"], license_row["set_aside"]) == (None, 1)
    assert (rows["format"], rows["trajectories"], rows["set_aside"]) == ("openai", 2, 1)
    table = pq.read_table(out)
    assert table.schema.equals(TRAJECTORY_SCHEMA)
    assert [Trajectory.from_row(row).messages[2].error for row in table.to_pylist()] == [True, True]
    aside = [json.loads(line) for line in (tmp_path / "T.parquet.set_aside.jsonl").read_text().splitlines()]
    assert [row["record"] for row in aside] == ["", "line 3"]
    assert set(aside[0]) == {"path", "record", "field", "problem", "received", "format"}


def test_equal_runs_are_counted_kept_by_ingest_and_trained_once(runs, tmp_path):
    (runs / "b.jsonl").write_text(json.dumps(ROW) + "\n" + json.dumps({**ROW, "messages": ROW["messages"][:2]}) + "\n")
    out = tmp_path / "T.parquet"
    result = CliRunner().invoke(command, [str(runs), "--out", str(out), "--json"])
    report = json.loads(result.stdout)
    assert (report["trajectories"], report["copies"]) == (4, 2)
    assert [row["copies"] for row in report["files"]] == [0, 1, 1]
    printed = CliRunner().invoke(command, [str(runs), "--out", str(out)])
    assert "2 trajectories are the same as an earlier one (equal ids)" in printed.stderr
    ids = pq.read_table(out, columns=["id"]).column("id").to_pylist()
    assert (len(ids), len(set(ids))) == (4, 2)

    plain = convert_file(out, "openai", tmp_path / "plain.jsonl")
    assert (plain.read, plain.rows, plain.copies, dict(plain.left_out)) == (4, 4, 2, {})
    decided = convert_file(out, "openai", tmp_path / "decided.jsonl", policy="all-assistant")
    assert (decided.read, decided.rows, decided.copies) == (4, 2, 2)
    assert dict(decided.left_out) == {"policy all-assistant: R16:same_id": 2}


def test_a_table_is_printed_and_the_same_input_gives_the_same_bytes(runs, tmp_path):
    first = CliRunner().invoke(command, [str(runs), "--out", str(tmp_path / "1.parquet")])
    CliRunner().invoke(command, [str(runs), "--out", str(tmp_path / "2.parquet")])
    assert first.exit_code == 0
    assert "openai" in first.stdout
    assert (tmp_path / "1.parquet").read_bytes() == (tmp_path / "2.parquet").read_bytes()


def test_nothing_set_aside_leaves_no_list_and_an_old_one_goes(runs, tmp_path):
    out = tmp_path / "T.parquet"
    CliRunner().invoke(command, [str(runs), "--out", str(out)])
    (runs / "a.jsonl").write_text(json.dumps(ROW))
    assert CliRunner().invoke(command, [str(runs / "a.jsonl"), "--out", str(out)]).exit_code == 0
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["T.parquet"]


def test_its_own_output_among_the_inputs_is_not_read(runs):
    out = runs / "T.parquet"
    for _ in range(2):
        result = CliRunner().invoke(command, [str(runs), "--out", str(out), "--json"])
        assert json.loads(result.stdout)["trajectories"] == 2


def test_no_trajectory_at_all_fails_and_writes_no_file(runs, tmp_path):
    out = tmp_path / "T.parquet"
    result = CliRunner().invoke(command, [str(runs / "LICENSE"), "--out", str(out)])
    assert result.exception is not None
    assert result.exception.exit_code == 1
    assert "LICENSE" in str(result.exception)
    assert not out.exists()
    assert (tmp_path / "T.parquet.set_aside.jsonl").exists()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["missing", "--out", "T"], 1), (["--out", "T"], 2), (["x", "--out", "T", "--format", "zz"], 2)],
)
def test_wrong_usage_and_missing_paths_have_their_exit_codes(tmp_path, monkeypatch, arguments, code):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x").write_text("{}")
    result = CliRunner().invoke(command, arguments)
    assert getattr(result.exception, "exit_code", result.exit_code) == code
    assert not (tmp_path / "T").exists()
