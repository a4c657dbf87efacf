"""`datamix synth` and `datamix replay` as a user runs them."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from datamix.commands.replay import command as replay
from datamix.commands.synth import command as synth
from pipelines.synthesis.ingest.store import read_trajectories
from schemas.errors import DatamixError, InputError, UsageError
from schemas.trajectory import TRAJECTORY_SCHEMA

MODULE = '''"""Cutting sequences, part {n}. {filler}"""


def chunks_{n}(items, n):
    """Cut items into lists of n."""
    if n <= 0:
        raise ValueError("n must be positive")
    found = []
    for start in range({n}, len(items), n):
        found.append(items[start : start + n])
    return found


def running_total_{n}(values):
    """Sums of all prefixes."""
    total = {n}
    sums = []
    for value in values:
        total += value
        sums.append(total)
    return sums
'''


def run(command: object, *options: object) -> Result:
    return CliRunner().invoke(command, [str(option) for option in options])  # type: ignore[arg-type]


def make(out: Path, *options: object) -> dict[str, object]:
    result = run(synth, *options, "--out", out, "--workers", 1, "--json")
    assert result.exit_code == 0, (result.output, result.exception)
    return dict(json.loads(result.stdout))


@pytest.fixture(scope="module")
def sheet(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, object]]:
    out = tmp_path_factory.mktemp("synth") / "R.parquet"
    return out, make(out, "reasoning", "--n", 12, "--seed", 4, "--difficulty", "1:5")


def test_counts_are_those_of_the_file(sheet: tuple[Path, dict[str, object]]) -> None:
    out, counts = sheet
    found = list(read_trajectories(out))
    assert pq.read_schema(out).equals(TRAJECTORY_SCHEMA)
    labels = [m.label or "" for t in found for m in t.messages if m.role == "assistant"]
    assert counts["tasks"] == counts["trajectories"] == len(found) == 12
    assert counts["solved"] == sum(t.outcome.success is True for t in found)
    assert counts["mistakes"] == sum(label.startswith("mistake") for label in labels)
    assert (counts["steps"], counts["recoveries"]) == (len(labels), labels.count("recovery"))
    assert [t.task.difficulty for t in found][::11] == [1, 5]
    assert sorted(path.name for path in out.parent.iterdir()) == ["R.parquet"]


def test_same_options_same_bytes_at_every_worker_count(sheet: tuple[Path, dict[str, object]], tmp_path: Path) -> None:
    again = tmp_path / "again.parquet"
    options = ["reasoning", "--n", 12, "--seed", 4, "--difficulty", "1:5", "--workers", 2, "--out", again]
    assert run(synth, *options).exit_code == 0
    assert again.read_bytes() == sheet[0].read_bytes()
    make(tmp_path / "other.parquet", "reasoning", "--n", 12, "--seed", 5, "--difficulty", "1:5")
    assert (tmp_path / "other.parquet").read_bytes() != again.read_bytes()


def test_a_text_style_is_a_mark_and_replays_equal(tmp_path: Path) -> None:
    out = tmp_path / "X.parquet"
    make(out, "reasoning", "--n", 6, "--style", "hermes")
    made = list(read_trajectories(out))
    marked = [t.notes == ["call_style=hermes"] for t in made]
    assert marked == [t.tools not in (None, "", "[]") for t in made]  # without tools there is nothing to style
    assert any(marked)
    result = run(replay, out, "--json")
    assert (result.exit_code, json.loads(result.stdout)["equal"]) == (0, 6)


def test_repair_draws_from_the_given_files_and_keeps_its_pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pipelines.synthesis.pools import repair as pool

    monkeypatch.setattr(pool, "FEWEST_MODULES", 1)
    monkeypatch.setattr(pool, "FEWEST_CHARACTERS", 1)
    rows = [{"text": MODULE.format(n=n, filler="on lists " * 330), "license": "MIT"} for n in range(8)]
    (tmp_path / "code.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = tmp_path / "P.parquet"
    counts = make(out, "repair", "--n", 3, "--corpus", tmp_path / "code.jsonl", "--difficulty", "1:2")
    assert counts["trajectories"] == 3
    assert counts["pool"]["modules"] == 8  # type: ignore[index]
    assert counts["pool_files"] == f"{out}.pool.jsonl"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["P.parquet", "P.parquet.pool.jsonl", "code.jsonl"]
    assert json.loads(run(replay, out, "--row", 2, "--json").stdout)["rows"][0]["equal"] is True
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    (moved / "P.parquet").write_bytes(out.read_bytes())
    with pytest.raises(UsageError, match=r"--run RUN.*--pool PATH"):
        raise run(replay, moved / "P.parquet").exception or AssertionError
    assert run(replay, moved / "P.parquet", "--pool", f"{out}.pool.jsonl").exit_code == 0


def test_the_pool_of_an_earlier_call_does_not_stand_in_for_that_of_a_run(tmp_path: Path) -> None:
    from pipelines.synthesis.synth_file import pool_beside

    made = tmp_path / "run" / "trajectories" / "pool.jsonl"
    made.parent.mkdir(parents=True)
    rows = [{"text": MODULE.format(n=n, filler="on lists"), "license": "MIT"} for n in range(8)]
    (tmp_path / "code.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    first = tmp_path / "F.parquet"
    make(first, "repair", "--n", 1, "--corpus", tmp_path / "code.jsonl", "--difficulty", "1")
    beside = Path(f"{first}.pool.jsonl")
    made.write_bytes(beside.read_bytes())
    beside.write_text("another pool")
    make(first, "repair", "--n", 1, "--run", tmp_path / "run", "--difficulty", "1")
    assert not beside.exists()
    with pytest.raises(UsageError, match="--run RUN"):
        pool_beside(first, "repair")


def test_what_a_killed_call_left_goes_with_the_next_one_and_a_running_one_keeps_its_folder(tmp_path: Path) -> None:
    left, running, begun = (tmp_path / f".tmp-synth-{name}" for name in ("left", "running", "begun"))
    for folder in (left, running, begun):
        folder.mkdir()
        (folder / "part").write_text("x")
    (left / "lock").touch()
    with open(running / "lock", "wb") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        make(tmp_path / "R.parquet", "reasoning", "--n", 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".tmp-synth-begun", ".tmp-synth-running", "R.parquet"]


def test_a_place_that_cannot_be_written_is_named_as_it_was_given(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    out = tmp_path / "file" / "F.parquet"
    error = run(synth, "reasoning", "--n", 1, "--out", out, "--workers", 1).exception
    assert isinstance(error, UsageError)
    assert str(error).startswith(f"--out {out}: cannot be written: ")


def test_a_pipe_as_the_output_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    error = run(synth, "reasoning", "--n", 1, "--out", tmp_path / "pipe", "--workers", 1).exception
    assert "device or a pipe" in str(error)


def test_a_difference_is_shown_and_ends_with_one(sheet: tuple[Path, dict[str, object]], tmp_path: Path) -> None:
    changed = [t.to_row() for t in read_trajectories(sheet[0])]
    changed[5]["outcome"] = {**changed[5]["outcome"], "verified_by": "somebody's word"}
    path = tmp_path / "changed.parquet"
    pq.write_table(pa.Table.from_pylist(changed, TRAJECTORY_SCHEMA), path)
    result = run(replay, path)
    assert result.exit_code == 1
    assert "row 5" in result.stdout and "the verdict differs" in result.stdout and "somebody's word" in result.stdout
    assert run(replay, path, "--row", 4).exit_code == 0
    rows = json.loads(run(replay, path, "--json").stdout)["rows"]
    assert [row["row"] for row in rows if not row["equal"]] == [5]
    assert rows[5]["difference"]["message"] == -1


def test_a_trajectory_without_its_task_is_named(sheet: tuple[Path, dict[str, object]], tmp_path: Path) -> None:
    rows = [t.to_row() for t in read_trajectories(sheet[0])]
    path = tmp_path / "recorded.parquet"
    pq.write_table(pa.Table.from_pylist([rows[0], {**rows[1], "extra": None}], TRAJECTORY_SCHEMA), path)
    assert run(replay, path, "--row", 0).exit_code == 0
    error = run(replay, path).exception
    assert isinstance(error, InputError)
    assert "recorded.parquet:1" in str(error) and "carries no task" in str(error)
    beyond = run(replay, path, "--row", 2).exception
    assert isinstance(beyond, UsageError)
    assert "has 2 trajectories, counted from 0: there is no row 2" in str(beyond)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["poetry"], "'poetry' is unknown.*repair"),
        (["reasoning", "--difficulty", "0:4"], r"\[0, 4\].*within \[1, 10\]"),
        (["reasoning", "--mistake-rate", "0.7"], "0.7 is out of range.*0 to 0.6"),
        (["reasoning", "--mistake-rate", "7"], "mistake_rate.*received 7"),
        (["reasoning", "--difficulty", "4:2"], r"^difficulty \[4, 2\] must be an ordered range within \[1, 10\]$"),
        (["reasoning", "--teacher", "openai"], "^--teacher openai needs --endpoint .*needs --model "),
        (["reasoning", "--teacher", "openai", "--endpoint", "h", "--model", "m"], "^--endpoint: .*received 'h'$"),
        (["reasoning", "--endpoint", "http://h/v1"], "^--endpoint is for .*--teacher openai"),
        (["reasoning", "--model", "m"], "^--model is for .*--teacher openai"),
        (["reasoning", "--endpoint-set", "seed=1"], "^--endpoint-set seed is for .*--teacher openai"),
        (["reasoning", "--teacher", "openai", "--endpoint-set", "x"], "KEY=VALUE"),
        (
            [
                "reasoning",
                "--teacher",
                "openai",
                "--endpoint",
                "http://h/v1",
                "--model",
                "m",
                "--endpoint-set",
                "zzz=1",
            ],
            "zzz",
        ),
        (
            ["reasoning", "--teacher", "openai", "--endpoint-set", "body={a: ["],
            r"--endpoint-set body: '{a: \[' is no YAML value",
        ),
        (["repair", "--run", "nowhere"], "nowhere.*kept corpus"),
        (["repair", "--run", "r", "--corpus", "c"], "--run and --corpus"),
    ],
)
def test_wrong_requests_say_what_is_wrong(options: list[str], said: str, tmp_path: Path) -> None:
    out = tmp_path / "F.parquet"
    error = run(synth, *options, "--out", out, "--workers", 1).exception
    assert isinstance(error, DatamixError)
    with pytest.raises(DatamixError, match=f"(?s){said}"):
        raise error
    assert list(tmp_path.iterdir()) == []


def test_other_wrong_options_are_usage_errors(tmp_path: Path) -> None:
    assert run(synth, "reasoning", "--difficulty", "easy", "--out", tmp_path / "F").exit_code == 2
    assert run(synth, "reasoning", "--seed", 2**63, "--out", tmp_path / "F").exit_code == 2
    for out, said in ((tmp_path, "is a folder"), (tmp_path / "F.jsonl", "Parquet")):
        assert said in str(run(synth, "reasoning", "--n", 1, "--out", out, "--workers", 1).exception)
    assert "exclude" in str(run(replay, tmp_path / "x", "--row", 1, "--all").exception)
    assert "no such file" in str(run(replay, tmp_path / "x").exception)
