"""SFT stages of a run whose trajectories are split and repeated (ID#part, ID@stage).

`check` recounts them, `explain` follows them, `plan --run` foretells them, `export-shards` writes them.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from datamix.checks.curriculum import check_curriculum
from datamix.checks.result import CheckResult
from datamix.commands.export_shards import command as export_shards
from datamix.commands.plan import command as plan
from datamix.folder import claim_folder
from datamix.provenance import explain_token
from datamix.views.shard import MASKED, style_of
from pipelines.context import RunContext
from pipelines.curriculum.assemble import SEGMENT_START
from pipelines.curriculum.inspect import read_row
from pipelines.curriculum.shards import shards
from pipelines.curriculum.tokenizer import train_bpe, write_tokenizer_folder
from pipelines.engine import InProcess
from schemas.document import partition_of
from schemas.errors import CheckError, InputError, UsageError
from schemas.progress import Quiet
from schemas.recipe import parse_recipe
from schemas.shard import parse_segment_id, read_index
from schemas.trajectory import TRAJECTORY_SCHEMA, Message, Task, Trajectory

RECIPE = """
name: parts
seed: 1
engine: {partitions: 2}
sources: [{name: s, kind: jsonl, path: none.jsonl}]
mixture: {method: proportional, budget_tokens: 1000}
tokenizer: {train: {vocab_size: 300}}
curriculum:
  thinking: THINKING
  history: HISTORY
  sft:
    - {context_tokens: 256, trained_tokens: 400}
    - {context_tokens: 512, trained_tokens: 800, replay: 0.4}
model: {hidden_size: 16, num_hidden_layers: 1, num_attention_heads: 2, num_key_value_heads: 1, intermediate_size: 16}
"""
# drops the thinking of every turn but the last: what `history: split` is for
FORGETFUL = """
{%- for message in messages -%}
<|im_start|>{{ message.role }}
{% if message.reasoning_content and loop.last %}<think>
{{ message.reasoning_content }}
</think>

{% endif %}{{ message.content }}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif -%}
"""


def conversation(number: int) -> Trajectory:
    messages = [
        Message("user", f"first question {number}"),
        Message("assistant", f"answer one {number}", "thinking about one " * (1 + number % 5), train=True),
        Message("user", "second question"),
        Message("assistant", f"answer two {number}", "thinking about two " * (1 + number % 3), train=True),
    ]
    return Trajectory(f"{number:032x}", "s", "recorded", messages, task=Task(id=str(number), difficulty=number % 9 + 1))


def make_run(folder: Path, thinking: str, history: str) -> Path:
    """A run as far as `shards`, of sixty conversations of two turns."""
    run = folder / "run"
    recipe = parse_recipe(RECIPE.replace("THINKING", thinking).replace("HISTORY", history))
    run.mkdir(parents=True)
    claim_folder(run, recipe)
    made = [conversation(number) for number in range(60)]
    text = train_bpe((m.content + (m.reasoning or "") for t in made for m in t.messages), 300)
    write_tokenizer_folder(run / "tokenizer", text)
    if history == "split":
        (run / "tokenizer" / "chat_template.jinja").write_text(FORGETFUL, encoding="utf-8")
    for part in range(2):
        rows = [t.to_row() for t in made if partition_of(t.id, 2) == part]
        path = run / "trajectories" / "kept" / f"part-{part:05d}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows, schema=TRAJECTORY_SCHEMA), path)
    shards(RunContext(run, recipe, InProcess(), Quiet()))
    return run


@pytest.fixture(scope="module")
def split_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("thinking"), "split", "refuse")


@pytest.fixture(scope="module")
def history_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("history"), "keep", "split")


def places(run: Path) -> dict[str, tuple[Path, int, int, int]]:
    """Segment id to (file, row, first token, tokens)."""
    found = {}
    for stage in read_index(run / "shards").stages:
        for file in stage.files:
            path = run / "shards" / file.path
            for number in range(file.rows):
                for segment in read_row(path, number).segments:
                    assert segment.segment_id not in found
                    found[segment.segment_id] = (path, number, segment.start, segment.length)
    return found


def check(run: Path) -> CheckResult:
    result = CheckResult(str(run), "run")
    check_curriculum(run, result)
    return result


@pytest.mark.parametrize("name", ["split_run", "history_run"])
def test_split_and_repeated_segments_are_counted_once(name: str, request: pytest.FixtureRequest) -> None:
    run: Path = request.getfixturevalue(name)
    named = [parse_segment_id(segment) for segment in places(run)]
    assert {part for _, part, _ in named} == {0, 1}
    assert {stage for _, _, stage in named} == {None, 1}
    assert check(run).faults == []


@pytest.mark.parametrize("name", ["split_run", "history_run"])
def test_trained_tokens_of_a_part_lead_to_the_message_that_it_trains(name: str, request: pytest.FixtureRequest) -> None:
    run: Path = request.getfixturevalue(name)
    for segment, (path, number, start, length) in sorted(places(run).items())[:12]:
        trajectory, part, stage = parse_segment_id(segment)
        trained = start + np.flatnonzero(read_row(path, number).mask[start : start + length])
        for token in (int(trained[0]), int(trained[-1])):
            found = explain_token(f"{path}:{number}:{token}")["trajectory"]
            assert (found["id"], found["part"], found["replayed_in"]) == (trajectory, part, stage)
            assert (found["message"], found["role"]) == (1 + 2 * int(part or 0), "assistant")


def test_a_context_token_of_a_later_part_leads_to_its_own_message(split_run: Path) -> None:
    path, number, start, length = next(
        place for segment, place in sorted(places(split_run).items()) if segment.endswith("#1")
    )
    first = explain_token(f"{path}:{number}:{start + 3}")["trajectory"]
    assert (first["message"], first["role"]) == (0, "user")
    masked = start + [n for n, why in enumerate(reasons(path, number, start, length)) if why == "earlier_turn"][-1]
    assert explain_token(f"{path}:{number}:{masked}")["trajectory"]["message"] == 1


def reasons(path: Path, number: int, start: int, length: int) -> list[str]:
    segment = next(s for s in read_row(path, number).segments if s.start == start)
    assert sum(count for count, _ in segment.runs) == length
    return [reason for count, reason in segment.runs for _ in range(count)]


def rewrite_names(run: Path, change: dict[str, str]) -> None:
    """Give segments of the shards other names."""
    for path in sorted((run / "shards").rglob("*.arrow")):
        with pa.ipc.open_file(path.read_bytes()) as reader:
            table = reader.read_all()
        rows = table.to_pylist()
        for row in rows:
            row["segment_ids"] = [change.get(name, name) for name in row["segment_ids"]]
        with pa.ipc.new_file(str(path), table.schema) as out:
            out.write_table(pa.Table.from_pylist(rows, schema=table.schema))


def test_a_missing_part_a_doubled_one_and_an_orphan_replay_are_named(split_run: Path, tmp_path: Path) -> None:
    names = sorted(places(split_run))
    part = next(name for name in names if name.endswith("#1") and name.removesuffix("#1") + "#0" in names)
    again = next(name for name in names if name.endswith("@1"))
    cases = {
        part.removesuffix("#1") + "#5": (part, "lack a part"),
        part.removesuffix("#1") + "#0": (part, "not in exactly one place"),
        "f" * 32 + "@1": (again, "repeat none of an earlier stage"),
    }
    for number, (new, (old, fault)) in enumerate(cases.items()):
        run = tmp_path / str(number)
        shutil.copytree(split_run, run)
        rewrite_names(run, {old: new})
        assert any(fault in found.problem for found in check(run).faults)


def test_a_turn_that_is_masked_in_the_file_but_trained_in_the_shards_is_named(split_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(split_run, run)
    path = run / "trajectories" / "kept" / "part-00000.parquet"
    rows = pq.read_table(path).to_pylist()
    used = {parse_segment_id(segment)[0] for segment in places(run)}
    both = {name for name in used if {f"{name}#0", f"{name}#1"} <= set(places(run))}
    row = next(row for row in rows if row["id"] in both)
    row["messages"][1]["train"] = False
    pq.write_table(pa.Table.from_pylist(rows, schema=TRAJECTORY_SCHEMA), path)
    assert [fault.problem for fault in check(run).faults] == [
        f"1 trajectories train other turns than their file says; the first is {row['id']}: 1 turns marked, 2 trained"
    ]


@pytest.mark.parametrize("name", ["split_run", "history_run"])
def test_plan_of_a_run_is_what_the_shards_step_reaches(name: str, request: pytest.FixtureRequest) -> None:
    run: Path = request.getfixturevalue(name)
    done = CliRunner().invoke(plan, [str(run / "recipe.yaml"), "--run", str(run), "--json"])
    assert done.exit_code == 0, (done.output, done.exception)
    sft = json.loads(done.stdout)["sft"]
    assert sft["records"] == 120
    for planned, made in zip(sft["stages"], read_index(run / "shards").stages, strict=True):
        report = {key: value for key, value in planned.items() if key not in ("name", "context_tokens")}
        assert (planned["name"], planned["context_tokens"]) == (made.name, made.context_tokens)
        assert report == json.loads(json.dumps(made.report))
    audit = pq.read_table(run / "shards" / "audit.parquet").to_pylist()
    assert {reason: bill["records"] for reason, bill in sft["left_out"].items()} == {
        reason: sum(row["reason"] == reason for row in audit) for reason in {row["reason"] for row in audit}
    }
    assert sum(bill["tokens"] for bill in sft["left_out"].values()) == sum(row["tokens"] for row in audit)


def test_plan_of_a_run_shows_shortfalls_and_writes_nothing(split_run: Path) -> None:
    before = sorted((path, path.stat().st_mtime_ns) for path in split_run.rglob("*"))
    stage = "{context_tokens: 256, trained_tokens: 9000, shares: {general: 0.5, agentic: 0.5}}"
    asked = ["--run", str(split_run), "--set", f"curriculum.sft=[{stage}]"]
    shown = CliRunner().invoke(plan, [str(split_run / "recipe.yaml"), *asked])
    assert shown.exit_code == 0, (shown.output, shown.exception)
    made = json.loads(CliRunner().invoke(plan, [str(split_run / "recipe.yaml"), *asked, "--json"]).stdout)["sft"]
    shares = made["stages"][0]["shares"]
    assert shares["agentic"] == {"wanted": 0.5, "reached": 0.0, "trained_tokens": 0, "shortfall": 4_500}
    assert "agentic 0.0% (50.0%)" in shown.stdout and "agentic 4,500" in shown.stdout
    assert sorted((path, path.stat().st_mtime_ns) for path in split_run.rglob("*")) == before


def test_plan_of_a_run_without_masks_or_tokenizer_says_what_to_run(split_run: Path, tmp_path: Path) -> None:
    recipe = str(split_run / "recipe.yaml")
    done = CliRunner().invoke(plan, [recipe, "--run", str(tmp_path)])
    assert isinstance(done.exception, InputError) and "--until masks" in str(done.exception)
    shutil.copytree(split_run / "trajectories", tmp_path / "trajectories")
    done = CliRunner().invoke(plan, [recipe, "--run", str(tmp_path)])
    assert isinstance(done.exception, InputError) and "--until tokenizer" in str(done.exception)


@pytest.mark.parametrize(
    ("to", "names"),
    [
        ("trl", ["part-00000.parquet"]),
        ("megatron", ["part-00000.idx.parquet"]),
        ("olmo-core", ["part-00000.label_mask.npy", "part-00000.npy"]),
    ],
)
def test_shards_are_exported_for_other_trainers(split_run: Path, tmp_path: Path, to: str, names: list[str]) -> None:
    for given, out in ((split_run, tmp_path / "a"), (split_run / "shards", tmp_path / "b")):
        done = CliRunner().invoke(export_shards, [str(given), "--to", to, "--out", str(out), "--json"])
        assert done.exit_code == 0, (done.output, done.exception)
        index = read_index(split_run / "shards")
        told = json.loads(done.stdout)
        assert told["rows"] == sum(stage.rows for stage in index.stages)
        assert told["trained_tokens"] == sum(stage.trained_tokens for stage in index.stages)
        assert [path.name for path in sorted((out / "sft-1-512").iterdir())] == names
    shown = CliRunner().invoke(
        export_shards, [str(split_run), "--to", to, "--out", str(tmp_path / "c"), "--stage", "sft-0-256"]
    )
    assert shown.exit_code == 0 and "trained tokens" in shown.stdout
    assert [path.name for path in (tmp_path / "c").iterdir()] == ["sft-0-256"]


def test_wrong_exports_are_refused(split_run: Path, history_run: Path, tmp_path: Path) -> None:
    def error_of(*arguments: str) -> BaseException | None:
        return CliRunner().invoke(export_shards, arguments).exception

    out = str(tmp_path / "out")
    assert isinstance(error_of(str(split_run), "--to", "jax", "--out", out), UsageError)
    assert isinstance(error_of(str(tmp_path), "--to", "trl", "--out", out), InputError)
    full = error_of(str(split_run), "--to", "trl", "--out", str(split_run / "shards"))
    assert isinstance(full, UsageError) and "is not empty" in str(full)
    other = tmp_path / "tokenizer"
    shutil.copytree(split_run / "tokenizer", other)
    raw = json.loads((other / "tokenizer.json").read_text(encoding="utf-8"))
    last = max(raw["model"]["vocab"], key=lambda token: raw["model"]["vocab"][token])
    del raw["model"]["vocab"][last]
    raw["model"]["merges"] = [merge for merge in raw["model"]["merges"] if "".join(merge) != last]
    (other / "tokenizer.json").write_text(json.dumps(raw), encoding="utf-8")
    shrunk = error_of(str(split_run), "--to", "trl", "--out", out, "--tokenizer", str(other))
    assert isinstance(shrunk, CheckError) and "made with another tokenizer" in str(shrunk)


def test_a_first_token_is_not_shown_as_a_masked_turn() -> None:
    assert style_of(SEGMENT_START)[2] == "first token of a segment, which nothing precedes"
    assert style_of("R2:exit_code") == MASKED
