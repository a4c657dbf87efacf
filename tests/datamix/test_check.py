"""`datamix check` on runs made by the real steps: whole runs pass, any damage is named with its file."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from datamix.checks import check_path
from datamix.commands.check import command
from datamix.run import run_job
from pipelines.engine import InProcess
from schemas.errors import InputError
from schemas.files import sha256_file
from schemas.progress import Quiet
from schemas.recipe import Recipe, parse_recipe
from schemas.shard import ShardFile, ShardIndex, StageIndex, shard_schema, write_index

RECIPE = """
name: tiny
seed: 1
engine: {partitions: 2}
sources: [{name: mine, kind: jsonl, path: INPUT, domain_field: domain}]
mixture: {method: proportional, budget_tokens: 1000}
tokenizer: {train: {vocab_size: 300}}
curriculum: {pretrain: [{context_tokens: 64, budget_tokens: 1000}]}
model: {hidden_size: 16, num_hidden_layers: 1, num_attention_heads: 2, num_key_value_heads: 1, intermediate_size: 16}
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run as far as `read`, of twelve records and a broken line."""
    folder = tmp_path_factory.mktemp("made")
    lines = [json.dumps({"id": str(n), "text": f"text number {n} " * 20, "domain": "code"}) for n in range(12)]
    (folder / "in.jsonl").write_text("\n".join([*lines, "{broken"]) + "\n", encoding="utf-8")
    recipe: Recipe = parse_recipe(RECIPE.replace("INPUT", str(folder / "in.jsonl")))
    run_job(recipe, folder / "run", Quiet(), until="read", engine=InProcess())
    return folder / "run"


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    for path in sorted(made.rglob("*")):
        target = tmp_path / "run" / path.relative_to(made)
        if path.is_dir():
            target.mkdir(parents=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    return tmp_path / "run"


def faults(path: Path) -> dict[str, str]:
    """The problems of each file, several of one file joined."""
    found: dict[str, str] = {}
    for fault in check_path(path, Quiet()).faults:
        found[fault.path] = f"{found[fault.path]}; {fault.problem}" if fault.path in found else fault.problem
    return found


def call(*arguments: str) -> Result:
    return CliRunner().invoke(command, arguments)


def test_whole_run_passes_and_says_what_it_counted(run: Path) -> None:
    result = check_path(run, Quiet())
    assert result.faults == []
    assert result.summary["documents"]["read"] == 12
    done = call(str(run))
    assert (done.exit_code, done.output.splitlines()[-1]) == (0, f"{run}: ok")
    assert json.loads(call(str(run), "--json").stdout)["ok"] is True


@pytest.mark.parametrize("position", [0, 700, -1])
def test_one_changed_byte_is_found_and_its_file_named(run: Path, position: int) -> None:
    path = run / "documents/part-00001.parquet"
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)
    assert faults(run) == {"documents/part-00001.parquet": "its bytes differ from its manifest's SHA-256"}
    done = call(str(run))
    assert done.exit_code == 1
    assert "documents/part-00001.parquet: its bytes differ" in done.output
    assert json.loads(call(str(run), "--json").stdout)["faults"][0]["path"] == "documents/part-00001.parquet"


def test_missing_and_cut_and_foreign_files_are_found(run: Path) -> None:
    (run / "documents/part-00000.parquet").unlink()
    cut = run / "set_aside/read.jsonl"
    cut.write_bytes(cut.read_bytes()[:-5])
    (run / "documents/part-00009.parquet").write_bytes(b"")
    found = faults(run)
    assert found["documents/part-00000.parquet"] == "is missing"
    assert "its manifest says" in found["set_aside/read.jsonl"]
    assert found["documents/part-00009.parquet"] == "belongs to no finished step"


def test_manifest_that_counts_wrong_is_found(run: Path) -> None:
    path = run / "manifests/read.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"documents": 12', '"documents": 13'), encoding="utf-8")
    assert faults(run)["manifests/read.json"] == "documents: counted 12, expected 13"


def test_unreadable_manifest_and_unfinished_step_are_found(run: Path) -> None:
    (run / "manifests/read.json").write_text("{", encoding="utf-8")
    (run / "attempts").mkdir(exist_ok=True)
    (run / "attempts/quality.json").write_text('{"key": "x"}', encoding="utf-8")
    found = faults(run)
    assert found["manifests/read.json"].startswith("cannot be read as a manifest")
    assert found["manifests/quality.json"] == "the step was started and not finished: run it again"


def test_removed_manifest_is_named_once_with_the_files_of_its_step(run: Path) -> None:
    (run / "manifests" / "read.json").unlink()
    files = sum(path.is_file() for name in ("documents", "set_aside") for path in (run / name).rglob("*"))
    assert faults(run) == {
        "manifests/read.json": f"is missing, and files of this step are there ({files}): run it again"
    }
    assert call(str(run)).output.splitlines()[-1] == f"{run}: 1 fault"


def test_other_recipe_in_the_run_is_found(run: Path) -> None:
    path = run / "recipe.yaml"
    path.write_text(path.read_text(encoding="utf-8").replace("seed: 1", "seed: 2"), encoding="utf-8")
    assert faults(run)["recipe.yaml"] == "is not the recipe that run.json names"


def test_path_that_is_nothing_we_know_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file or folder"):
        check_path(tmp_path / "none", Quiet())
    with pytest.raises(InputError, match="neither a run"):
        check_path(tmp_path, Quiet())


def row(ids: list[int], mask: list[bool], lengths: list[int], reasons: list[tuple[int, str]]) -> dict[str, object]:
    return {
        "input_ids": ids,
        "loss_mask": mask,
        "segment_lengths": lengths,
        "segment_ids": [f"t{n}" for n in range(len(lengths))],
        "mask_reasons": [{"tokens": tokens, "reason": reason} for tokens, reason in reasons],
    }


GOOD = row(
    [1, 2, 3, 4, 5],
    [False, True, True, False, True],
    [3, 2],
    [(1, "user"), (2, "trained"), (1, "R2:exit_code"), (1, "trained")],
)
BROKEN: list[tuple[str, dict[str, object]]] = [
    ("trains its first token", {"loss_mask": [True, True, True, False, True]}),
    ("id 400 is outside the vocabulary of 300", {"input_ids": [1, 2, 3, 4, 400]}),
    ("segment lengths [2, 2] do not make 5 tokens", {"segment_lengths": [2, 2]}),
    ("do not make 5 tokens", {"segment_ids": ["t0"]}),
    ("the reasons cover 1 of 5 tokens", {"mask_reasons": [{"tokens": 1, "reason": "user"}]}),
    ("token 1: mask and reason disagree", {"loss_mask": [False, False, True, False, True]}),
    ("4 mask values for 5 tokens", {"loss_mask": [False, True, True, False]}),
]


def write_shard(path: Path, rows: list[dict[str, object]], context: int = 8) -> Path:
    said = {"stage": "s", "context_tokens": str(context), "tokenizer_digest": "t", "recipe_digest": "r"}
    schema = shard_schema(300, said)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_pylist(rows, schema))
    return path


def test_shard_that_keeps_its_promises_passes(tmp_path: Path) -> None:
    result = check_path(write_shard(tmp_path / "a.arrow", [GOOD, GOOD]), Quiet())
    assert result.faults == []
    assert result.summary == {"rows": 2, "tokens": 10, "trained_tokens": 6, "segments": 4}


@pytest.mark.parametrize(("problem", "change"), BROKEN, ids=[problem for problem, _ in BROKEN])
def test_each_broken_promise_of_a_row_is_named(tmp_path: Path, problem: str, change: dict[str, object]) -> None:
    path = write_shard(tmp_path / "a.arrow", [GOOD, {**GOOD, **change}])
    found = faults(path)["a.arrow"]
    assert found.startswith("row 1: ")
    assert problem in found


def test_row_longer_than_the_context_is_found(tmp_path: Path) -> None:
    found = faults(write_shard(tmp_path / "a.arrow", [GOOD], context=4))
    assert found["a.arrow"] == "row 0: 5 tokens, above the stage's 4"


def test_file_that_is_no_shard_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "a.arrow").write_bytes(b"nothing")
    assert "cannot be read as a shard" in faults(tmp_path / "a.arrow")["a.arrow"]


def test_shards_folder_is_held_against_its_index(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    path = write_shard(tmp_path / "s/part-00000.arrow", [GOOD])
    file = ShardFile("s/part-00000.arrow", sha256_file(path), path.stat().st_size, 1, 5, 3, 2)
    write_index(tmp_path, ShardIndex(300, "t", "r", [StageIndex("s", "sft", 8, [file])]))
    assert faults(tmp_path) == {}
    file.trained_tokens = 4
    write_index(tmp_path, ShardIndex(300, "t", "r", [StageIndex("s", "sft", 8, [file])]))
    write_shard(tmp_path / "s/extra.arrow", [GOOD])
    found = faults(tmp_path)
    assert found["s/part-00000.arrow"] == "3 trained_tokens, the index says 4"
    assert found["s/extra.arrow"].startswith("not in the index")
